"""What labels are worth without an encoder: predictions from words and from their overlap."""

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.sparse import csr_matrix, hstack
from sklearn.dummy import DummyClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from glue_bench.data.task import Task
from glue_bench.data.task_data import TaskData, held_out_rows

WORD_OVERLAP = "word overlap"
BAG_OF_WORDS = "bag of words"
WORDS_AND_OVERLAP = "words and overlap"
Predictions = dict[str, dict[str, np.ndarray]]


# Several threads would wait for each other in products of short vectors.
@threadpool_limits.wrap(limits=1)
def baseline_predictions(data: TaskData, held_out_share: float | None = None) -> Predictions:
    """Predict the labels of validation splits by simple baselines; the same on every call.

    The models are fitted on the rows that arms are trained on: those of train, without the
    `held_out_share` of them that arms choose rates and epochs by. They are logistic regression for
    classes and ridge regression for scores, with scikit-learn's own penalties. The largest task
    takes minutes. BAG_OF_WORDS has the TF-IDF of each text. WORD_OVERLAP has the features
    of `word_overlap`, which only pairs of texts have. WORDS_AND_OVERLAP has both. For single texts
    it is the bag of words, so that both have an average over all tasks.

    Returns:
        Class ids or scores (rows,) by baseline and split. Without train rows, or without words in
        them, there is no baseline.
    """
    if "train" not in data.splits:
        return {}

    task = data.row
    train = data.splits["train"]
    if held_out_share:
        _, kept_rows = held_out_rows(len(train), held_out_share)
        train = train.iloc[kept_rows]

    words = TfidfVectorizer(sublinear_tf=True)
    try:
        words.fit(_texts(train))
    except ValueError:  # no text has a word of two letters
        return {}

    scale = StandardScaler()
    if "text_b" in train:
        first = words.transform(train["text_a"])
        second = words.transform(train["text_b"])
        scale.fit(word_overlap(first, second))

    features_by_split: dict[str, dict[str, csr_matrix]] = {}
    for split in task.validation_splits:
        if split in data.splits:
            features_by_split[split] = _features(data.splits[split], words, scale)

    predictions: Predictions = {}
    for baseline, features in _features(train, words, scale).items():
        model = _fit_model(task, features, train["label"])
        predictions[baseline] = {
            split: model.predict(split_features[baseline])
            for split, split_features in features_by_split.items()
        }

    return predictions


def _texts(frame: pd.DataFrame) -> np.ndarray:
    """Return all texts of a split, first texts before second ones."""
    columns = [frame[name] for name in frame if name != "label"]
    return np.concatenate(columns)


def _fit_model(
    task: Task, features: csr_matrix, labels: pd.Series
) -> Ridge | DummyClassifier | LogisticRegression:
    """Fit the model of a baseline to features (rows, f) and labels (rows,)."""
    if task.is_regression:
        model = Ridge()
    elif labels.nunique() == 1:
        model = DummyClassifier()
    else:
        model = LogisticRegression(solver="newton-cg")
    return model.fit(features, labels)


def word_overlap(first: csr_matrix, second: csr_matrix) -> Float[np.ndarray, "rows 4"]:
    """Say how alike two texts are, by their TF-IDF (rows, words), in which each row has length 1.

    The features are the shares of the words of either text that the other has, the shared words
    over all words (Jaccard), and the cosine.
    """
    has_first = (first > 0).astype(float)
    has_second = (second > 0).astype(float)
    shared = _row_sums(has_first.multiply(has_second))
    in_first = _row_sums(has_first)
    in_second = _row_sums(has_second)
    in_either = in_first + in_second - shared
    cosine = _row_sums(first.multiply(second))
    shares = [shared / np.maximum(size, 1) for size in (in_first, in_second, in_either)]
    return np.stack([*shares, cosine], axis=1)


def _row_sums(matrix: csr_matrix) -> Float[np.ndarray, " rows"]:
    return np.asarray(matrix.sum(axis=1)).ravel()


def _features(
    frame: pd.DataFrame, words: TfidfVectorizer, scale: StandardScaler
) -> dict[str, csr_matrix]:
    """Return what each baseline sees of the rows of a split."""
    first = words.transform(frame["text_a"])
    if "text_b" not in frame:
        return {BAG_OF_WORDS: first, WORDS_AND_OVERLAP: first}
    second = words.transform(frame["text_b"])
    overlap = csr_matrix(scale.transform(word_overlap(first, second)))
    return {
        WORD_OVERLAP: overlap,
        BAG_OF_WORDS: hstack([first, second]).tocsr(),
        WORDS_AND_OVERLAP: hstack([first, second, overlap]).tocsr(),
    }
