"""What inputs keep, and what ids stand for, are of one state of the files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from glue_bench.config import Experiment, parse_experiment
from glue_bench.errors import UserError
from glue_bench.training.inputs import Inputs


@pytest.fixture
def experiment(tiny: Callable[..., Any], make_bert: Callable[..., Path]) -> Experiment:
    return parse_experiment(tiny(checkpoint=str(make_bert())))


def change(experiment: Experiment) -> None:
    path = Path(experiment.arms[0].checkpoint) / "model.safetensors"
    save_file({name: tensor + 0.01 for name, tensor in load_file(path).items()}, path)


def test_a_checkpoint_changed_in_place_is_another_start(experiment: Experiment) -> None:
    arm = experiment.arms[0]
    first, again = Inputs(experiment), Inputs(experiment)
    digest, weights = first.start_digest(arm), first.initial(arm).weights["norm.weight"]
    assert again.start_digest(arm) == digest
    change(experiment)
    other = Inputs(experiment)
    assert other.start_digest(arm) != digest
    assert not other.initial(arm).weights["norm.weight"].equal(weights)
    # What a run has read, it goes on with.
    assert first.start_digest(arm) == digest
    assert first.initial(experiment.arms[1]).weights["norm.weight"].equal(weights)


def test_a_checkpoint_that_changes_between_plan_and_use_is_refused(experiment: Experiment) -> None:
    inputs = Inputs(experiment)
    inputs.start_digest(experiment.arms[0])
    change(experiment)
    with pytest.raises(UserError, match=r"^checkpoint '.*bert' has changed while it was in use; start again$"):
        inputs.initial(experiment.arms[0])


def test_tables_of_another_width_are_part_of_the_start_where_an_arm_has_them(tiny: Callable[..., Any]) -> None:
    """The others' start is what it was before arms had widths."""
    wide = {"name": "wide", "variant": "concat-split", "options": {"position_share": 0.2}, "embedding_size": 20}
    experiment = parse_experiment(tiny(arms=["add", wide], tasks=["cola"]))
    inputs = Inputs(experiment)
    usual, other = (inputs.start_digest(arm) for arm in experiment.arms)
    assert usual == f"scratch {experiment.scratch.model_dump_json()}"
    assert json.loads(other.removeprefix("scratch ")) == experiment.scratch.model_dump() | {"embedding_size": 20}
    add, config = (inputs.initial(arm).config for arm in experiment.arms)
    assert (add.embedding_size, config.embedding_size, config.hidden_size) == (16, 20, 16)
