"""The experiment file: YAML to frozen, checked values."""

from glue_bench.config.experiment import (
    AS_PUBLISHED,
    FINISHED,
    HELD_OUT,
    NATIVE,
    Arm,
    Experiment,
    Protocol,
    Resources,
)
from glue_bench.config.load import changed_protocol, load_experiment
from glue_bench.config.settings import (
    SCRATCH,
    Evaluation,
    Finetuning,
    Hyperparameters,
    PretrainingSettings,
    RateSearch,
)
