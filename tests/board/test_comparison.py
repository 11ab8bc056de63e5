"""Runs on disk as arrays: which runs are read, and why some cannot be compared."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from helpers.simulated import REGIMES, fill_drawn, simulate
from helpers.stored import ROWS, history_of

from glue_bench.board.board import open_board
from glue_bench.board.column_runs import NO_LABELS, OTHER_EPOCH, OTHER_PIECES
from glue_bench.board.compare import Comparison, compare, open_comparison
from glue_bench.board.leaderboard import make_leaderboard
from glue_bench.board.results import read_results

ACCURACIES = {"low": 0.6, "high": 0.9, "higher": 0.9}
HIGHER_RUN = "higher-sst2-lr2e-05-s1"
DIVERGED_REASON = "a run has diverged, or predicted another number of rows (higher)"


def fill(bench):
    """Return an experiment's folder with runs of SST-2 and their predictions."""
    regime = REGIMES["mostly examples"]
    generator = np.random.default_rng(5)
    for runs in simulate(
        generator, columns=["sst2"], accuracies=ACCURACIES, seeds=2, regime=regime
    ):
        fill_drawn(bench, runs)
    return bench.plan()


def compare_at(path) -> Comparison:
    return compare(open_board(path))


def contrasts_at(path) -> pd.DataFrame:
    return compare_at(path).contrasts_of("reference")


def reasons_at(path, column="sst2") -> dict[str, str]:
    """Return the reasons, by arm, why the contrasts in a column are not tested."""
    frame = contrasts_at(path)
    return frame[frame["column"] == column].set_index("arm")["why"].to_dict()


def diverge(bench) -> None:
    shape = bench.logits[HIGHER_RUN]["validation"].shape
    bench.predict(HIGHER_RUN, {"validation": np.full(shape, np.nan)})


def test_diverged_predictions_are_not_compared_and_concern_their_arm_alone(bench):
    fill(bench)
    diverge(bench)
    bench.plan()
    assert reasons_at(bench.path) == {"high": "", "higher": DIVERGED_REASON}
    assert contrasts_at(bench.path)["difference"].notna().all()


def test_predictions_of_another_number_of_rows_are_not_compared(bench):
    fill(bench)
    logits = bench.logits[HIGHER_RUN]["validation"]
    bench.predict(HIGHER_RUN, {"validation": logits[:-1]})
    assert reasons_at(bench.plan()) == {"high": "", "higher": DIVERGED_REASON}


def test_a_score_of_an_earlier_epoch_than_the_last_is_not_compared(bench):
    """One run of `high` is best in its first epoch."""
    fill(bench)
    diverge(bench)
    for name, (_, facts) in bench.runs.items():
        last = facts["scores"]["validation"]["accuracy"]
        first = last + 0.01 if name == "high-sst2-lr2e-05-s1" else last - 0.01
        facts["history"] = history_of("validation", "accuracy", first, last)
    path = bench.plan(config={"protocol": {"epoch": "best"}})
    expected = {"high": f"{OTHER_EPOCH} (high)", "higher": DIVERGED_REASON}
    assert reasons_at(path) == expected


def test_missing_predictions_are_named_with_their_file(bench):
    path = fill(bench)
    bench.file(HIGHER_RUN, "logits.safetensors").unlink()
    file = f"cells/{HIGHER_RUN}/logits.safetensors"
    assert reasons_at(path)["higher"].startswith(f"{file}: cannot be read (No such file")
    assert reasons_at(path)["high"] == ""


def test_without_gold_labels_no_arm_is_compared(bench):
    path = fill(bench)
    next((bench.path / "labels").iterdir()).unlink()
    for reason in reasons_at(path).values():
        assert reason.startswith(NO_LABELS)


def test_damaged_gold_labels_are_the_reason_of_every_arm(bench):
    path = fill(bench)
    (file,) = (bench.path / "labels").iterdir()
    file.write_bytes(b"x")
    for reason in reasons_at(path).values():
        assert file.name in reason


