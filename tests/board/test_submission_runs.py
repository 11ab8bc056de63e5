"""The runs that a submission takes, the missing runs, and the written predictions."""

import hashlib
import json
import zipfile

import numpy as np
import pytest
from helpers.stored import digest, history_of

from glue_bench.board.board import open_board
from glue_bench.board.chosen import median_runs
from glue_bench.data.submission import FILES, MAJORITY_LABELS, lint
from glue_bench.data.tasks import TASKS, TRAINABLE
from glue_bench.errors import UserError
from glue_bench.publish.submission import write_submission


def finish(
    bench, task, seed=1, value: float | None = 0.5, without=(), **facts
) -> dict[str, np.ndarray]:
    """Finish a run with test predictions of the official sizes, drawn from its seed.

    The splits `without` are left out.
    """
    cell = bench.expect(task, seed=seed)
    bench.record(cell, score=value, **facts)
    generator = np.random.default_rng([seed, len(task)])
    logits: dict[str, np.ndarray] = {}
    for file in FILES.values():
        if file.model == task and file.split not in without:
            shape = (file.rows, TASKS[file.task].num_labels)
            logits[file.split] = generator.normal(2, 2, shape)
    bench.predict(cell["cell_id"], logits | {"validation": np.zeros((1, 1))})
    return logits


@pytest.mark.parametrize(
    ("values", "seed"),
    [
        pytest.param((0.5, 0.7, 0.6), 3, id="middle"),
        pytest.param((0.7, 0.5), 2, id="lower-of-two"),
        pytest.param((0.9, 0.6, 0.7, 0.8), 3, id="lower-middle"),
        pytest.param((0.6, 0.5, 0.6, 0.7), 1, id="tie"),
        pytest.param((0.7, None, 0.6), 3, id="undefined-is-low"),
        pytest.param((None, None, 0.6), 1, id="undefined"),
    ],
)
def test_the_run_is_the_median_over_seeds(bench, values, seed):
    for number, value in enumerate(values, 1):
        bench.finish("rte", seed=number, score=value)
    runs = median_runs(open_board(bench.plan()), "add")
    assert runs["seed"]["rte"] == seed


def finish_mnli(bench, scores: list[tuple[float, float]]) -> None:
    """Finish seeds 1, 2, ... with these accuracies on the matched and the mismatched split."""
    for seed, (matched, mismatched) in enumerate(scores, 1):
        splits = {
            "validation_matched": {"accuracy": matched},
            "validation_mismatched": {"accuracy": mismatched},
        }
        bench.finish("mnli", seed=seed, score=splits)


def test_the_mean_over_splits_decides(bench):
    finish_mnli(bench, [(0.9, 0.5), (0.6, 0.6), (0.5, 0.8)])
    run = median_runs(open_board(bench.plan()), "add").loc["mnli"]
    assert run["seed"] == 3
    assert run["value"] == pytest.approx(65)


def test_a_rounding_error_does_not_decide(bench):
    """Both means are 51.4, but in floating point the first one is larger."""
    finish_mnli(bench, [(0.5, 0.528), (0.514, 0.514)])
    runs = median_runs(open_board(bench.plan()), "add")
    assert runs["seed"]["mnli"] == 1


def test_the_main_metric_decides(bench):
    for seed, (accuracy, f1) in enumerate([(0.5, 0.9), (0.6, 0.1), (0.7, 0.5)], 1):
        bench.finish("mrpc", seed=seed, score={"accuracy": accuracy, "f1": f1})
    runs = median_runs(open_board(bench.plan()), "add")
    assert runs["seed"]["mrpc"] == 2


def test_the_run_is_one_at_the_rate_that_the_board_reports(bench):
    for rate, value in ((1e-5, 0.6), (2e-5, 0.8), (3e-5, 0.7)):
        bench.finish("rte", seed=1, score=value, rate=rate)
    runs = median_runs(open_board(bench.plan()), "add")
    assert runs["learning_rate"]["rte"] == 2e-5


def submit(bench, tmp_path, arm=None, *, fill=False, **plan):
    """Write a submission without findings; return its manifest, and the texts of its files."""
    path = tmp_path / "run.zip"
    manifest = write_submission(open_board(bench.plan(**plan)), path, arm, fill=fill)
    content = path.read_bytes()
    assert lint(content) == []
    assert manifest["sha256"] == hashlib.sha256(content).hexdigest()
    assert json.loads(path.with_suffix(".json").read_text("utf-8")) == manifest
    with zipfile.ZipFile(path) as archive:
        return manifest, {name: archive.read(name).decode() for name in archive.namelist()}


