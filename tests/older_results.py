"""Results as an earlier version left them: older/README.md says which."""

from pathlib import Path

import yaml

from glue_bench.config import Experiment, parse_experiment
from glue_bench.records.store import Store
from glue_bench.tables.report import experiment_text

OLDER = Path(__file__).parent / "older" / "tiny"


def older_experiment() -> Experiment:
    """The experiment of OLDER, whose plan does not name the places of data and text."""
    shown = yaml.safe_load(experiment_text(Store(OLDER).read_plan()))
    return parse_experiment(shown | {"data": "hub", "pretraining": shown["pretraining"] | {"corpus": "text"}})
