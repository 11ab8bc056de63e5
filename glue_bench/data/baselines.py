"""What a task's labels are worth without an encoder: the predictions of word overlap and of a bag of words."""

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.sparse import csr_matrix, hstack
from sklearn.dummy import DummyClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from glue_bench.data.task_data import TaskData, held_out_rows
from glue_bench.data.tasks import TASKS

WORD_OVERLAP, BAG_OF_WORDS = "word overlap", "bag of words"


@threadpool_limits.wrap(
    limits=1
)  # several threads would wait for each other in products of short vectors
def baseline_predictions(
    data: TaskData, held_out_share: float | None = None
) -> dict[str, dict[str, np.ndarray]]:
    """By baseline and validation split: class ids or scores (rows,), the same on every call.

    The models are fitted on the rows that arms are trained on: those of train, without the `held_out_share` of them
    that arms choose rates and epochs by. They are logistic regression for classes and ridge regression for scores, with
    scikit-learn's own penalties. The largest task takes about a minute. The features of word overlap are those
    of `word_overlap`, which only pairs of texts have. The bag of words has the TF-IDF of each text and these features.
    Without train rows, or without words in them, there is no baseline.
    """
    if "train" not in data.splits:
        return {}
    task, train = TASKS[data.task], data.splits["train"]
    if held_out_share:
        train = train.iloc[held_out_rows(len(train), held_out_share)[1]]
    words, scale = TfidfVectorizer(sublinear_tf=True), StandardScaler()
    try:
        words.fit(np.concatenate([train[name] for name in train if name != "label"]))
    except ValueError:  # no text has a word of two letters
        return {}
    if "text_b" in train:
        scale.fit(word_overlap(words.transform(train["text_a"]), words.transform(train["text_b"])))
    splits = [name for name in task.validation_splits if name in data.splits]
    tried, predictions = {name: _features(data.splits[name], words, scale) for name in splits}, {}
    for name, inputs in _features(train, words, scale).items():
        model = Ridge() if task.is_regression else LogisticRegression(solver="newton-cg")
        if not task.is_regression and train["label"].nunique() == 1:
            model = DummyClassifier()
        model.fit(inputs, train["label"])
        predictions[name] = {split: model.predict(tried[split][name]) for split in splits}
    return predictions


def word_overlap(first: csr_matrix, second: csr_matrix) -> Float[np.ndarray, "rows 4"]:
    """How alike two texts are, by their TF-IDF (rows, words), each row of length 1.

    The features are the shares of the words of either text that the other has, the shared words over all words
    (Jaccard), and the cosine.
    """
    has_first, has_second = (first > 0).astype(float), (second > 0).astype(float)
    products = has_first.multiply(has_second), has_first, has_second, first.multiply(second)
    shared, ones, twos, cosine = (np.asarray(matrix.sum(axis=1)).ravel() for matrix in products)
    shares = [shared / np.maximum(size, 1) for size in (ones, twos, ones + twos - shared)]
    return np.stack([*shares, cosine], axis=1)


def _features(
    frame: pd.DataFrame, words: TfidfVectorizer, scale: StandardScaler
) -> dict[str, csr_matrix]:
    """What each baseline sees of the rows of a split."""
    first = words.transform(frame["text_a"])
    if "text_b" not in frame:
        return {BAG_OF_WORDS: first}
    second = words.transform(frame["text_b"])
    overlap = csr_matrix(scale.transform(word_overlap(first, second)))
    return {WORD_OVERLAP: overlap, BAG_OF_WORDS: hstack([first, second, overlap]).tocsr()}
