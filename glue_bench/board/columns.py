"""The columns of the frames of `Results`, whose attributes describe the frames."""

from glue_bench.config import AS_PUBLISHED, FINISHED

ORIGINS = ("pretrained", "adapted", "grafted", AS_PUBLISHED, FINISHED, "scratch")
"""The origins of arms, in the order of tables."""
CELL_COLUMNS = (
    "cell_id",
    "arm",
    "variant",
    "origin",
    "task",
    "learning_rate",
    "seed",
    "pretraining_seed",
    "steps",
)
"""The facts of a cell that a plan has."""
RUN_COLUMNS = (
    "finished",
    "collapsed",
    "precision",
    "data",
    "parameters",
    "base_model",
    "processor",
    "seconds",
    "environment",
    "diagnostic",
    "digest",
)
"""The facts of a cell that are known after it has finished."""
EPOCH_SCORE_COLUMNS = ("cell_id", "epoch", "last", "split", "metric", "value")
"""A score of a finished cell after an epoch; `last` says whether it is the last epoch."""
ARM_COLUMNS = (
    "arm",
    "variant",
    "origin",
    "options",
    "embedding_size",
    "summary",
    "shape",
    "start",
    "start_digest",
    "checkpoint",
    "parameters",
    "non_embedding_parameters",
    "added_over_add",
    "flops_per_token",
    "length",
)
"""The facts of an arm, its start and its sizes."""
TASK_COLUMNS = (
    "task",
    "title",
    "source",
    "digest",
    "revision",
    "partial",
    "rows",
    "differences",
    "unchecked",
    "settings",
    "from_mnli",
)
"""The data of a task, and the settings of fine-tuning on it."""
PRETRAINING_COLUMNS = (
    "pretraining_id",
    "arm",
    "seed",
    "is_search",
    "finished",
    "learning_rate",
    "searches",
    "steps",
    "tokens",
    "seconds",
    "tokens_per_second",
    "peak_memory_bytes",
    "stream",
    "train_loss",
    "validation_loss",
    "environment",
    "processor",
    "precision",
    "weights",
    "digest",
)
"""A pretraining or a run of a rate search: its rate, costs and last losses."""
LOSS_COLUMNS = (
    "pretraining_id",
    "arm",
    "pretraining_seed",
    "step",
    "tokens",
    "train_loss",
    "validation_loss",
    "seconds",
)
"""A point of the loss curve of a finished pretraining."""
MEASURE_COLUMNS = (
    "pretraining_id",
    "arm",
    "pretraining_seed",
    "step",
    "measure",
    "value",
    "standard_error",
    "n",
)
"""A measure of a pretrained encoder after some `step`, over `n` sequences."""
BASELINE_COLUMNS = ("task", "split", "metric", "baseline", "value")
"""A score of a trivial baseline."""
