"""Runs on disk as outcomes: which are read, and what is said of those that cannot be compared."""

from itertools import product

import numpy as np
import pytest
from helpers.simulated import REGIMES, fill_drawn, simulate
from helpers.stored import ROWS, history_of

from glue_bench.board.board import open_board
from glue_bench.board.column_runs import NO_LABELS, OTHER_EPOCH, OTHER_PIECES
from glue_bench.board.compare import compare, leaderboard_frame
from glue_bench.board.results import read_results

RATES = {"low": 0.6, "high": 0.9, "higher": 0.9}


def drawn(columns):
    regime = REGIMES["mostly examples"]
    return simulate(np.random.default_rng(5), columns=columns, rates=RATES, seeds=2, regime=regime)


def fill(bench, columns=("sst2",)):
    """An experiment's folder with predictions."""
    for outcomes in drawn(columns):
        fill_drawn(bench, outcomes)
    return bench.plan()


def compared(path):
    return compare(open_board(path))


def test_what_cannot_be_compared_says_why_and_concerns_its_arm_alone(bench):
    """Diverged or missing predictions, a score of an earlier epoch than the last, no labels."""
    cell, column = "higher-sst2-lr2e-05-s1", ["sst2"]

    def whys():
        frame = compared(bench.path).contrasts_of("reference")
        assert frame["difference"].notna().all()
        return frame[frame["column"].isin(column)].set_index("arm")["why"].to_dict()

    fill(bench)
    bench.predict(cell, {"validation": np.full_like(bench.logits[cell]["validation"], np.nan)})
    for name, (_, facts) in bench.runs.items():
        last = facts["scores"]["validation"]["accuracy"]
        values = [last + 0.01 if name == "high-sst2-lr2e-05-s1" else last - 0.01, last]
        facts["history"] = history_of("validation", "accuracy", *values)
    bench.plan()
    diverged = "a run has diverged, or predicted another number of rows (higher)"
    assert whys() == {"high": "", "higher": diverged}
    bench.plan(config={"protocol": {"epoch": "best"}})
    assert whys() == {"high": f"{OTHER_EPOCH} (high)", "higher": diverged}
    bench.file(cell, "logits.safetensors").unlink()
    assert whys()["higher"].startswith(
        f"cells/{cell}/logits.safetensors: cannot be read (No such file"
    )
    next((bench.path / "labels").iterdir()).unlink()
    assert all(why.startswith(NO_LABELS) for why in whys().values())


def measured(bench, counts):
    """Arms and seeds of their pretraining -> counts of pieces; `high` loses less than `low` on each."""
    fill(bench)
    generator = np.random.default_rng(0)
    piece = generator.normal(2000, 200, size=300)
    for (arm, seed), count in counts.items():
        loss = (piece - (100 if arm == "high" else 0) + generator.normal(0, 5, 300))[: len(count)]
        hits = np.round(count * (0.9 if arm == "high" else 0.5))
        sums = {"validation_loss": np.stack([loss, count]), "swap_1": np.stack([hits, count])}
        bench.pretrain(arm, seed, sums=sums)
    bench.plan()
    return compared(bench.path)


def test_measures_of_pretraining_are_columns_of_the_same_kind(bench):
    found = measured(
        bench, {(arm, seed): np.full(300, 500.0) for arm in ("low", "high") for seed in (1, 2, 3)}
    )
    rows = found.contrasts_of("reference").set_index(["column", "arm"])
    assert list(found.contrasts["column"].unique()) == ["sst2", "validation_loss", "swap_1"]
    loss, swap = rows.loc[("validation_loss", "high")], rows.loc[("swap_1", "high")]
    assert loss["difference"] == pytest.approx(-0.2, abs=0.01)
    assert swap["difference"] == pytest.approx(40.0)
    assert (loss["verdict"], swap["verdict"], loss["seeds"]) == ("better", "better", "pretraining")
    assert rows.loc[("validation_loss", "higher"), "why"] == "no finished run (higher)"
    frame = leaderboard_frame(found).set_index("arm")
    assert frame["validation_loss"]["low"] - frame["validation_loss"]["high"] == pytest.approx(
        0.2, abs=0.01
    )
    assert set(frame["validation_loss_std"].dropna().index) == {"low", "high"}
    assert rows.loc[("sst2", "high"), "seeds"] == "fine-tuning"


def test_one_pretraining_and_other_pieces_have_no_verdict(bench):
    other = measured(
        bench,
        {
            (arm, n): np.full(300 - 100 * (arm == "high"), 500.0)
            for arm in ("low", "high")
            for n in (1, 2)
        },
    )
    assert (
        other.contrasts_of("reference").set_index(["column", "arm"])["why"]["swap_1", "high"]
        == f"{OTHER_PIECES} (high)"
    )
    assert leaderboard_frame(other)["validation_loss_std"].isna().all()  # two seeds tell too little
    for arm in ("low", "high"):
        del bench.pretrained[f"{arm}-2"]
    bench.plan()
    assert set(
        compared(bench.path).contrasts_of("reference").query("column == 'swap_1'")["verdict"]
    ) == {""}


