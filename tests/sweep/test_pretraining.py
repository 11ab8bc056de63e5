"""Experiments with pretraining: checkpoints first, then cells that start from them; rates that are searched for."""

import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
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


@pytest.fixture
def id_of(pretrained):
    """The id of what the only cell starts from."""
    return lambda pretraining=(), **changes: (
        plan(pretrained(pretraining, **changes)).cells[0].pretraining
    )


def test_text_and_an_arm_change_the_id_by_their_content(id_of, small_demo, tmp_path):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text("\n".join(generate("cola")["train"]["text_a"]))
    assert len({id_of({"corpus": str(tmp_path / name)}) for name in ("here", "there")}) == 1
    ids = {
        id_of(),
        id_of(arms=["none"]),
        id_of(scratch={"hidden_size": 32}),
        id_of(scratch={"vocab_size": 150}),
    }
    ids.add(id_of(arms=[{"variant": "add", "options": {"segments": "none"}}]))
    small_demo(train=40)
    ids.add(id_of())
    assert len(ids) == 6
    other = {
        "learning_rates": [1e-5, 3e-3],
        "rate_search": {"steps": 4, "seeds": [9, 8]},
    }  # whose order says nothing
    assert id_of(SEARCH) == id_of(other) != id_of(SEARCH | {"learning_rates": [1e-5, 2e-3]})


def test_parts_of_a_batch_change_the_id_where_dropout_is_drawn_for_each_of_them(id_of):
    whole, parts, same = (
        id_of(),
        id_of({"micro_batch_tokens": 64}),
        id_of({"micro_batch_tokens": 95}),
    )
    assert whole != parts == same  # two rows of 32
    still = {"scratch": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}}
    assert id_of({"micro_batch_tokens": 64}, **still) == id_of(**still)
    assert id_of({"micro_batch_tokens": 64, "dropout": 0.0}) == id_of({"dropout": 0.0})
    assert id_of({"micro_batch_tokens": 64, "dropout": 0.1}, **still) != id_of(
        {"dropout": 0.1}, **still
    )


def test_arms_are_pretrained_and_measured_and_their_cells_start_from_that(sweep, pretrained):
    summary = sweep(pretrained(arms=["add", "none"]))
    assert (summary.planned, summary.finished, summary.failed) == (2, 2, {})
    assert sweep.ended == ["add pretraining", "none pretraining", "add cola", "none cola"]
    store, found = Store(summary.folder), records(summary)
    add, none = pretrainings(summary)
    for made in (add, none):
        model = AutoModelForMaskedLM.from_pretrained(
            store.checkpoints.at_step(made.pretraining.id, 10)
        )
        assert model.config.variant == made.pretraining.arm
        inside = {
            name: tensor
            for name, tensor in model.base.state_dict().items()
            if not name.startswith("pooler")
        }
        assert made.weights == {10: weights_digest(inside)}
        record = found[f"{made.pretraining.arm} cola"]
        assert record.started_from == made.weights[10]
        assert (record.cell.origin, record.cell.steps) == ("pretrained", 10)
        assert re.search(r"-s1-step10-[0-9a-f]{12}$", record.cell.id)
        assert [
            path.name for path in store.checkpoints.folder_of(made.pretraining.id).iterdir()
        ] == ["step-10"]
    assert [one.name for one in add.measures][:2] == ["validation_loss", "swap_1"]
    assert {one.value for one in none.measures if one.name.startswith("swap")} == {0.5}
    # The whole validation text is read here: its loss is the one of the pretraining.
    assert add.measures[0].value == pytest.approx(add.validation_loss, abs=1e-5)


def test_only_what_waiting_cells_start_from_is_pretrained_and_seeds_see_other_orders(
    sweep, pretrained
):
    values = pretrained({"seeds": [1, 2]}, arms=["add", "untied"])
    for only in (["arm=untied", "pretraining_seed=2"], ["arm=untied"]):
        sweep(values, only=only)
        assert sweep.ended == ["untied pretraining", "untied cola"]
    summary = sweep(values | {"seeds": [1, 2]})
    assert Counter(sweep.ended) == {"add pretraining": 2, "add cola": 4, "untied cola": 2}
    assert len({(each.pretraining.seed, each.stream) for each in pretrainings(summary)}) == 2


def test_grafted_arms_become_adapted_and_the_checkpoints_own_stays_pretrained(
    sweep, pretrained, make_bert
):
    bert = make_bert(texts=tuple(generate("cola")["train"]["text_a"]))
    still = {"from": "checkpoint", "learning_rates": [1e-12], "weight_decay": 0.0}
    summary = sweep(pretrained(still, checkpoint=str(bert), arms=["add", "concat"]))
    assert {record.cell.origin for record in records(summary).values()} == {"pretrained", "adapted"}
    made = pretrainings(summary)[0].pretraining
    ours = load_file(Store(summary.folder).checkpoints.at_step(made.id, 10) / "model.safetensors")
    theirs = load_file(bert / "model.safetensors")
    assert (
        theirs["embeddings.word_embeddings.weight"] - ours["base.variant.words.weight"]
    ).abs().max() < 1e-8


