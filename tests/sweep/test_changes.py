"""Why a job runs: the facts in which it differs from the nearest record, or what it lacks."""

import pytest

from glue_bench.records.store import Store

pytestmark = pytest.mark.usefixtures("small_demo")


@pytest.fixture
def why(sweep):
    """The reasons of a dry run, with their counts."""
    return lambda values: sweep(values, dry_run=True).reasons


def test_nothing_is_said_of_finished_cells(sweep, tiny, why):
    assert why(tiny()) == {"not run yet": 4}
    sweep(tiny())
    assert why(tiny()) == {}
    assert why(tiny(seeds=[1, 2])) == {"not run yet": 4}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"finetuning": {"epochs": 2}}, {"finetuning.epochs 1 -> 2": 4}),
        (
            {"finetuning": {"epochs": 2, "batch_size": 8}},
            {"finetuning.batch_size 16 -> 8, finetuning.epochs 1 -> 2": 4},
        ),
        ({"finetuning": {"tasks": {"cola": {"max_length": 16}}}}, {"finetuning.max_length 32 -> 16": 2}),
        ({"arms": ["add", {"variant": "none", "options": {"segments": "none"}}]}, {"options.segments - -> none": 2}),
    ],
    ids=str,
)
def test_an_edited_file_is_compared_with_what_is_stored(sweep, tiny, why, changes, expected):
    sweep(tiny())
    assert why(tiny(**changes)) == expected


def test_other_data_and_other_text_are_told_by_their_digests(sweep, tiny, why, small_demo):
    sweep(tiny(tasks=["cola"], scratch=None, arms=["add"]))
    small_demo(validation=20)
    ((reason, count),) = why(tiny(tasks=["cola"], scratch=None, arms=["add"])).items()
    assert count == 1
    name, before, arrow, after = reason.split()
    assert (name, arrow, len(before), len(after)) == ("data", "->", 12, 12)


def test_a_change_of_the_pretraining_is_told_of_its_cells_too(sweep, pretrained, why):
    sweep(pretrained())
    assert why(pretrained({"steps": 11})) == {"pretraining.steps 10 -> 11": 4}
    assert why(pretrained({"dropout": 0.2})) == {"pretraining.dropout - -> 0.2": 4}


def test_the_nearest_of_several_records_is_shown(sweep, tiny, why):
    for epochs in (1, 2):
        sweep(tiny(arms=["add"], tasks=["cola"], finetuning={"epochs": epochs}))
    changed = tiny(arms=["add"], tasks=["cola"], finetuning={"epochs": 2, "batch_size": 8})
    assert why(changed) == {"finetuning.batch_size 16 -> 8": 1}


def test_a_failure_is_the_reason_until_it_is_past(sweep, tiny, why, moody):
    moody(RuntimeError("out of luck"))
    values = tiny(arms=["moody"], tasks=["cola"])
    sweep(values)
    moody(None)
    assert why(values) == {"it failed: RuntimeError: out of luck": 1}
    sweep(values)
    assert why(values) == {}


def test_what_is_made_again_says_what_it_lacks(sweep, tiny, why):
    values = tiny(arms=["add"], tasks=["mnli", "rte"], finetuning={"from_mnli": ["rte"]})
    folder = sweep(values, only=["task=mnli"]).folder
    (source,) = (cell for cell in Store(folder).plan().cells if cell.task == "mnli")
    Store(folder).drop_model(source.id)
    assert why(values) == {"its weights are gone, and others start from them": 1, "not run yet": 1}
    sweep(tiny(arms=["add"], name="other"))
    assert why(tiny(arms=["add"], name="other", finetuning={"keep": "all"})) == {
        "it has left no model or no test predictions, which are asked for": 2
    }