def test_the_loss_of_all_validation_text_comes_first_and_pieces_of_one_document_are_no_independent_examples(
    new_bench,
):
    """In each document the difference is another one, the same in all of its pieces."""
    rows, seeds = [], [(arm, seed) for arm in ("low", "high") for seed in (1, 2)]
    for documents in (
        np.repeat(np.arange(24), 1),
        np.repeat(np.arange(24), 8),
        np.zeros(7, np.int64),
    ):
        bench, pieces = new_bench(f"{len(documents)}"), len(documents)
        measured(bench, dict.fromkeys(seeds, np.full(300, 500.0)))
        for arm, seed in seeds:
            own = (arm == "high") * (1 + 0.3 * np.sin(documents)) + 0.01 * seed * np.arange(
                pieces
            ) / pieces
            losses = {
                "loss_sum": np.linspace(1.0, 3.0, pieces) + own,
                "count": np.ones(pieces, np.int64),
            }
            bench.pretrain(arm, seed, pieces=losses | {"document": documents})
        bench.plan()
        rows.append(
            compared(bench.path)
            .contrasts_of("reference")
            .set_index(["column", "arm"])
            .loc[("validation_loss", "high")]
        )
    assert rows[1]["error"] == pytest.approx(rows[0]["error"], rel=0.1)
    assert rows[2]["difference"] == pytest.approx(1.0)


def test_a_converted_arm_is_in_the_group_of_its_source_alone(bench):
    """By hand: two of four grafted arms start from the checkpoint that `add` has, and two from one that no arm has."""
    scores = {
        "add": (0.80, 0.84),
        "u-1": (0.70, 0.72),
        "u-2": (0.75, 0.76),
        "v-1": (0.60, 0.70),
        "v-2": (0.61, 0.63),
    }
    for arm, values in scores.items():
        for seed, value in enumerate(values, 1):
            bench.finish(
                "rte", seed, value, arm=arm, origin="pretrained" if arm == "add" else "grafted"
            )
            said = np.arange(ROWS) < value * ROWS
            bench.predict(
                bench.cells[-1]["cell_id"], {"validation": np.stack([~said, said], axis=1)}
            )
    bench.label("rte", {"validation": np.ones(ROWS, int)})
    arms = [{"name": arm, "checkpoint": "other" if arm[0] == "v" else "bert"} for arm in scores]
    found = compared(bench.plan(config={"arms": arms}))
    assert {(one.kind, one.reference): set(one.arms) for one in found.assessed} == {
        ("reference", "add"): {"add"},
        ("conversion", "add"): {"add", "u-1", "u-2"},
        ("reference", "v-1"): {"v-1", "v-2"},
    }
    contrasts = found.contrasts.set_index("arm")
    assert contrasts["kind"].to_dict() == {
        "v-2": "reference",
        "u-1": "conversion",
        "u-2": "conversion",
    }
    assert set(contrasts["origin"]) == {"grafted"}
    # Of two seeds an arm's variance is half its squared range; pooled over the group's arms, of one degree each.
    spreads = {
        (one.kind, one.reference): one.estimates[0].spreads[0].pooled for one in found.assessed
    }
    assert spreads["conversion", "add"] == pytest.approx((4**2 + 2**2 + 1**2) / 6)
    assert spreads["reference", "v-1"] == pytest.approx((10**2 + 2**2) / 4)


def test_converted_arms_are_compared_with_the_reference_of_those_that_share_their_start(bench):
    """Of the two that were pretrained so the second one is additive; one arm is grafted, one adapted."""
    origins = {"w": "pretrained", "add": "pretrained", "u": "grafted", "v": "adapted"}
    for (arm, origin), value in zip(origins.items(), (0.9, 0.8, 0.7, 0.6), strict=True):
        bench.finish("rte", 1, value, arm=arm, origin=origin)
    arms = [{"name": arm, "checkpoint": "bert"} for arm in origins]
    assessed = compared(bench.plan(config={"arms": arms})).assessed
    groups = {(one.kind, one.reference, *sorted(one.arms)) for one in assessed}
    assert groups == {("reference", "add", "add", "w"), ("conversion", "add", "add", "u", "v")}


def test_the_reference_that_is_named_is_that_of_its_own_block_and_others_have_their_own(bench):
    origins = {"add": "pretrained", "w": "pretrained", "x": "scratch", "y": "scratch"}
    for arm, origin in origins.items():
        bench.finish("rte", 1, 0.5, arm=arm, origin=origin)
    assessed = compared(bench.plan(config={"protocol": {"reference": "w"}})).assessed
    assert {frozenset(one.arms): one.reference for one in assessed} == {
        frozenset({"add", "w"}): "w",
        frozenset({"x", "y"}): "x",
    }


def measured_by_hand(bench, nats, counts):
    """Pretrainings whose documents have these nats (arm, seed -> documents) and these `counts`."""
    for (arm, seed), of_documents in nats.items():
        bench.finish("rte", seed, 0.5, arm=arm)
        own = counts.get((arm, seed), counts["all"])
        pieces = {
            "loss_sum": np.array(of_documents) * own,
            "count": own,
            "document": np.arange(len(own)),
        }
        bench.pretrain(arm, seed, pieces=pieces)
    return compared(bench.plan())