def test_each_arm_is_pretrained_at_the_rate_of_its_lowest_mean_loss_and_diverging_is_worst(
    sweep, pretrained
):
    search = SEARCH | {"learning_rates": [1e-8, 1e-9, 100.0], "weight_decay": 1e6}
    arms = ["add", {"variant": "none", "pretraining_rate": 2e-9}]
    summary = sweep(pretrained(search | {"seeds": [1, 2]}, arms=arms))
    assert (summary.finished, summary.failed) == (4, {})
    own = [each for each in pretrainings(summary) if each.pretraining.arm == "none"]
    assert [each.pretraining.learning_rate for each in own] == [
        2e-9,
        2e-9,
    ]  # a rate of its own is not searched for
    made = [each for each in pretrainings(summary) if each.pretraining.arm == "add"]
    runs, wanted = (
        [each for each in made if each.pretraining.is_search == kind] for kind in (True, False)
    )
    assert (len(runs), len(wanted)) == (6, 2)
    of_rate = {
        rate: [run for run in runs if run.pretraining.learning_rate == rate]
        for rate in (1e-8, 1e-9, 100)
    }
    assert {(run.validation_loss, run.tokens > 0) for run in of_rate.pop(100)} == {
        (None, True)
    }  # what it cost
    losses = {rate: sum(run.validation_loss for run in some) / 2 for rate, some in of_rate.items()}
    for each in wanted:
        assert {*each.pretraining.searches} == {run.pretraining.id for run in runs}
        assert each.pretraining.rate == min(losses, key=losses.get)
    assert {run.steps for run in runs if run.validation_loss} == {4}
    kept = {path.parent.name for path in summary.folder.glob("checkpoints/*/*")}
    assert kept == {each.pretraining.id for each in (*wanted, *own)}
    sweep(pretrained(search | {"seeds": [1, 2, 3]}, arms=arms), only=["arm=add"])
    assert sweep.ended == ["add pretraining", "add cola"]  # the search is not made again


def test_a_record_that_is_gone_is_made_again_and_weights_that_nobody_needs_are_not(
    sweep, pretrained, why, moody
):
    values = pretrained(
        SEARCH, arms=["moody", "none"], finetuning={"predict": ["validation", "test"]}
    )
    summary = sweep(values)
    shutil.rmtree(summary.folder / "checkpoints")
    assert why(values) == {}
    before = [(each.pretraining, each.weights) for each in pretrainings(summary)]
    (lost,) = [job for job, _ in before if job.arm == "moody" and job.searches]
    shutil.rmtree(summary.folder / "pretrainings" / lost.id)
    (summary.folder / "pretrainings" / lost.searches[0] / "record.json").write_text("{}")
    assert sweep(values, only=["arm=none"]).pretrainings == 0
    assert why(values) == {
        "its record is gone, and finished runs started from it": 1,
        "its record is damaged": 1,
    }
    for moody.side_effect in (RuntimeError("out of luck"), None):
        assert sweep(values).skipped == 2
        assert sweep.ended == ["moody pretraining"] * 2
    assert (
        "moody is pretrained again: it has no whole record; finished cells that started from it: 1"
        in sweep.said
    )
    assert [(each.pretraining, each.weights) for each in pretrainings(summary)] == before


def test_positions_that_pretraining_has_killed_fail_its_cells(sweep, pretrained):
    settings = {
        "learning_rates": [1.0],
        "weight_decay": 1.0,
        "warmup_ratio": 0.0,
        "schedule": "trapezoid",
    }
    summary = sweep(
        pretrained(settings | {"decay_share": 0.01, "clip_norm": 1e-30, "adam_epsilon": 1e9})
    )
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


def test_a_state_of_another_precision_fails_its_arm_and_a_damaged_one_all(
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


def test_checkpoints_wanted_later_or_lost_are_made_with_the_same_weights_and_damage_is_named(
    sweep, pretrained, why
):
    (before,) = pretrainings(sweep(pretrained()))
    assert why(pretrained({"steps": 11})) == {"pretraining.steps 10 -> 11": 2}
    assert why(pretrained({"dropout": 0.2})) == {"pretraining.dropout - -> 0.2": 2}
    values = pretrained({"checkpoints": [6, 3], "finetune_checkpoints": True})
    summary = sweep(values)
    assert (summary.skipped, summary.finished) == (1, 2)
    assert (
        "add is pretrained again: its weights are gone; finished cells that started from it: 1"
        in sweep.said
    )
    store, (made,) = Store(summary.folder), pretrainings(summary)
    assert made.weights[10] == before.weights[10]
    cells = store.finished(store.plan()).records.values()
    assert {record.cell.steps: record.started_from for record in cells} == made.weights
    assert len({*made.weights.values()}) == 3
    first, last = (store.checkpoints.at_step(made.pretraining.id, step) for step in (3, 10))
    edit_weights(last, lambda weights: weights["base.norm.weight"][0].add_(1e-6))
    for dry_run in (True, False):
        with pytest.raises(
            UserError, match=f"^'{last}' is damaged: its weights are not those of its record"
        ):
            sweep(values | {"seeds": [1, 2]}, dry_run=dry_run)
    shutil.rmtree(last)
    (first / "weights.digest").write_text(
        "0" * 64
    )  # as if a run that made it anew elsewhere had been cut off
    more = pretrained(
        {"checkpoints": [6, 3], "finetune_checkpoints": True, "validations": 4}, seeds=[1, 2]
    )
    assert sweep(more, only=["steps=3"]).finished == 1
    assert sweep.ended == ["add pretraining", "add cola"]
    assert [one.weights for one in pretrainings(summary)] == [made.weights]
    assert all(store.checkpoints.has(made.pretraining.id, *each) for each in made.weights.items())
