"""Scores from weighted sums, and what examples contribute: against other implementations, formulas and resampling."""

import numpy as np
import pytest
from helpers.simulated import outcomes_of
from hypothesis import given
from hypothesis import strategies as st

from glue_bench.data.metrics import decide, score
from glue_bench.data.tasks import TASKS
from glue_bench.stats.examples import example_variance, finetuning_variance, shared_variance
from glue_bench.stats.runs import Runs, effective_number
from glue_bench.stats.sums import contributions, example_terms, score_from_sums

ROWS = 300
MAIN = {"sst2": "accuracy", "mnli": "accuracy", "cola": "matthews_correlation", "stsb": "pearson"}


@pytest.mark.parametrize("task", MAIN)
@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(2, 30),
    constant=st.sampled_from(["", "predictions", "labels"]),
)
def test_whole_weights_repeat_rows_and_give_the_metric_also_of_a_constant(
    task, seed, rows, constant
):
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(2, rows, TASKS[task].num_labels))
    labels = (
        generator.uniform(0, 5, rows)
        if task == "stsb"
        else generator.integers(TASKS[task].num_labels, size=rows)
    )
    predictions = np.stack([decide(task, run) for run in logits])
    if constant:
        {"predictions": predictions, "labels": labels}[constant][:] = 1
    weights = generator.integers(4, size=rows)
    weights[0] += 1
    sums = np.einsum(
        "r,rsk->sk", weights, example_terms(MAIN[task], predictions, labels).astype(float)
    )
    repeated = np.repeat(predictions, weights, axis=1), np.repeat(labels, weights)
    expected = [score(task, run, repeated[1])[MAIN[task]] for run in repeated[0]]
    np.testing.assert_allclose(
        score_from_sums(MAIN[task], sums, weights.sum()), expected, atol=1e-9
    )
    if constant and task in ("cola", "stsb"):
        assert expected == [0.0, 0.0]


def drawn(column, seed=0, arms=2, seeds=2):
    generator = np.random.default_rng(seed)
    if column == "stsb":
        labels = generator.uniform(0, 5, ROWS)
        return outcomes_of(
            column,
            {f"a{i}": labels + generator.normal(size=(seeds, ROWS)) for i in range(arms)},
            labels,
        )
    labels = (generator.random(ROWS) < 0.6).astype(int)
    right = generator.random((arms, seeds, ROWS)) < 0.8
    runs = {f"a{i}": np.where(right[i], labels, 1 - labels) for i in range(arms)}
    return outcomes_of(column, runs, labels)


def weights_of(outcomes):
    return np.stack(
        [
            (outcomes.runs.arms == i) / (outcomes.runs.arms == i).sum()
            for i in range(len(outcomes.arms))
        ]
    )


def variances(outcomes):
    values = contributions(outcomes.measure, outcomes.predictions, outcomes.labels)
    return example_variance(outcomes, weights_of(outcomes), values)


