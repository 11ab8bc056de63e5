"""Baselines that see words and no order: they find what words tell, and nothing in what order alone
tells.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix

from glue_bench.data.baselines import (
    BAG_OF_WORDS,
    WORD_OVERLAP,
    WORDS_AND_OVERLAP,
    baseline_predictions,
    word_overlap,
)
from glue_bench.data.demo import ORDER_SENSITIVE
from glue_bench.data.metrics import score
from glue_bench.data.sources import open_source
from glue_bench.data.task_data import TaskData, held_out_rows
from glue_bench.data.tasks import TASKS, TRAINABLE

DEMO = open_source("demo")


@pytest.mark.parametrize("task", TRAINABLE)
def test_every_task_has_baselines_that_find_what_words_tell_and_nothing_where_order_decides(task):
    data = DEMO.load(task)
    by_baseline = baseline_predictions(data)
    of_words = {BAG_OF_WORDS, WORDS_AND_OVERLAP}
    is_of_pairs = "text_b" in data.splits["train"]
    assert set(by_baseline) == (of_words | {WORD_OVERLAP} if is_of_pairs else of_words)
    for by_split in by_baseline.values():
        assert tuple(by_split) == TASKS[task].validation_splits
        for split, values in by_split.items():
            gold = data.splits[split]["label"].to_numpy()
            assert values.dtype == gold.dtype
            metric = TASKS[task].metrics[0]
            value = score(task, values, gold)[metric]
            chance = 1 / TASKS[task].num_labels if metric == "accuracy" else 0
            if task in ORDER_SENSITIVE:
                # Standard errors of 240 rows; of an accuracy they are half as large.
                standard_error = 1 / 240**0.5 / (2 if chance else 1)
                assert value < chance + 4 * standard_error
            elif by_split is by_baseline[WORDS_AND_OVERLAP]:
                assert value > chance + 0.2


def test_word_overlap_by_hand():
    first = csr_matrix([[0.5**0.5, 0.5**0.5, 0], [1, 0, 0], [0, 0, 0]])
    second = csr_matrix([[1.0, 0, 0]] * 3)
    expected = [[0.5, 1, 0.5, 0.5**0.5], [1, 1, 1, 1], [0, 0, 0, 0]]
    np.testing.assert_allclose(word_overlap(first, second), expected)


@pytest.mark.parametrize("share", [None, 0.1, 0.5])
@pytest.mark.parametrize("task", TRAINABLE)
def test_baselines_are_fitted_on_the_rows_that_arms_are_trained_on(task, share):
    """No other row counts: what arms choose rates by may have any label, and any text."""
    data = DEMO.load(task)
    expected = baseline_predictions(data, share)
    train = data.splits["train"]
    held_out = held_out_rows(len(train), share)[0] if share else []
    spoilt = train.copy()
    spoilt.loc[held_out, "text_a"] = "unheard of"
    spoilt.loc[held_out, "label"] = 1
    kept = train.drop(index=held_out).reset_index(drop=True)
    kept_data = replace(data, splits={**data.splits, "train": kept})
    spoilt_data = replace(data, splits={**data.splits, "train": spoilt})
    np.testing.assert_equal(baseline_predictions(kept_data), expected)
    np.testing.assert_equal(baseline_predictions(spoilt_data, share), expected)


def test_no_row_of_a_large_task_is_left_out():
    """The last of 60,000 rows alone have the word that tells."""
    texts = [f"word{number % 50}" for number in range(60_000)] + ["right"] * 500
    train = pd.DataFrame({"text_a": texts, "label": [0] * 60_000 + [1] * 500})
    tried = pd.DataFrame({"text_a": ["right", "word1"], "label": [1, 0]})
    data = TaskData("sst2", "tsv", {"train": train, "validation": tried})
    assert baseline_predictions(data)[BAG_OF_WORDS]["validation"].tolist() == [1, 0]


def test_small_and_odd_data_have_the_baselines_that_exist():
    train = pd.DataFrame(
        {"text_a": ["a cat", "the fox"], "text_b": ["the dog", "one cat"], "label": 1}
    )
    wordless = train.assign(text_a="?", text_b="!", label=[0, 1])

    def of(**splits):
        return baseline_predictions(TaskData("rte", "tsv", splits))

    # All labels are of one class.
    assert of(train=train, validation=train)[BAG_OF_WORDS]["validation"].tolist() == [
        1,
        1,
    ]
    assert (
        of(train=wordless, validation=train)
        == of(validation=train)
        == baseline_predictions(DEMO.load("ax"))
        == {}
    )
    assert of(train=train) == {WORD_OVERLAP: {}, BAG_OF_WORDS: {}, WORDS_AND_OVERLAP: {}}


def test_a_bag_of_words_does_not_see_which_words_two_texts_share():
    """A third of the pairs are of one word twice. Each word is equally often in them."""
    words = np.array([f"word{number}" for number in range(20)])
    first = np.tile(words, 3)
    second = np.concatenate([words, np.roll(words, 1), np.roll(words, 2)])
    labels = (first == second).astype(int)
    frame = pd.DataFrame({"text_a": first, "text_b": second, "label": labels})
    by_baseline = baseline_predictions(
        TaskData("rte", "tsv", {"train": frame, "validation": frame})
    )
    accuracy = {
        name: float((by_split["validation"] == labels).mean())
        for name, by_split in by_baseline.items()
    }
    assert accuracy[BAG_OF_WORDS] == pytest.approx(2 / 3)  # always the larger class
    assert accuracy[WORD_OVERLAP] == accuracy[WORDS_AND_OVERLAP] == 1
