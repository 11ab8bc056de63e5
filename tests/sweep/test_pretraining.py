"""Experiments with pretraining: checkpoints, cells that start from them, and rate searches."""

import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from helpers.small_data import few_rows
from helpers.tiny_models import edit_weights
from helpers.tiny_runs import plan, pretrainings, records
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM

from glue_bench.data.demo import generate
from glue_bench.errors import UserError
from glue_bench.model.start import weights_digest
from glue_bench.model.variants import VARIANTS
from glue_bench.records.store import Store
from glue_bench.training import pretrain as training

pytestmark = pytest.mark.usefixtures("small_demo")
SEARCH = {"learning_rates": [3e-3, 1e-5], "rate_search": {"steps": 4, "seeds": [8, 9]}}


ANOTHER_START = {
    "another arm": {"arms": ["none"]},
    "another width": {"scratch": {"hidden_size": 32}},
    "another vocabulary": {"scratch": {"vocab_size": 150}},
    "no segments": {"arms": [{"variant": "add", "options": {"segments": "none"}}]},
}


@pytest.fixture
def id_of(pretrained):
    """Return a function that gives the id of the pretraining behind the only cell."""

    def first_id(pretraining=(), **changes) -> str:
        return plan(pretrained(pretraining, **changes)).cells[0].pretraining

    return first_id


def test_the_folder_of_a_text_does_not_change_the_id(id_of, tmp_path):
    ids = set()
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text("\n".join(generate("cola")["train"]["text_a"]))
        ids.add(id_of({"corpus": str(tmp_path / name)}))
    assert len(ids) == 1


@pytest.mark.parametrize("change", ANOTHER_START)
def test_another_arm_changes_the_id(id_of, change):
    assert id_of(**ANOTHER_START[change]) != id_of()


def test_another_text_changes_the_id(id_of, small_demo):
    before = id_of()
    small_demo(train=40)
    assert id_of() != before


def test_the_order_of_rates_and_seeds_of_a_search_does_not_change_the_id(id_of):
    reordered = {
        "learning_rates": [1e-5, 3e-3],
        "rate_search": {"steps": 4, "seeds": [9, 8]},
    }
    assert id_of(reordered) == id_of(SEARCH)
    assert id_of(SEARCH | {"learning_rates": [1e-5, 2e-3]}) != id_of(SEARCH)


PARTS = {"micro_batch_tokens": 64}
NO_DROPOUT = {"scratch": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}}


def test_parts_of_a_batch_change_the_id_where_dropout_is_drawn_for_each_of_them(id_of):
    assert id_of(PARTS) != id_of()
    assert id_of({"dropout": 0.1} | PARTS, **NO_DROPOUT) != id_of({"dropout": 0.1}, **NO_DROPOUT)


def test_parts_of_the_same_rows_have_one_id(id_of):
    """Either number of tokens has room for two rows of 32 tokens."""
    assert id_of({"micro_batch_tokens": 95}) == id_of(PARTS)


def test_parts_of_a_batch_do_not_change_the_id_without_dropout(id_of):
    assert id_of(PARTS, **NO_DROPOUT) == id_of(**NO_DROPOUT)
    assert id_of({"dropout": 0.0} | PARTS) == id_of({"dropout": 0.0})


@pytest.fixture(scope="module")
def two_arms(new_sweep, pretrained, tmp_path_factory):
    """Run an experiment that pretrains two arms; `ended` are its jobs in their order."""
    sweep = new_sweep(tmp_path_factory.mktemp("two_arms") / "runs")
    with few_rows():
        summary = sweep(pretrained(arms=["add", "none"]))
    return SimpleNamespace(summary=summary, ended=sweep.ended)


def model_of(summary, pretraining):
    """Load the last checkpoint of a pretraining with transformers."""
    checkpoint = Store(summary.folder).checkpoints.at_step(pretraining.id, 10)
    return AutoModelForMaskedLM.from_pretrained(checkpoint)


def test_arms_are_pretrained_before_their_cells(two_arms):
    expected = ["add pretraining", "none pretraining", "add cola", "none cola"]
    assert two_arms.ended == expected
    assert two_arms.summary.finished == two_arms.summary.planned == 2


def test_a_checkpoint_has_the_variant_of_its_arm(two_arms):
    for record in pretrainings(two_arms.summary):
        model = model_of(two_arms.summary, record.pretraining)
        assert model.config.variant == record.pretraining.arm


