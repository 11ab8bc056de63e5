"""The experiment file: YAML to frozen, validated values, and those to cells."""

from glue_bench.config.experiment import ArmPretraining, Cell, Experiment, Hyperparameters
from glue_bench.config.parse import load_experiment, parse_experiment, with_sources
from glue_bench.config.pretraining import Pretraining, RateSearch
from glue_bench.config.protocol import HELD_OUT, Protocol, changed_protocol
from glue_bench.config.sections import (
    AS_PUBLISHED,
    NATIVE,
    SCRATCH,
    Arm,
    Finetuning,
    Resources,
    ScratchEncoder,
    Section,
    TaskSettings,
)