@pytest.mark.parametrize("column", ["sst2", "cola", "stsb"])
def test_pseudo_values_are_those_of_leaving_one_out(column):
    outcomes = drawn(column)
    values = contributions(outcomes.measure, outcomes.predictions, outcomes.labels)
    kept = np.arange(ROWS) != 7
    parts = example_terms(outcomes.metric, outcomes.predictions[:, kept], outcomes.labels[kept])
    without = 100 * score_from_sums(outcomes.metric, parts.sum(axis=0, dtype=float), ROWS - 1)
    np.testing.assert_allclose(
        values[:, 7], ROWS * outcomes.runs.values - (ROWS - 1) * without, rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("column", ["sst2", "cola", "stsb"])
def test_the_variance_is_near_that_of_the_bootstrap(column):
    outcomes = drawn(column)
    generator, found = np.random.default_rng(1), []
    for _ in range(2000):
        rows = generator.integers(ROWS, size=ROWS)
        parts = example_terms(outcomes.metric, outcomes.predictions[:, rows], outcomes.labels[rows])
        scores = 100 * score_from_sums(outcomes.metric, parts.sum(axis=0, dtype=float), ROWS)
        found.append(scores[:2].mean() - scores[2:].mean())
    values = contributions(outcomes.measure, outcomes.predictions, outcomes.labels)
    difference = np.array([0.5, 0.5, -0.5, -0.5]) @ values
    assert np.var(difference, ddof=1) / ROWS == pytest.approx(np.var(found), rel=0.15)


@pytest.mark.parametrize("column", ["sst2", "cola", "stsb"])
def test_two_added_examples_keep_it_above_zero_and_do_not_depend_on_who_is_first(column):
    outcomes = drawn(column, arms=1)
    twice = outcomes_of(
        column, {"a": outcomes.predictions, "b": outcomes.predictions}, outcomes.labels
    )
    found = variances(twice)
    assert found[0, 1] == found[1, 0] > 0
    if column == "sst2":  # two differences of 100 points among N + 2
        assert found[0, 1] == pytest.approx(2 * 100**2 / (ROWS + 2) ** 2)
        tied, always = (
            np.full((2, 60), 0.5),
            np.ones((2, 60)),
        )  # an arm that is always right, and one always tied
        shares = variances(
            outcomes_of("sst2", {"a": tied, "b": always}, np.ones(60), metric="share")
        )
        assert shares[0, 1] == shares[1, 0] > 0


def test_a_loss_is_a_ratio_over_pieces_and_equal_losses_have_no_variance():
    counts = np.array([10.0, 400.0, 100.0])
    losses = np.array([[20.0, 1000.0, 230.0]])
    outcomes = outcomes_of("sst2", {"a": losses, "b": losses}, counts, metric="loss", scale=1.0)
    assert outcomes.runs.values == pytest.approx([1250 / 510] * 2)
    assert variances(outcomes)[0, 1] == 0.0
    values = contributions(outcomes.measure, losses, counts)
    assert values[0, 1] == pytest.approx(3 * 1250 / 510 - 2 * 250 / 110)


def test_shared_variance_is_that_of_what_each_seed_adds_to_an_example():
    """Runs that are right by independent coins: all of the spread over seeds is that of seed and example together."""
    generator = np.random.default_rng(0)
    values = 100.0 * (generator.random((40, 2000)) < 0.7)
    owners = np.repeat([0, 1], 20)
    found = shared_variance(values, owners, blocked=False)
    each = 100**2 * 0.21 / 2000
    assert found[0, 0] == pytest.approx(each / 20, rel=0.1)
    assert found[0, 1] == pytest.approx(2 * each / 20, rel=0.1)
    # Within blocks what the arms have in common is left out.
    common, own = generator.normal(size=(6, 1000)), generator.normal(size=(2, 6, 1000))
    found = shared_variance(
        (10 * common + own).reshape(12, 1000), np.repeat([0, 1], 6), blocked=True
    )
    assert found[0, 1] == pytest.approx(2 / 6 / 1000, rel=0.1)
    assert found[0, 0] == pytest.approx(101 / 6 / 1000, rel=0.1)


def test_effective_numbers():
    assert effective_number(np.full(24, 7)) == pytest.approx(24)
    assert effective_number(np.array([1000, 1, 1, 1])) < 1.01


def test_effective_numbers_of_unequal_sizes_by_hand():
    assert effective_number(np.array([3, 1])) == pytest.approx(16 / 10)


def unequal_runs() -> Runs:
    """Of the first arm one run after one pretraining and three after another, of the second one and two."""
    arms = np.array([0, 0, 0, 0, 1, 1, 1])
    pretrainings = np.array([7, 2, 2, 2, 2, 7, 7])
    seeds = np.array([1, 1, 2, 3, 1, 1, 2])
    return Runs(arms, pretrainings, seeds, np.array([5.0, 1.0, 2.0, 6.0, 4.0, 8.0, 2.0]))


def test_means_by_block_are_of_each_blocks_own_runs():
    assert unequal_runs().by_block().tolist() == [[3.0, 5.0], [4.0, 5.0]]


def test_unequal_fine_tuning_seeds_divide_a_variance_by_their_harmonic_mean():
    assert unequal_runs().finetuning_seeds == pytest.approx(4 / (1 + 1 / 3 + 1 + 1 / 2))


def test_the_variance_of_fine_tuning_is_pooled_by_degrees_of_freedom():
    squares_around_three, squares_around_five = 4 + 1 + 9, 9 + 9
    assert unequal_runs().finetuning_variance == pytest.approx(
        (squares_around_three + squares_around_five) / (2 + 1)
    )


def test_the_variance_over_unequal_numbers_of_runs_is_each_arms_own():
    variances, number = unequal_runs().variances()
    assert number.tolist() == [4, 3]
    assert variances.tolist() == pytest.approx(
        [np.var([5, 1, 2, 6], ddof=1), np.var([4, 8, 2], ddof=1)]
    )


def test_runs_of_some_arms_stand_in_the_order_in_which_these_are_named():
    chosen = unequal_runs().for_arms([1, 0])
    assert chosen.values.tolist() == [4.0, 8.0, 2.0, 5.0, 1.0, 2.0, 6.0]
    assert chosen.arms.tolist() == [0, 0, 0, 1, 1, 1, 1]


def test_what_fine_tuning_seeds_add_to_a_contrast_over_unequal_blocks_by_hand():
    """Of an arm's mean over blocks: one run's variance, pooled over the arm's blocks, over each block's runs."""
    values, runs = np.random.default_rng(2).normal(size=(7, 12)), unequal_runs()
    found = finetuning_variance(values, runs.cells, np.array([0, 0, 1, 1]))
    of_one = []
    for several in ([1, 2, 3], [5, 6]):
        rest = values[several] - values[several].mean(axis=0)
        rest = rest - rest.mean(axis=1, keepdims=True)
        of_one.append(np.sum(rest**2) / ((len(several) - 1) * 12 * 11))
    of_means = [of_one[0] * (1 + 1 / 3) / 4, of_one[1] * (1 + 1 / 2) / 4]
    assert found[0, 1] == pytest.approx(sum(of_means))
    assert found.diagonal().tolist() == pytest.approx(of_means)


def test_two_added_examples_of_a_correlation_lie_at_the_ends_by_hand():
    """The label at its highest, one arm at its own highest and the other at its own lowest, and the other way round."""
    labels = np.array([0.0, 1.0, 3.0, 4.5, 2.0])
    first, second = np.array([0.5, 1.5, 2.5, 4.0, 2.0]), np.array([0.1, 1.0, 3.5, 4.4, 2.2])
    found = variances(outcomes_of("stsb", {"a": first[None], "b": second[None]}, labels))[0, 1]

    def contributed(predictions: np.ndarray, ends: list[float]) -> np.ndarray:
        values, gold = np.append(predictions, ends), np.append(labels, [4.5, 4.5])
        whole = np.corrcoef(values, gold)[0, 1]
        without = [
            np.corrcoef(np.delete(values, row), np.delete(gold, row))[0, 1] for row in range(7)
        ]
        return 100 * (7 * whole - 6 * np.array(without))

    floors = []
    for ahead, behind in ((first, second), (second, first)):
        difference = contributed(ahead, [ahead.max(), ahead.min()]) - contributed(
            behind, [behind.min(), behind.max()]
        )
        floors.append(np.var(difference) / 7)
    assert found >= max(floors) - 1e-9
    assert found == pytest.approx(max(floors))