def test_a_checkpoint_has_the_weights_that_its_record_names(two_arms):
    """The pooler is not among them, since pretraining does not use it."""
    for record in pretrainings(two_arms.summary):
        weights = model_of(two_arms.summary, record.pretraining).base.state_dict()
        for name in [name for name in weights if name.startswith("pooler")]:
            del weights[name]
        assert record.weights == {10: weights_digest(weights)}


def test_a_cell_starts_from_the_last_weights_of_its_arm(two_arms):
    cells = records(two_arms.summary)
    for record in pretrainings(two_arms.summary):
        arm = record.pretraining.arm
        assert cells[f"{arm} cola"].started_from == record.weights[10]


def test_a_cell_of_a_pretrained_arm_names_its_origin_and_step(two_arms):
    for record in records(two_arms.summary).values():
        assert record.cell.origin == "pretrained"
        assert record.cell.steps == 10
        assert re.search(r"-s1-step10-[0-9a-f]{12}$", record.cell.id)


def test_only_the_last_checkpoint_of_a_pretraining_stays(two_arms):
    checkpoints = Store(two_arms.summary.folder).checkpoints
    for record in pretrainings(two_arms.summary):
        folder = checkpoints.folder_of(record.pretraining.id)
        assert [path.name for path in folder.iterdir()] == ["step-10"]


def test_an_arm_is_measured_after_its_pretraining(two_arms):
    for record in pretrainings(two_arms.summary):
        names = [measure.name for measure in record.measures]
        assert names[:2] == ["validation_loss", "swap_1"]


def test_an_arm_without_positions_does_not_tell_swapped_texts_apart(two_arms):
    _, none = pretrainings(two_arms.summary)
    swaps = [measure.value for measure in none.measures if measure.name.startswith("swap")]
    assert set(swaps) == {0.5}


def test_the_measured_loss_is_that_of_the_pretraining(two_arms):
    """The whole validation text is read here."""
    add, _ = pretrainings(two_arms.summary)
    assert add.measures[0].value == pytest.approx(add.validation_loss, abs=1e-5)


def test_only_pretrainings_of_waiting_cells_run_and_each_seed_has_its_own_order(sweep, pretrained):
    values = pretrained({"seeds": [1, 2]}, arms=["add", "untied"])
    for only in (["arm=untied", "pretraining_seed=2"], ["arm=untied"]):
        sweep(values, only=only)
        assert sweep.ended == ["untied pretraining", "untied cola"]
    summary = sweep(values | {"seeds": [1, 2]})
    expected = {"add pretraining": 2, "add cola": 4, "untied cola": 2}
    assert Counter(sweep.ended) == expected
    orders = {(record.pretraining.seed, record.stream) for record in pretrainings(summary)}
    assert len(orders) == 2


def test_pretraining_makes_a_grafted_arm_adapted_and_keeps_an_additive_arm_pretrained(
    sweep, pretrained, make_bert
):
    bert = make_bert(texts=tuple(generate("cola")["train"]["text_a"]))
    gentle = {"from": "checkpoint", "learning_rates": [1e-12], "weight_decay": 0.0}
    summary = sweep(pretrained(gentle, checkpoint=str(bert), arms=["add", "concat"]))
    assert {record.cell.origin for record in records(summary).values()} == {"pretrained", "adapted"}
    job = pretrainings(summary)[0].pretraining
    checkpoint = Store(summary.folder).checkpoints.at_step(job.id, 10)
    after = load_file(checkpoint / "model.safetensors")["base.variant.words.weight"]
    before = load_file(bert / "model.safetensors")["embeddings.word_embeddings.weight"]
    assert (before - after).abs().max() < 1e-8


WILD_SEARCH = SEARCH | {"learning_rates": [1e-8, 1e-9, 100.0], "weight_decay": 1e6, "seeds": [1, 2]}
"""At the largest of these rates training diverges."""
WILD_ARMS = ["add", {"variant": "none", "pretraining_rate": 2e-9}]


@pytest.fixture(scope="module")
def searched(new_sweep, pretrained, tmp_path_factory):
    """Run a search for the rate of one arm, beside an arm with a rate of its own."""
    sweep = new_sweep(tmp_path_factory.mktemp("searched") / "runs")
    with few_rows():
        summary = sweep(pretrained(WILD_SEARCH, arms=WILD_ARMS))
    assert summary.finished == 4
    assert summary.failed == {}
    return summary