def fill_measured(bench, counts) -> Comparison:
    """Add pretrainings with these counts of pieces by arm and seed.

    On each piece `high` loses less than `low`.
    """
    fill(bench)
    generator = np.random.default_rng(0)
    pieces = generator.normal(2000, 200, size=300)
    for (arm, seed), count in counts.items():
        losses = pieces + generator.normal(0, 5, 300)
        if arm == "high":
            losses = losses - 100
        hits = np.round(count * (0.9 if arm == "high" else 0.5))
        sums = {
            "validation_loss": np.stack([losses[: len(count)], count]),
            "swap_1": np.stack([hits, count]),
        }
        bench.pretrain(arm, seed=seed, sums=sums)
    return compare_at(bench.plan())


@pytest.fixture
def measured(bench) -> Comparison:
    """Three pretrainings of `low` and of `high`, measured on the same pieces of text."""
    pretrainings = product(("low", "high"), (1, 2, 3))
    counts = dict.fromkeys(pretrainings, np.full(300, 500.0))
    return fill_measured(bench, counts)


def test_measures_of_pretraining_are_columns_of_contrasts(measured):
    columns = measured.contrasts["column"].unique()
    assert columns.tolist() == ["sst2", "validation_loss", "swap_1"]


@pytest.mark.parametrize(("column", "difference"), [("validation_loss", -0.2), ("swap_1", 40.0)])
def test_a_measure_has_a_verdict(measured, column, difference):
    rows = measured.contrasts_of("reference").set_index(["column", "arm"])
    row = rows.loc[(column, "high")]
    assert row["difference"] == pytest.approx(difference, abs=0.01)
    assert row["verdict"] == "better"


def test_a_measure_is_compared_over_pretraining_seeds(measured):
    rows = measured.contrasts_of("reference").set_index(["column", "arm"])
    seeds = rows["seeds"]
    assert seeds["validation_loss", "high"] == "pretraining"
    assert seeds["sst2", "high"] == "fine-tuning"
    assert rows.loc[("validation_loss", "higher"), "why"] == "no finished run (higher)"


def test_the_frame_has_the_means_and_deviations_of_a_measure(measured):
    frame = make_leaderboard(measured).frame.set_index("arm")
    losses = frame["validation_loss"]
    deviations = frame["validation_loss_std"].dropna()
    assert losses["low"] - losses["high"] == pytest.approx(0.2, abs=0.01)
    assert set(deviations.index) == {"low", "high"}


def test_other_pieces_of_text_have_no_verdict(bench):
    """Two seeds are too few for a deviation."""
    counts = dict.fromkeys(product(("low",), (1, 2)), np.full(300, 500.0))
    counts |= dict.fromkeys(product(("high",), (1, 2)), np.full(200, 500.0))
    comparison = fill_measured(bench, counts)
    assert reasons_at(bench.path, "swap_1")["high"] == f"{OTHER_PIECES} (high)"
    assert make_leaderboard(comparison).frame["validation_loss_std"].isna().all()


def test_one_pretraining_has_no_verdict(bench):
    counts = {("low", 1): np.full(300, 500.0), ("high", 1): np.full(300, 500.0)}
    comparison = fill_measured(bench, counts)
    contrasts = comparison.contrasts_of("reference").query("column == 'swap_1'")
    assert set(contrasts["verdict"]) == {""}


def loss_contrast(bench, documents: np.ndarray) -> pd.Series:
    """Return the contrast of two arms on pieces of these documents.

    The difference varies by document, and is the same in all pieces of one document.
    """
    places = list(product(("low", "high"), (1, 2)))
    fill_measured(bench, dict.fromkeys(places, np.full(300, 500.0)))
    pieces = len(documents)
    for arm, seed in places:
        losses = np.linspace(1.0, 3.0, pieces) + 0.01 * seed * np.arange(pieces) / pieces
        if arm == "high":
            losses = losses + 1 + 0.3 * np.sin(documents)
        count = np.ones(pieces, np.int64)
        arrays = {"loss_sum": losses, "count": count, "document": documents}
        bench.pretrain(arm, seed=seed, pieces=arrays)
    contrasts = contrasts_at(bench.plan()).set_index(["column", "arm"])
    return contrasts.loc[("validation_loss", "high")]


def test_pieces_of_one_document_are_no_independent_examples(new_bench):
    of_documents = loss_contrast(new_bench("documents"), np.arange(24))
    of_pieces = loss_contrast(new_bench("pieces"), np.repeat(np.arange(24), 8))
    assert of_pieces["error"] == pytest.approx(of_documents["error"], rel=0.1)


