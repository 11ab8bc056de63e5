"""glue-bench: how should token, segment and position embeddings meet, and what does the choice do to GLUE?

The public names are imported when first used, so that `import glue_bench` stays light. transformers' Auto
classes know this package's encoder as soon as both are imported, in either order.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from wrapt import when_imported

if TYPE_CHECKING:
    from glue_bench.analysis.analyse import analyse
    from glue_bench.analysis.checkpoints import intrinsic
    from glue_bench.api import run
    from glue_bench.benchmark.glue_metric import GlueMetric
    from glue_bench.benchmark.tasks import TASKS
    from glue_bench.model.variants import VARIANTS
    from glue_bench.reporting.report.page import report
    from glue_bench.results.board import leaderboard
    from glue_bench.testing.plugins import load_plugins

__version__ = "0.1.0"
__all__ = [
    "TASKS",
    "VARIANTS",
    "GlueMetric",
    "__version__",
    "analyse",
    "intrinsic",
    "leaderboard",
    "load_plugins",
    "report",
    "run",
]

_HOMES = {
    "GlueMetric": "glue_bench.benchmark.glue_metric",
    "TASKS": "glue_bench.benchmark.tasks",
    "VARIANTS": "glue_bench.model.variants",
    "analyse": "glue_bench.analysis.analyse",
    "intrinsic": "glue_bench.analysis.checkpoints",
    "leaderboard": "glue_bench.results.board",
    "load_plugins": "glue_bench.testing.plugins",
    "report": "glue_bench.reporting.report.page",
    "run": "glue_bench.api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'glue_bench' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


# Two hooks, because modeling_auto imports configuration_auto while it is itself only half imported.
@when_imported("transformers.models.auto.configuration_auto")
def _register_config(_: Any) -> None:
    import_module("glue_bench.model.configuration")


@when_imported("transformers.models.auto.modeling_auto")
def _register_models(_: Any) -> None:
    import_module("glue_bench.model.transformers_api")