def pretrainings_of(summary, arm: str, *, is_search: bool = False) -> list:
    """Return the records of an arm's pretrainings, or of the runs of its rate search."""
    of_arm = [record for record in pretrainings(summary) if record.pretraining.arm == arm]
    return [record for record in of_arm if record.pretraining.is_search == is_search]


def test_an_arm_with_a_rate_of_its_own_has_no_rate_search(searched):
    rates = [record.pretraining.learning_rate for record in pretrainings_of(searched, "none")]
    assert rates == [2e-9, 2e-9]
    assert pretrainings_of(searched, "none", is_search=True) == []


def test_each_arm_is_pretrained_at_the_rate_of_its_lowest_mean_loss(searched):
    runs = pretrainings_of(searched, "add", is_search=True)
    assert len(runs) == 6
    losses = Counter()
    for run in runs:
        if run.validation_loss:
            assert run.steps == 4
            losses[run.pretraining.learning_rate] += run.validation_loss / 2
    chosen = pretrainings_of(searched, "add")
    assert len(chosen) == 2
    for record in chosen:
        assert {*record.pretraining.searches} == {run.pretraining.id for run in runs}
        assert record.pretraining.rate == min(losses, key=losses.get)


def test_a_diverged_run_has_a_record_with_its_cost(searched):
    runs = pretrainings_of(searched, "add", is_search=True)
    diverged = [run for run in runs if run.pretraining.learning_rate == 100]
    assert len(diverged) == 2
    for run in diverged:
        assert run.validation_loss is None
        assert run.tokens > 0


def test_runs_of_a_search_keep_no_weights(searched):
    kept = {path.parent.name for path in searched.folder.glob("checkpoints/*/*")}
    chosen = [*pretrainings_of(searched, "add"), *pretrainings_of(searched, "none")]
    assert kept == {record.pretraining.id for record in chosen}


def test_a_search_is_not_made_again_for_another_seed(sweep, pretrained, searched, tmp_path):
    assert searched.pretrainings == 10
    shutil.copytree(searched.folder, tmp_path / "runs" / searched.folder.name)
    sweep(pretrained(WILD_SEARCH | {"seeds": [1, 2, 3]}, arms=WILD_ARMS), only=["arm=add"])
    assert sweep.ended == ["add pretraining", "add cola"]


def test_a_lost_record_is_made_again_and_unneeded_weights_are_not(
    sweep, pretrained, reasons_of, moody
):
    predicting = {"predict": ["validation", "test"]}
    values = pretrained(SEARCH, arms=["moody", "none"], finetuning=predicting)
    summary = sweep(values)

    shutil.rmtree(summary.folder / "checkpoints")
    assert reasons_of(values) == {}

    before = [(record.pretraining, record.weights) for record in pretrainings(summary)]
    (lost,) = [job for job, _ in before if job.arm == "moody" and job.searches]
    shutil.rmtree(summary.folder / "pretrainings" / lost.id)
    (summary.folder / "pretrainings" / lost.searches[0] / "record.json").write_text("{}")

    assert sweep(values, only=["arm=none"]).pretrainings == 0
    assert reasons_of(values) == {
        "its record is gone, and finished runs started from it": 1,
        "its record is damaged": 1,
    }

    for moody.side_effect in (RuntimeError("out of luck"), None):
        assert sweep(values).skipped == 2
        assert sweep.ended == ["moody pretraining"] * 2
    cause = "moody is pretrained again: it has no whole record"
    assert f"{cause}; finished cells that started from it: 1" in sweep.said

    after = [(record.pretraining, record.weights) for record in pretrainings(summary)]
    assert after == before


def test_cells_fail_if_pretraining_left_a_dead_position(sweep, pretrained):
    settings = {
        "learning_rates": [1.0],
        "weight_decay": 1.0,
        "warmup_ratio": 0.0,
        "schedule": "trapezoid",
        "decay_share": 0.01,
        "clip_norm": 1e-30,
        "adam_epsilon": 1e9,
    }
    summary = sweep(pretrained(settings))
    (error,) = summary.failed.values()
    assert re.match(r"arm 'add' \(variant 'add' from '.*position is dead", error)