def test_a_complete_experiment_gives_a_zip_of_its_predictions(bench, tmp_path):
    logits = {task: finish(bench, task) for task in TRAINABLE}
    _, files = submit(bench, tmp_path)
    classes = {
        "QNLI.tsv": ("qnli", "test", ["entailment", "not_entailment"]),
        "AX.tsv": ("mnli", "test_ax", ["entailment", "neutral", "contradiction"]),
    }
    for name, (task, split, names) in classes.items():
        rows = files[name].split("\n")[1:-1]
        predicted = logits[task][split].argmax(axis=1)
        assert [row.split("\t")[1] for row in rows] == np.array(names)[predicted].tolist()


def finish_in_part(bench) -> None:
    """Finish three seeds of RTE, and runs of QQP and MNLI that lack a split; CoLA has no run."""
    for seed, value in ((1, 0.5), (2, 0.7), (3, 0.6)):
        finish(bench, "rte", seed, value)
    finish(bench, "qqp", without=["test"])
    finish(bench, "mnli", without=["test_ax"])
    bench.expect("cola")


def test_everything_that_is_missing_is_named_with_its_reason(bench, tmp_path):
    finish_in_part(bench)
    with pytest.raises(UserError, match="no predictions for 8 of the eleven files") as refused:
        submit(bench, tmp_path)
    message = str(refused.value)
    assert "CoLA.tsv (no finished run of cola)" in message
    assert "AX.tsv ('add-mnli-lr2e-05-s1' has predicted no AX)" in message
    assert "QQP.tsv ('add-qqp-lr2e-05-s1' has predicted no split 'test')" in message


def test_files_that_are_missing_can_be_filled(bench, tmp_path):
    finish_in_part(bench)
    manifest, _ = submit(bench, tmp_path, fill=True)
    assert manifest["zip"] == "run.zip"
    assert list(manifest["files"]) == list(FILES)
    assert manifest["files"]["RTE.tsv"] == {
        "rows": 3000,
        "cell_id": "add-rte-lr2e-05-s3",
        "split": "test",
        "data": digest("d"),
        "learning_rate": 2e-5,
        "seed": 3,
        "validation": 60.0,
    }
    expected = {"rows": 146, "filled": MAJORITY_LABELS["wnli"], "planned": False}
    assert manifest["files"]["WNLI.tsv"] == expected
    assert manifest["files"]["QQP.tsv"]["planned"]


def test_the_manifest_states_the_score_of_the_epoch_that_predicted(bench, tmp_path):
    """The last epoch has predicted, even if the protocol reports the best epoch."""
    finish(bench, "rte", history=history_of("validation", "accuracy", 0.6, 0.7, 0.5))
    manifest, _ = submit(bench, tmp_path, fill=True, config={"protocol": {"epoch": "best"}})
    runs = median_runs(open_board(bench.path), "add")
    assert runs["value"]["rte"] == pytest.approx(70)
    assert manifest["files"]["RTE.tsv"]["validation"] == 50


def test_the_manifest_has_null_for_an_undefined_score(bench, tmp_path):
    finish(bench, "stsb", value=None)
    manifest, _ = submit(bench, tmp_path, fill=True)
    assert manifest["files"]["STS-B.tsv"]["validation"] is None


def test_a_file_that_is_no_zip_is_refused(bench, tmp_path):
    finish(bench, "rte")
    with pytest.raises(UserError, match=r"add\.json': the name of a submission ends in \.zip"):
        write_submission(open_board(bench.plan()), tmp_path / "add.json")


def test_one_of_several_arms_has_to_be_named(bench, tmp_path):
    finish(bench, "rte")
    bench.finish("rte", arm="none")
    with pytest.raises(UserError, match="--arm says which arm: add, none"):
        submit(bench, tmp_path)


def test_an_unknown_arm_is_refused(bench, tmp_path):
    finish(bench, "rte")
    with pytest.raises(UserError, match="unknown arm 'ad'"):
        submit(bench, tmp_path, "ad")


def test_an_arm_without_test_predictions_is_refused(bench, tmp_path):
    bench.finish("rte")
    with pytest.raises(UserError, match="no test predictions at all"):
        submit(bench, tmp_path)


def test_predictions_of_another_shape_are_refused(bench, tmp_path):
    bench.finish("rte")
    bench.predict("add-rte-lr2e-05-s1", {"test": np.zeros((3, 3))})
    message = "predictions of 'add-rte-lr2e-05-s1', split 'test': rte: logits of shape"
    with pytest.raises(UserError, match=message):
        submit(bench, tmp_path)
