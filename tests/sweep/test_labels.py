"""The labels that a sweep stores, and what baselines predict, follow the experiment."""

import numpy as np
import pytest
from helpers.classifiers import save_classifier
from safetensors.numpy import load_file, save_file

from glue_bench.data.baselines import baseline_predictions
from glue_bench.data.demo import generate
from glue_bench.data.task_data import TaskData, cluster_numbers
from glue_bench.data.tasks import TASKS
from glue_bench.records.labels import CLUSTERS
from glue_bench.records.store import Store

pytestmark = pytest.mark.usefixtures("small_demo")
SHARES = (None, 0.5, 0.1, None)


def test_stored_baselines_follow_the_share_that_is_held_out(sweep, tiny):
    """The cells of the last setting are there already, and what is stored follows nevertheless."""
    for share in SHARES:
        values = tiny(arms=["add"], tasks=["cola"], finetuning={"held_out_share": share})
        store = Store(sweep(values).folder)
        data = TaskData("cola", "demo", generate("cola"))
        labels = store.labels.read("cola", data.digest, store.plan().tasks["cola"].labels)
        for name, predictions in baseline_predictions(data, share).items():
            np.testing.assert_array_equal(labels[name]["validation"], predictions["validation"])


def test_labels_that_fit_are_not_written_again(sweep, tiny):
    values = tiny(arms=["add"], tasks=["cola"], finetuning={"held_out_share": 0.5})
    folder = sweep(values).folder
    (path,) = (folder / "labels").iterdir()
    before = path.stat().st_ino
    sweep(values)
    assert path.stat().st_ino == before


@pytest.mark.parametrize("share", [None, 0.5])
def test_baselines_that_do_not_say_on_which_rows_they_were_fitted_are_fitted_again(
    sweep, tiny, share
):
    """Those of earlier versions saw 50,000 rows at most, or the rows that are held out."""
    values = tiny(arms=["add"], tasks=["cola"], finetuning={"held_out_share": share})
    store = Store(sweep(values).folder)
    (path,) = (store.folder / "labels").iterdir()
    fitted = load_file(path)
    digest = store.plan().tasks["cola"].digest
    name = "bag of words/validation"
    save_file({**fitted, name: 1 - fitted[name]}, path, {"data": digest})
    sweep(values)
    np.testing.assert_array_equal(load_file(path)[name], fitted[name])


def test_trained_arms_get_baselines_where_finished_arms_were_scored_before(sweep, tiny, tmp_path):
    classifier = save_classifier(tmp_path / "classifier", TASKS["cola"].labels)
    arm = {"name": "clf", "variant": "finished", "checkpoint": str(classifier)}
    folder = sweep(tiny(arms=[arm], tasks=["cola"], checkpoint=None)).folder
    (path,) = (folder / "labels").iterdir()
    assert load_file(path).keys() == {"gold/validation"}
    sweep(tiny(arms=["add"], tasks=["cola"]))
    assert {"gold/validation", "bag of words/validation"} <= load_file(path).keys()


def test_clusters_of_examples_are_stored_with_the_labels(sweep, tiny):
    store = Store(sweep(tiny(arms=["add"], tasks=["qnli"])).folder)
    data = TaskData("qnli", "demo", generate("qnli"))
    labels = store.labels.read("qnli", data.digest, store.plan().tasks["qnli"].labels)
    expected = cluster_numbers(data)["validation"]
    np.testing.assert_array_equal(labels[CLUSTERS]["validation"], expected)


def test_labels_without_clusters_get_them_and_no_cell_runs_again(sweep, tiny):
    values = tiny(arms=["add"], tasks=["qnli"])
    folder = sweep(values).folder
    (path,) = (folder / "labels").iterdir()
    labels = load_file(path)
    older = {name: array for name, array in labels.items() if not name.startswith(CLUSTERS)}
    digest = Store(folder).plan().tasks["qnli"].digest
    save_file(older, path, {"data": digest})
    summary = sweep(values)
    assert summary.waiting == ()
    assert load_file(path).keys() == labels.keys()