def test_pieces_of_a_single_document_count_themselves(bench):
    contrast = loss_contrast(bench, np.zeros(7, np.int64))
    assert contrast["difference"] == pytest.approx(1.0)


def predict_right(bench, cell_id: str, right: float) -> None:
    """Predict 1 for this number of rows, and 0 for the rest. All labels are 1."""
    is_right = np.arange(ROWS) < right
    bench.predict(cell_id, {"validation": np.stack([~is_right, is_right], axis=1)})


@pytest.fixture
def converted(bench) -> Comparison:
    """Four grafted arms.

    Two start from the checkpoint of `add`. The other two share a checkpoint that no pretrained arm
    has.
    """
    scores = {
        "add": (0.80, 0.84),
        "u-1": (0.70, 0.72),
        "u-2": (0.75, 0.76),
        "v-1": (0.60, 0.70),
        "v-2": (0.61, 0.63),
    }
    arms = []
    for arm, values in scores.items():
        origin = "pretrained" if arm == "add" else "grafted"
        arms.append({"name": arm, "checkpoint": "other" if arm[0] == "v" else "bert"})
        for seed, value in enumerate(values, 1):
            cell = bench.finish("rte", seed=seed, score=value, arm=arm, origin=origin)
            predict_right(bench, cell["cell_id"], value * ROWS)
    bench.label("rte", {"validation": np.ones(ROWS, int)})
    return compare_at(bench.plan(config={"arms": arms}))


def test_a_converted_arm_is_in_the_group_of_its_source_alone(converted):
    groups = {(group.kind, group.reference): set(group.arms) for group in converted.assessed}
    expected = {
        ("reference", "add"): {"add"},
        ("conversion", "add"): {"add", "u-1", "u-2"},
        ("reference", "v-1"): {"v-1", "v-2"},
    }
    assert groups == expected


def test_the_contrast_of_a_converted_arm_is_of_the_kind_conversion(converted):
    contrasts = converted.contrasts.set_index("arm")
    kinds = {"v-2": "reference", "u-1": "conversion", "u-2": "conversion"}
    assert contrasts["kind"].to_dict() == kinds
    assert set(contrasts["origin"]) == {"grafted"}


def test_variances_are_pooled_over_the_arms_of_a_group_by_hand(converted):
    """With two seeds an arm's variance is half its squared range, with one degree of freedom."""
    pooled: dict[tuple[str, str], float] = {}
    for group in converted.assessed:
        pooled[group.kind, group.reference] = group.estimates[0].spreads[0].pooled
    assert pooled["conversion", "add"] == pytest.approx((4**2 + 2**2 + 1**2) / 6)
    assert pooled["reference", "v-1"] == pytest.approx((10**2 + 2**2) / 4)


def test_converted_arms_are_compared_with_the_reference_of_the_arms_that_share_their_start(bench):
    """The second of two pretrained arms is additive; one arm is grafted and one is adapted."""
    origins = {"w": "pretrained", "add": "pretrained", "u": "grafted", "v": "adapted"}
    for (arm, origin), value in zip(origins.items(), (0.9, 0.8, 0.7, 0.6), strict=True):
        bench.finish("rte", seed=1, score=value, arm=arm, origin=origin)
    arms = [{"name": arm, "checkpoint": "bert"} for arm in origins]
    block, conversion = compare_at(bench.plan(config={"arms": arms})).assessed
    assert block.reference == conversion.reference == "add"
    assert set(block.arms) == {"add", "w"}
    assert set(conversion.arms) == {"add", "u", "v"}
    assert conversion.kind == "conversion"


def test_the_reference_of_the_protocol_is_the_reference_of_its_block(bench):
    """Another block has its first arm."""
    origins = {"add": "pretrained", "w": "pretrained", "x": "scratch", "y": "scratch"}
    for arm, origin in origins.items():
        bench.finish("rte", seed=1, score=0.5, arm=arm, origin=origin)
    assessed = compare_at(bench.plan(config={"protocol": {"reference": "w"}})).assessed
    references = {frozenset(group.arms): group.reference for group in assessed}
    expected = {frozenset({"add", "w"}): "w", frozenset({"x", "y"}): "x"}
    assert references == expected


