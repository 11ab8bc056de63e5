"""Which run a submission takes, what it says is missing, and that what it writes is what was predicted."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from stored import digest, history_of

from glue_bench.data.submission import FILES, MAJORITY, lint
from glue_bench.data.tasks import TASKS, TRAINABLE
from glue_bench.errors import UserError
from glue_bench.tables.board import open_board
from glue_bench.tables.submission import fill, gather, manifest, median_runs, write_submission


def store_logits(bench, cell, without=(), rows=None) -> dict[str, np.ndarray]:
    """Test predictions of a cell, drawn from its seed, of the official sizes; the splits named are left out."""
    generator = np.random.default_rng([cell["seed"], len(cell["task"])])
    files = [file for file in FILES.values() if file.model == cell["task"] and file.split not in without]
    logits = {
        file.split: generator.normal(2, 2, (rows or file.rows, TASKS[file.task].num_labels)).astype(np.float32)
        for file in files
    }
    bench.predict(cell["cell_id"], logits | {"validation": np.zeros((1, 1), np.float32)})
    return logits


def finish(bench, task, seed=1, value=0.5, without=(), rows=None, **where):
    bench.finish(task, seed, value, **where)
    return store_logits(bench, bench.cells[-1], without, rows)


def finish_all(bench, without=(), **where):
    return {task: finish(bench, task, without=without, **where) for task in TRAINABLE}


def chosen(bench, task="rte", arm="add"):
    return median_runs(open_board(bench.path), arm)[task]


# Which run


@pytest.mark.parametrize(
    ("values", "seed"),
    [
        ((0.5,), 1),
        ((0.5, 0.7, 0.6), 3),
        ((0.7, 0.5), 2),
        ((0.9, 0.6, 0.7, 0.8), 3),
        ((0.6, 0.5, 0.6, 0.7), 1),
        ((0.5, 0.5, 0.5), 1),
        ((0.7, None, 0.6), 3),
        ((None, None, 0.6), 1),
        ((None,), 1),
    ],
    ids=["one", "middle", "lower of two", "lower middle", "tie", "all tie", "undefined is low", "undefined", "nothing"],
)
def test_the_run_is_the_median_over_seeds(bench, values, seed):
    for number, value in enumerate(values, 1):
        bench.finish("rte", number, value)
    bench.plan()
    assert chosen(bench).seed == seed


def test_the_mean_over_the_scored_splits_decides(bench):
    for seed, (matched, mismatched) in enumerate([(0.9, 0.5), (0.6, 0.6), (0.5, 0.8)], 1):
        splits = {"validation_matched": matched, "validation_mismatched": mismatched}
        bench.finish("mnli", seed, {split: {"accuracy": value} for split, value in splits.items()})
    bench.plan()
    assert chosen(bench, "mnli").seed == 3
    assert chosen(bench, "mnli").value == pytest.approx(65)


def test_only_the_main_metric_decides(bench):
    for seed, (accuracy, f1) in enumerate([(0.5, 0.9), (0.6, 0.1), (0.7, 0.5)], 1):
        bench.finish("mrpc", seed, {"accuracy": accuracy, "f1": f1})
    bench.plan()
    assert chosen(bench, "mrpc").seed == 2


def test_the_run_is_at_the_rate_that_the_board_reports(bench):
    for rate, value in ((1e-5, 0.6), (2e-5, 0.8), (3e-5, 0.7)):
        bench.finish("rte", 1, value, rate=rate)
    bench.expect("rte", 2, rate=2e-5)
    bench.finish("rte", 1, 0.9, rate=1e-5, arm="none")
    bench.plan()
    assert chosen(bench).learning_rate == 2e-5
    assert chosen(bench, arm="none").learning_rate == 1e-5


# What is in it


def test_a_whole_experiment_gives_a_zip_without_findings(bench):
    logits = finish_all(bench)
    bench.plan()
    submission = gather(open_board(bench.path))
    assert not submission.missing
    assert lint(submission.zip()) == []
    rows = submission.files["QNLI.tsv"].decode().split("\n")[1:-1]
    expected = np.array(["entailment", "not_entailment"])[logits["qnli"]["test"].argmax(axis=1)]
    assert [row.split("\t")[1] for row in rows] == expected.tolist()


def test_the_diagnostic_set_is_predicted_by_the_model_of_mnli(bench):
    logits = finish_all(bench)
    bench.plan()
    rows = gather(open_board(bench.path)).files["AX.tsv"].decode().split("\n")[1:-1]
    expected = np.array(["entailment", "neutral", "contradiction"])[logits["mnli"]["test_ax"].argmax(axis=1)]
    assert [row.split("\t")[1] for row in rows] == expected.tolist()


def test_everything_that_is_missing_is_named_with_its_reason(bench):
    finish(bench, "rte")
    finish(bench, "qqp", without=["test"])
    finish(bench, "mnli", without=["test_ax"])
    bench.expect("cola")
    bench.plan()
    missing = gather(open_board(bench.path)).missing
    assert set(missing) == set(FILES) - {"RTE.tsv", "MNLI-m.tsv", "MNLI-mm.tsv"}
    assert missing["CoLA.tsv"] == "no finished run of cola"
    assert missing["QQP.tsv"] == "'add-qqp-lr2e-05-s1' has predicted no split 'test'"
    assert missing["AX.tsv"] == "'add-mnli-lr2e-05-s1' has predicted no AX"


def test_filling_names_what_it_filled_and_passes_the_linter(bench):
    finish(bench, "rte")
    bench.plan()
    submission = gather(open_board(bench.path))
    filled = fill(submission)
    assert filled.filled == tuple(name for name in FILES if name != "RTE.tsv")
    assert filled.files["RTE.tsv"] == submission.files["RTE.tsv"]
    assert lint(filled.zip()) == []


def test_predictions_of_other_sizes_are_found_by_the_linter(bench):
    finish(bench, "rte", rows=12, source="demo")
    bench.plan()
    submission = fill(gather(open_board(bench.path)))
    assert submission.is_demo
    assert [str(finding) for finding in lint(submission.zip())] == ["RTE.tsv: 12 rows; expected 3000"]


def test_the_manifest_says_where_every_file_is_from(bench):
    for seed, value in ((1, 0.5), (2, 0.7), (3, 0.6)):
        finish(bench, "rte", seed, value)
    bench.plan()
    submission = fill(gather(open_board(bench.path), "add"))
    told = manifest(submission, "mine.zip")
    assert told["zip"] == "mine.zip"
    assert told["sha256"] == hashlib.sha256(submission.zip()).hexdigest()
    assert list(told["files"]) == list(FILES)
    assert told["files"]["RTE.tsv"] == {
        "rows": 3000,
        "cell_id": "add-rte-lr2e-05-s3",
        "split": "test",
        "data": digest("d"),
        "learning_rate": 2e-5,
        "seed": 3,
        "validation": 60.0,
    }
    assert told["files"]["WNLI.tsv"] == {"rows": 146, "filled": MAJORITY["wnli"]}


def test_the_manifest_states_the_score_of_the_epoch_that_predicted(bench):
    bench.record(bench.expect("rte"), 0.5, history=history_of("validation", "accuracy", 0.6, 0.7, 0.5))
    store_logits(bench, bench.cells[-1])
    bench.plan(config={"protocol": {"epoch": "best"}})
    assert chosen(bench).value == pytest.approx(70)
    assert manifest(gather(open_board(bench.path)), "x.zip")["files"]["RTE.tsv"]["validation"] == 50


def test_an_undefined_validation_score_is_null_in_the_manifest(bench):
    finish(bench, "stsb", value=None)
    bench.plan()
    assert manifest(gather(open_board(bench.path)), "x.zip")["files"]["STS-B.tsv"]["validation"] is None


def test_the_zip_is_the_same_every_time(bench):
    finish(bench, "rte")
    bench.plan()
    assert gather(open_board(bench.path)).zip() == gather(open_board(bench.path)).zip()
    other = replace(gather(open_board(bench.path)), files={"RTE.tsv": b"other"})
    assert other.zip() != gather(open_board(bench.path)).zip()


# Bad input


def test_a_zip_is_not_replaced_by_its_manifest(bench, tmp_path):
    finish(bench, "rte")
    bench.plan()
    with pytest.raises(UserError, match=r"add\.json': the name of a submission ends in \.zip"):
        write_submission(gather(open_board(bench.path)), tmp_path / "add.json")
    assert not list(tmp_path.glob("add.*"))


def test_an_unknown_arm_is_refused_with_the_nearest(bench):
    finish(bench, "rte")
    bench.plan()
    with pytest.raises(UserError, match="unknown arm 'ad' in toy; did you mean 'add'"):
        gather(open_board(bench.path), "ad")


def test_of_several_arms_one_must_be_named(bench):
    finish(bench, "rte")
    finish(bench, "rte", arm="none")
    bench.plan()
    with pytest.raises(UserError, match="--arm says which arm: add, none"):
        gather(open_board(bench.path))


def test_an_arm_without_test_predictions_is_refused(bench):
    finish(bench, "rte", without=["test"])
    bench.finish("cola")
    bench.plan()
    with pytest.raises(UserError, match="no test predictions at all"):
        gather(open_board(bench.path))


def test_damaged_predictions_are_named(bench):
    finish(bench, "rte")
    bench.plan()
    bench.file("add-rte-lr2e-05-s1", "tests.safetensors").write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"add-rte-lr2e-05-s1/tests\.safetensors: cannot be read"):
        gather(open_board(bench.path))


def test_predictions_of_another_shape_are_named(bench):
    bench.finish("rte")
    bench.predict("add-rte-lr2e-05-s1", {"test": np.zeros((3, 3), np.float32)})
    bench.plan()
    with pytest.raises(UserError, match=r"predictions of 'add-rte-lr2e-05-s1', split 'test': rte: logits of shape"):
        gather(open_board(bench.path))
