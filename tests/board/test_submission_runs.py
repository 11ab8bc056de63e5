"""Which run a submission takes, what it says is missing, and that what it writes is what was predicted."""

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
    """A run with test predictions, drawn from its seed, of the official sizes; the splits named are left out."""
    bench.record(bench.expect(task, seed), value, **facts)
    generator = np.random.default_rng([seed, len(task)])
    files = [file for file in FILES.values() if file.model == task and file.split not in without]
    logits = {
        file.split: generator.normal(2, 2, (file.rows, TASKS[file.task].num_labels))
        for file in files
    }
    bench.predict(bench.cells[-1]["cell_id"], logits | {"validation": np.zeros((1, 1))})
    return logits


MEDIANS = {
    "middle": ((0.5, 0.7, 0.6), 3),
    "lower-of-two": ((0.7, 0.5), 2),
    "lower-middle": ((0.9, 0.6, 0.7, 0.8), 3),
    "tie": ((0.6, 0.5, 0.6, 0.7), 1),
    "undefined-is-low": ((0.7, None, 0.6), 3),
    "undefined": ((None, None, 0.6), 1),
}


def test_the_run_is_the_median_over_seeds(bench):
    for arm, (values, _) in MEDIANS.items():
        for number, value in enumerate(values, 1):
            bench.finish("rte", number, value, arm=arm)
    board = open_board(bench.plan())
    for arm, (_, seed) in MEDIANS.items():
        assert median_runs(board, arm)["seed"]["rte"] == seed, arm


def test_the_mean_over_splits_of_the_main_metric_decides_at_the_rate_that_the_board_reports(bench):
    for seed, (matched, mismatched) in enumerate([(0.9, 0.5), (0.6, 0.6), (0.5, 0.8)], 1):
        splits = {"validation_matched": matched, "validation_mismatched": mismatched}
        bench.finish("mnli", seed, {split: {"accuracy": value} for split, value in splits.items()})
    for seed, (accuracy, f1) in enumerate([(0.5, 0.9), (0.6, 0.1), (0.7, 0.5)], 1):
        bench.finish("mrpc", seed, {"accuracy": accuracy, "f1": f1})
    for rate, value in ((1e-5, 0.6), (2e-5, 0.8), (3e-5, 0.7)):
        bench.finish("rte", 1, value, rate=rate)
    runs = median_runs(open_board(bench.plan()), "add")
    assert (runs["seed"]["mnli"], runs["seed"]["mrpc"], runs["learning_rate"]["rte"]) == (
        3,
        2,
        2e-5,
    )
    assert runs["value"]["mnli"] == pytest.approx(65)


def written(bench, tmp_path, arm=None, *, fill=False, **plan):
    """The manifest, and the texts of the zip's files; nothing is wrong with the zip where all files are there."""
    told = write_submission(open_board(bench.plan(**plan)), tmp_path / "mine.zip", arm, fill=fill)
    content = (tmp_path / "mine.zip").read_bytes()
    assert lint(content) == []
    assert told["sha256"] == hashlib.sha256(content).hexdigest()
    assert json.loads((tmp_path / "mine.json").read_text("utf-8")) == told
    with zipfile.ZipFile(tmp_path / "mine.zip") as archive:
        return told, {name: archive.read(name).decode() for name in archive.namelist()}


def test_a_whole_experiment_gives_a_zip_without_findings_of_what_was_predicted(bench, tmp_path):
    logits = {task: finish(bench, task) for task in TRAINABLE}
    _, files = written(bench, tmp_path)
    for name, predicted, names in (
        ("QNLI.tsv", logits["qnli"]["test"], ["entailment", "not_entailment"]),
        ("AX.tsv", logits["mnli"]["test_ax"], ["entailment", "neutral", "contradiction"]),
    ):
        rows = files[name].split("\n")[1:-1]
        assert [row.split("\t")[1] for row in rows] == np.array(names)[
            predicted.argmax(axis=1)
        ].tolist()


def test_everything_that_is_missing_is_named_with_its_reason_or_filled(bench, tmp_path):
    for seed, value in ((1, 0.5), (2, 0.7), (3, 0.6)):
        finish(bench, "rte", seed, value)
    finish(bench, "qqp", without=["test"])
    finish(bench, "mnli", without=["test_ax"])
    bench.expect("cola")
    with pytest.raises(UserError, match="no predictions for 8 of the eleven files") as refused:
        written(bench, tmp_path)
    for reason in ("CoLA.tsv (no finished run of cola)", "AX.tsv ('add-mnli-lr2e-05-s1' has predicted no AX)",
                   "QQP.tsv ('add-qqp-lr2e-05-s1' has predicted no split 'test')"):  # fmt: skip
        assert reason in str(refused.value)
    told, _ = written(bench, tmp_path, fill=True)
    assert (told["zip"], list(told["files"])) == ("mine.zip", list(FILES))
    assert told["files"]["RTE.tsv"] == {
        **{"rows": 3000, "cell_id": "add-rte-lr2e-05-s3", "split": "test", "data": digest("d")},
        **{"learning_rate": 2e-5, "seed": 3, "validation": 60.0},
    }
    assert told["files"]["WNLI.tsv"] == {"rows": 146, "filled": MAJORITY_LABELS["wnli"]}


def test_the_manifest_states_the_score_of_the_epoch_that_predicted_and_an_undefined_one_is_null(
    bench, tmp_path
):
    finish(bench, "rte", history=history_of("validation", "accuracy", 0.6, 0.7, 0.5))
    finish(bench, "stsb", value=None)
    told = written(bench, tmp_path, fill=True, config={"protocol": {"epoch": "best"}})[0]["files"]
    assert median_runs(open_board(bench.path), "add")["value"]["rte"] == pytest.approx(70)
    assert (told["RTE.tsv"]["validation"], told["STS-B.tsv"]["validation"]) == (50, None)


def test_what_cannot_be_handed_in_is_refused(bench, tmp_path):
    finish(bench, "rte")
    with pytest.raises(UserError, match=r"add\.json': the name of a submission ends in \.zip"):
        write_submission(open_board(bench.plan()), tmp_path / "add.json")
    bench.finish("rte", arm="none")
    with pytest.raises(UserError, match="--arm says which arm: add, none"):
        written(bench, tmp_path)
    with pytest.raises(UserError, match="no test predictions at all"):
        written(bench, tmp_path, "none")
    bench.predict("none-rte-lr2e-05-s1", {"test": np.zeros((3, 3))})
    with pytest.raises(
        UserError, match=r"predictions of 'none-rte-lr2e-05-s1', split 'test': rte: logits of shape"
    ):
        written(bench, tmp_path, "none")
