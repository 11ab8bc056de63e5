"""A key of an experiment file that is given as an option: the error says where it stands."""

import pytest
from typer.main import get_command

from glue_bench.cli import app
from glue_bench.config import Experiment, Finetuning, PretrainingSettings, Protocol, Resources
from glue_bench.config.experiment import ScratchEncoder

SECTIONS = {
    "": Experiment,
    "scratch": ScratchEncoder,
    "pretraining": PretrainingSettings,
    "finetuning": Finetuning,
    "protocol": Protocol,
    "resources": Resources,
}
OPTIONS = {max(option.opts, key=len) for option in get_command(app).commands["run"].params}
UNLIKE_OPTIONS: list[tuple[str, str]] = []
"""The keys of a file that are no options, spelled as one, with their places."""
for section, kind in SECTIONS.items():
    for name, field in kind.model_fields.items():
        key = field.alias or name
        option = f"--{key.replace('_', '-')}"
        if not {option, f"{option}s", option.removesuffix("s")} & OPTIONS:
            UNLIKE_OPTIONS.append((option, f"{section}.{key}".strip(".")))


@pytest.mark.parametrize(("option", "place"), UNLIKE_OPTIONS)
def test_every_setting_of_a_file_that_is_no_option_is_said_to_stand_there(refused, option, place):
    assert f"`{place}`" in refused("run", "--checkpoint", "a", option, "1")


@pytest.mark.parametrize(
    ("option", "place"),
    [("--clip-norms", "finetuning.clip_norm"), ("--validation", "pretraining.validations")],
)
def test_a_setting_that_is_all_but_its_name_is_found(refused, option, place):
    assert f"`{place}`" in refused("run", "--checkpoint", "a", option, "1")


def test_the_error_says_how_to_set_it_without_a_file(refused):
    message = refused("run", "--checkpoint", "a", "--warmup-ratio", "0.1")
    assert "--set finetuning.warmup_ratio=VALUE" in message


@pytest.mark.parametrize(
    ("option", "like"), [("--seeds", "--seed"), ("--tasks", "--task"), ("--plugins", "--plugin")]
)
def test_an_option_that_is_all_but_its_name_is_suggested(refused, option, like):
    message = refused("run", "--checkpoint", "a", option, "1")
    assert like in message
    assert "experiment file" not in message


def test_an_option_that_is_nowhere_is_refused_as_before(refused):
    assert refused("run", "--checkpoint", "a", "--colour", "red").startswith(
        "No such option: --colour"
    )
