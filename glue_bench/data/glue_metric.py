"""GLUE's metrics behind the interface of `evaluate`, usable without the network.

Apart from `metrics` because `evaluate` takes seconds to import.
"""

from typing import Any

import datasets
import evaluate

from glue_bench.data.metrics import score
from glue_bench.data.tasks import find_task


class GlueMetric(evaluate.Metric):  # type: ignore[misc]  # evaluate has no types
    """`GlueMetric("cola").compute(predictions=..., references=...)` equals `score("cola", ...)`.

    Keeps its inputs in memory unless told otherwise, so that metrics of parallel runs share no
    file. Raises UserError for an unknown task; `compute` raises ValueError like `score`.
    """

    def __init__(self, config_name: str, keep_in_memory: bool = True, **options: Any) -> None:
        task = find_task(config_name)
        super().__init__(task.name, keep_in_memory=keep_in_memory, **options)

    def _info(self) -> evaluate.MetricInfo:
        kind = "float32" if find_task(self.config_name).is_regression else "int64"
        value = datasets.Value(kind)
        return evaluate.MetricInfo(
            description="The metrics of GLUE, one configuration per task.",
            citation="Wang et al. 2019, GLUE (https://openreview.net/forum?id=rJ4km2R5t7)",
            inputs_description="Class ids in the order of the task's labels, or scores for stsb.",
            features=datasets.Features({"predictions": value, "references": value}),
            format="numpy",
        )

    def _compute(
        self, *, predictions: Any = None, references: Any = None, **_: Any
    ) -> dict[str, float]:
        return score(self.config_name, predictions, references)
