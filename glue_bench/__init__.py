"""glue-bench compares ways of combining token, segment and position embeddings, on GLUE.

The public names are imported when first used, so that `import glue_bench` stays light. The Auto
classes of transformers know this package's encoder as soon as both packages are imported, in either
order.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from wrapt import when_imported

if TYPE_CHECKING:
    from glue_bench.api import (
        analyse,
        card,
        compare,
        convert,
        describe,
        evaluate,
        export,
        leaderboard,
        load_plugins,
        plan,
        predictions,
        recipes,
        report,
        run,
        statistics,
        status,
        submit,
        table,
        verify,
    )
    from glue_bench.data.glue_metric import GlueMetric
    from glue_bench.data.tasks import TASKS
    from glue_bench.errors import UserError
    from glue_bench.model.variants import VARIANTS

    __version__: str

__all__ = [
    "TASKS",
    "VARIANTS",
    "GlueMetric",
    "UserError",
    "__version__",
    "analyse",
    "card",
    "compare",
    "convert",
    "describe",
    "evaluate",
    "export",
    "leaderboard",
    "load_plugins",
    "plan",
    "predictions",
    "recipes",
    "report",
    "run",
    "statistics",
    "status",
    "submit",
    "table",
    "verify",
]

_HOMES = {
    "GlueMetric": "glue_bench.data.glue_metric",
    "TASKS": "glue_bench.data.tasks",
    "UserError": "glue_bench.errors",
    "VARIANTS": "glue_bench.model.variants",
}
"""The modules of the public names that are no functions of glue_bench.api."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("glue-bench")
    if name not in __all__:
        raise AttributeError(f"module 'glue_bench' has no attribute '{name}'")
    return getattr(import_module(_HOMES.get(name, "glue_bench.api")), name)


def __dir__() -> list[str]:
    return sorted(__all__)


# Two hooks, because modeling_auto imports configuration_auto before it is itself complete.
when_imported("transformers.models.auto.configuration_auto")(
    lambda _: import_module("glue_bench.model.configuration")
)
when_imported("transformers.models.auto.modeling_auto")(
    lambda _: import_module("glue_bench.model.heads")
)