def test_a_loss_weighs_documents_by_their_tokens_and_spreads_over_pretrainings_by_hand(bench):
    counts = np.array([10, 400, 90, 100, 100, 100, 100])
    nats = {}
    for arm, seed in product(("add", "none"), (1, 2, 3)):
        level = 2.0 + 0.1 * seed**2 + 0.3 * (arm == "none")
        nats[arm, seed] = [level + 1.0, level, level - 0.5, level, level, level, level]
    frame = leaderboard_frame(measured_by_hand(bench, nats, {"all": counts})).set_index("arm")
    shift = (1.0 * 10 - 0.5 * 90) / 900
    levels = np.array([2.1, 2.4, 2.9])
    assert frame["validation_loss"]["add"] == pytest.approx(levels.mean() + shift)
    assert frame["validation_loss"]["none"] == pytest.approx(levels.mean() + 0.3 + shift)
    assert frame["validation_loss_std"]["add"] == pytest.approx(np.std(levels, ddof=1))


def test_as_many_pieces_of_other_lengths_are_other_pieces(bench):
    counts = {"all": np.full(6, 50), ("none", 2): np.array([50, 50, 50, 50, 40, 60])}
    nats = {
        (arm, seed): [2.0 + 0.1 * seed] * 6
        for arm, seed in product(("add", "none", "untied"), (1, 2))
    }
    frame = measured_by_hand(bench, nats, counts).contrasts_of("reference")
    whys = frame[frame["column"] == "validation_loss"].set_index("arm")["why"].to_dict()
    assert whys == {"none": f"{OTHER_PIECES} (none)", "untied": ""}


@pytest.mark.parametrize(("longest", "pieces"), [(10, 6), (10_000, 12)])
def test_documents_of_which_one_has_nearly_all_tokens_are_too_few(bench, longest, pieces):
    """Six documents of two pieces each: by their tokens they are about six, or about one."""
    count = np.full(12, 10)
    count[:2] = longest
    losses = {"loss_sum": 2.0 * count, "count": count, "document": np.repeat(np.arange(6), 2)}
    bench.finish("rte")
    bench.pretrain("add", pieces=losses)
    sums = read_results(bench.plan()).sums(
        next(iter(read_results(bench.path).finished.pretrainings))
    )
    assert sums["validation_loss"].shape == (2, pieces)


def test_an_earlier_epoch_concerns_the_arms_that_report_one(bench):
    """Three arms, of which one has its best epoch before the last in the second of its seeds."""
    for arm, seed in product(("add", "none", "untied"), (1, 2)):
        early = (arm, seed) == ("none", 2)
        facts = {"history": history_of("validation", "accuracy", 0.6 if early else 0.4, 0.5)}
        cell = bench.expect("rte", seed, arm=arm)
        bench.record(cell, 0.5, **facts)
        said = np.arange(ROWS) < ROWS // 2 + 3 * seed
        bench.predict(cell["cell_id"], {"validation": np.stack([~said, said], axis=1)})
    bench.label("rte", {"validation": np.ones(ROWS, int)})
    frame = compared(bench.plan(config={"protocol": {"epoch": "best"}})).contrasts_of("reference")
    assert frame.set_index("arm")["why"].to_dict() == {
        "none": f"{OTHER_EPOCH} (none)",
        "untied": "",
    }


def test_the_average_of_contrasts_is_over_the_columns_of_the_boards_average(bench):
    """By hand: without WNLI, whatever it says."""
    right = {"rte": (200, 240), "cola": (300, 280), "wnli": (400, 0)}
    for task, by_arm in right.items():
        for arm, count in zip(("add", "none"), by_arm, strict=True):
            for seed in (1, 2):
                cell = bench.expect(task, seed, arm=arm)
                bench.record(cell, (count - seed) / ROWS)
                said = np.arange(ROWS) < max(count - seed, 0)
                bench.predict(cell["cell_id"], {"validation": np.stack([~said, said], axis=1)})
        bench.label(task, {"validation": np.where(np.arange(ROWS) % 9, 1, 0)})
    frame = compared(bench.plan()).contrasts_of("reference").set_index("column")["difference"]
    assert frame["average"] == pytest.approx((frame["rte"] + frame["cola"]) / 2)
    assert frame["wnli"] < -90


def test_measures_of_two_blocks_stand_in_one_frame(bench):
    """Arms from scratch are compared among themselves, and have their own losses beside those of others."""
    count, levels = np.full(6, 50), {"add": 2.0, "none": 2.5, "x": 3.0, "y": 3.5}
    for arm, level in levels.items():
        bench.finish("rte", 1, 0.5, arm=arm, origin="scratch" if arm in "xy" else "pretrained")
        for seed in (1, 2):
            bench.pretrain(
                arm,
                seed,
                pieces={"loss_sum": level * count, "count": count, "document": np.arange(6)},
            )
    frame = leaderboard_frame(compared(bench.plan())).set_index("arm")
    assert frame["validation_loss"].dropna().to_dict() == pytest.approx(levels)