def pretrain_by_hand(bench, nats, counts) -> Comparison:
    """Add pretrainings whose documents have these nats per token and these numbers of tokens."""
    for (arm, seed), of_documents in nats.items():
        bench.finish("rte", seed=seed, score=0.5, arm=arm)
        count = counts.get((arm, seed), counts["all"])
        losses = np.array(of_documents) * count
        arrays = {"loss_sum": losses, "count": count, "document": np.arange(len(count))}
        bench.pretrain(arm, seed=seed, pieces=arrays)
    return compare_at(bench.plan())


def test_a_loss_weighs_documents_by_their_tokens_and_spreads_over_pretrainings_by_hand(bench):
    counts = np.array([10, 400, 90, 100, 100, 100, 100])
    nats = {}
    for arm, seed in product(("add", "none"), (1, 2, 3)):
        level = 2.0 + 0.1 * seed**2 + 0.3 * (arm == "none")
        nats[arm, seed] = [level + 1.0, level, level - 0.5, level, level, level, level]
    frame = make_leaderboard(pretrain_by_hand(bench, nats, {"all": counts})).frame.set_index("arm")
    shift = (1.0 * 10 - 0.5 * 90) / 900
    levels = np.array([2.1, 2.4, 2.9])
    expected = levels.mean() + shift
    assert frame["validation_loss"]["add"] == pytest.approx(expected)
    assert frame["validation_loss"]["none"] == pytest.approx(levels.mean() + 0.3 + shift)
    expected = np.std(levels, ddof=1)
    assert frame["validation_loss_std"]["add"] == pytest.approx(expected)


def test_the_same_number_of_pieces_of_other_lengths_are_other_pieces(bench):
    counts = {"all": np.full(6, 50), ("none", 2): np.array([50, 50, 50, 50, 40, 60])}
    nats = {}
    for arm, seed in product(("add", "none", "untied"), (1, 2)):
        nats[arm, seed] = [2.0 + 0.1 * seed] * 6
    pretrain_by_hand(bench, nats, counts)
    reasons = reasons_at(bench.path, "validation_loss")
    expected = {"none": f"{OTHER_PIECES} (none)", "untied": ""}
    assert reasons == expected


@pytest.mark.parametrize(("longest", "pieces"), [(10, 6), (10_000, 12)])
def test_documents_are_too_few_if_a_single_one_has_nearly_all_tokens(bench, longest, pieces):
    """There are six documents of two pieces each. They count as about six, or about one."""
    count = np.full(12, 10)
    count[:2] = longest
    arrays = {"loss_sum": 2.0 * count, "count": count, "document": np.repeat(np.arange(6), 2)}
    bench.finish("rte")
    bench.pretrain("add", pieces=arrays)
    results = read_results(bench.plan())
    (pretraining_id,) = results.finished.pretrainings
    assert results.sums(pretraining_id)["validation_loss"].shape == (2, pieces)