def test_a_measure_that_cannot_be_taken_fails_its_pretraining_by_name(
    sweep, pretrained, monkeypatch
):
    class Unmeasured(VARIANTS["add"]):
        @contextmanager
        def starting_at(self, start: int) -> Iterator[None]:
            if start:
                raise RuntimeError("no room")
            with super().starting_at(start):
                yield

    monkeypatch.setitem(VARIANTS, "unmeasured", Unmeasured)
    summary = sweep(pretrained(arms=["unmeasured"]))
    assert [*summary.failed.values()] == ["RuntimeError in pretraining: no room"]


def test_a_saved_state_of_another_precision_fails_one_arm_and_a_damaged_one_the_run(
    sweep, pretrained, moody, monkeypatch
):
    monkeypatch.setattr(training, "SAVE_SECONDS", 0)
    moody.side_effect = [None, KeyboardInterrupt()]
    values = pretrained(arms=["moody", "none"])
    (state,) = sweep(values, precision="bf16").folder.glob("checkpoints/*/resume.pt")
    moody.side_effect = None
    summary = sweep(values)
    assert summary.finished == 1
    (error,) = summary.failed.values()
    assert "give --device cpu --precision bf16, or delete it to start this arm anew" in error
    state.write_bytes(state.read_bytes()[:-30])
    with pytest.raises(UserError, match=r"resume.pt' \(.*\); delete it to start this arm anew"):
        sweep(values, dry_run=True)


def test_a_change_of_the_pretraining_is_the_reason_of_a_dry_run(sweep, pretrained, reasons_of):
    sweep(pretrained())
    assert reasons_of(pretrained({"steps": 11})) == {"pretraining.steps 10 -> 11": 2}
    assert reasons_of(pretrained({"dropout": 0.2})) == {"pretraining.dropout - -> 0.2": 2}


TWO_MORE = {"checkpoints": [6, 3], "finetune_checkpoints": True}


@pytest.fixture
def with_checkpoints(sweep, pretrained):
    """Run an experiment with one checkpoint, and then with two more checkpoints."""
    sweep(pretrained())
    return sweep(pretrained(TWO_MORE))


def finished_cells(summary) -> list:
    store = Store(summary.folder)
    return [*store.finished(store.plan()).records.values()]


def test_checkpoints_asked_for_later_are_made_with_the_same_weights(sweep, pretrained):
    (before,) = pretrainings(sweep(pretrained()))
    summary = sweep(pretrained(TWO_MORE))
    assert summary.skipped == 1
    assert summary.finished == 2
    cause = "add is pretrained again: its weights are gone"
    assert f"{cause}; finished cells that started from it: 1" in sweep.said
    (record,) = pretrainings(summary)
    assert record.weights[10] == before.weights[10]
    assert len({*record.weights.values()}) == 3
    starts = {cell.cell.steps: cell.started_from for cell in finished_cells(summary)}
    assert starts == record.weights


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_checkpoint_with_other_weights_than_its_record_is_refused(
    sweep, pretrained, with_checkpoints, dry_run
):
    (record,) = pretrainings(with_checkpoints)
    checkpoints = Store(with_checkpoints.folder).checkpoints
    last = checkpoints.at_step(record.pretraining.id, 10)
    edit_weights(last, lambda weights: weights["base.norm.weight"][0].add_(1e-6))
    fault = f"^'{last}' is damaged: its weights are not those of its record"
    with pytest.raises(UserError, match=fault):
        sweep(pretrained(TWO_MORE, seeds=[1, 2]), dry_run=dry_run)


def test_lost_checkpoints_are_made_again_with_the_same_weights(sweep, pretrained, with_checkpoints):
    (record,) = pretrainings(with_checkpoints)
    checkpoints = Store(with_checkpoints.folder).checkpoints
    job_id = record.pretraining.id
    shutil.rmtree(checkpoints.at_step(job_id, 10))
    # As if a run was interrupted after it had made the checkpoint of step 3 anew elsewhere.
    (checkpoints.at_step(job_id, 3) / "weights.digest").write_text("0" * 64)
    values = pretrained(TWO_MORE | {"validations": 4}, seeds=[1, 2])
    assert sweep(values, only=["steps=3"]).finished == 1
    assert sweep.ended == ["add pretraining", "add cola"]
    (after,) = pretrainings(with_checkpoints)
    assert after.weights == record.weights
    for step, digest in after.weights.items():
        assert checkpoints.has(job_id, step, digest)