def test_an_earlier_epoch_concerns_the_arms_that_report_one(bench):
    """In its second seed, one of three arms has its best epoch before the last epoch."""
    for arm, seed in product(("add", "none", "untied"), (1, 2)):
        first = 0.6 if (arm, seed) == ("none", 2) else 0.4
        cell = bench.expect("rte", seed=seed, arm=arm)
        bench.record(cell, score=0.5, history=history_of("validation", "accuracy", first, 0.5))
        predict_right(bench, cell["cell_id"], ROWS // 2 + 3 * seed)
    bench.label("rte", {"validation": np.ones(ROWS, int)})
    path = bench.plan(config={"protocol": {"epoch": "best"}})
    expected = {"none": f"{OTHER_EPOCH} (none)", "untied": ""}
    assert reasons_at(path, "rte") == expected


def test_the_average_of_contrasts_is_over_the_columns_of_the_boards_average(bench):
    """It is computed by hand; WNLI does not count."""
    right = {"rte": (200, 240), "cola": (300, 280), "wnli": (400, 0)}
    for (task, counts), seed in product(right.items(), (1, 2)):
        for arm, count in zip(("add", "none"), counts, strict=True):
            cell = bench.expect(task, seed=seed, arm=arm)
            bench.record(cell, score=(count - seed) / ROWS)
            predict_right(bench, cell["cell_id"], max(count - seed, 0))
        bench.label(task, {"validation": np.where(np.arange(ROWS) % 9, 1, 0)})
    differences = contrasts_at(bench.plan()).set_index("column")["difference"]
    expected = (differences["rte"] + differences["cola"]) / 2
    assert differences["average"] == pytest.approx(expected)
    assert differences["wnli"] < -90


def test_measures_of_two_blocks_stand_in_one_frame(bench):
    """Arms from scratch are compared among themselves; the frame has the losses of all arms."""
    count = np.full(6, 50)
    levels = {"add": 2.0, "none": 2.5, "x": 3.0, "y": 3.5}
    for arm, level in levels.items():
        origin = "scratch" if arm in "xy" else "pretrained"
        bench.finish("rte", seed=1, score=0.5, arm=arm, origin=origin)
        for seed in (1, 2):
            arrays = {"loss_sum": level * count, "count": count, "document": np.arange(6)}
            bench.pretrain(arm, seed=seed, pieces=arrays)
    frame = make_leaderboard(compare_at(bench.plan())).frame.set_index("arm")
    assert frame["validation_loss"].dropna().to_dict() == pytest.approx(levels)


def test_an_arm_that_others_were_converted_from_has_the_mean_of_its_block(bench):
    """The block's reference has two pretrainings, so the third of `add` does not count there.

    The third pretraining counts in the group of the converted arm.
    """
    checkpoints = {"w": "other", "add": "bert", "u": "bert"}
    levels = {"w": (2.0, 2.1), "add": (3.0, 3.1, 9.0), "u": (4.0, 4.1, 4.2)}
    count = np.full(6, 50)
    for arm, losses in levels.items():
        bench.finish(
            "rte", seed=1, score=0.5, arm=arm, origin="adapted" if arm == "u" else "pretrained"
        )
        for seed, level in enumerate(losses, 1):
            arrays = {"loss_sum": level * count, "count": count, "document": np.arange(6)}
            bench.pretrain(arm, seed=seed, pieces=arrays)
    arms = [{"name": arm, "checkpoint": name} for arm, name in checkpoints.items()]
    comparison = compare_at(bench.plan(config={"arms": arms, "protocol": {"reference": "w"}}))
    block, conversion = comparison.estimates["validation_loss"]
    assert conversion.means["add"] == pytest.approx((3.0 + 3.1 + 9.0) / 3)
    losses = make_leaderboard(comparison).frame.set_index("arm")["validation_loss"]
    assert losses["add"] == pytest.approx(block.means["add"])
    assert losses["add"] == pytest.approx((3.0 + 3.1) / 2)
    assert losses["u"] == pytest.approx((4.0 + 4.1 + 4.2) / 3)


@pytest.mark.parametrize(("is_search", "leaves_out"), [(False, True), (True, False)])
def test_a_seed_of_a_rate_search_is_left_out_of_no_contrast(bench, is_search, leaves_out):
    """One arm has a third seed, of a pretraining that the other lacks, or of a rate search."""
    count = np.full(6, 50)
    for arm, seed in [("add", 1), ("add", 2), ("none", 1), ("none", 2), ("none", 3)]:
        bench.finish("rte", seed=1, score=0.5, arm=arm)
        level = 2.0 + 0.1 * seed
        arrays = {"loss_sum": level * count, "count": count, "document": np.arange(6)}
        bench.pretrain(arm, seed=seed, pieces=arrays, is_search=is_search and seed == 3)
    comparison = compare_at(bench.plan())
    assert ("validation_loss" in comparison.common_seed_columns) == leaves_out
    (estimate,) = comparison.estimates["validation_loss"]
    assert estimate.untested == {}
    assert len(estimate.tasks["validation_loss"].values) == 4


def test_five_documents_of_equal_size_are_enough(bench):
    count = np.full(10, 10)
    arrays = {"loss_sum": 2.0 * count, "count": count, "document": np.repeat(np.arange(5), 2)}
    bench.finish("rte")
    bench.pretrain("add", pieces=arrays)
    results = read_results(bench.plan())
    (pretraining_id,) = results.finished.pretrainings
    assert results.sums(pretraining_id)["validation_loss"].shape == (2, 5)


def test_lags_are_computed_once_for_all_tables():
    comparison = open_comparison("results/study")
    assert comparison.lags is comparison.lags
    assert comparison.reached is comparison.reached
    assert comparison.reference == "add"
    assert set(comparison.lags["reference"]) == {"add"}
