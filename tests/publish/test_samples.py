"""Predictions on single examples as Every Eval Ever has them, and as `compare` reads them."""

import json
from collections import Counter
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import numpy as np
import pytest
from helpers.stored import ROWS, Bench, history_of

from glue_bench.board.board import open_board
from glue_bench.board.column_runs import OTHER_EPOCH
from glue_bench.board.versus import compare_paths
from glue_bench.data.measures import AVERAGE
from glue_bench.publish.every_eval import write_logs
from glue_bench.publish.samples import REGRESSION_REASON

SCHEMAS = Path(__file__).with_name("every_eval_ever")


@cache
def validator(name: str) -> jsonschema.Draft7Validator:
    """Return a schema of the project: of logs (`eval`), or of lines (`instance_level_eval`)."""
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    return jsonschema.Draft7Validator(schema)


class Written(NamedTuple):
    """What was written of one arm: its log, its lines, and where these are."""

    log: dict[str, Any]
    lines: list[dict[str, Any]]
    samples: Path


def write(bench: Bench, out: Path, **plan: Any) -> dict[str, Written]:
    """Write the logs of a bench, and read those of each arm that has lines."""
    summary = write_logs([open_board(bench.plan(**plan))], out, "my-lab")
    written: dict[str, Written] = {}
    for name in summary["samples"]:
        samples = out / name
        log_file = out / name.replace("_samples.jsonl", ".json")
        log = json.loads(log_file.read_bytes())
        lines = [json.loads(line) for line in samples.read_text().splitlines()]
        arm = log["model_info"]["name"].removeprefix("toy-")
        written[arm] = Written(log, lines, samples)
    return written


def two_arms(folder: Path) -> Bench:
    """Write two arms with three runs on RTE and MNLI, of which all predictions are stored."""
    bench = Bench(folder)
    for arm, accuracy in (("add", 0.6), ("untied", 0.8)):
        bench.finish_predicted("rte", arm, accuracy, spread=0.1)
        bench.finish_predicted("mnli", arm, accuracy, spread=0.1)
    assert len(bench.runs) == 12
    return bench


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    """The folder of the two arms."""
    return tmp_path_factory.mktemp("samples") / "toy"


@pytest.fixture(scope="module")
def written(results, tmp_path_factory) -> dict[str, Written]:
    """What was written of them."""
    return write(two_arms(results), tmp_path_factory.mktemp("written") / "out")


def test_logs_and_lines_are_valid_against_the_projects_schemas(written):
    for arm in written.values():
        validator("eval").validate(arm.log)
        for line in arm.lines:
            validator("instance_level_eval").validate(line)


def test_a_log_names_its_file_with_its_digest_and_its_rows(written):
    """The project refuses a file that is not what its log says."""
    for arm in written.values():
        facts = arm.log["detailed_evaluation_results"]
        assert arm.samples.as_posix().endswith(facts["file_path"])
        assert facts["checksum"] == sha256(arm.samples.read_bytes()).hexdigest()
        assert facts["total_rows"] == len(arm.lines)


def test_every_line_belongs_to_the_log(written):
    for arm in written.values():
        names = {result["evaluation_result_id"] for result in arm.log["evaluation_results"]}
        for line in arm.lines:
            assert line["evaluation_id"] == arm.log["evaluation_id"]
            assert line["model_id"] == arm.log["model_info"]["id"]
            assert line["evaluation_result_id"] in names


def test_there_is_a_line_for_each_run_and_example(written):
    counts = Counter(line["evaluation_name"] for line in written["add"].lines)
    expected = {
        "glue.rte.validation": 3 * ROWS,
        "glue.mnli.validation_matched": 3 * ROWS,
        "glue.mnli.validation_mismatched": 3 * ROWS,
    }
    assert counts == expected


def test_the_mean_of_the_lines_is_the_score_of_the_log(written):
    for arm in written.values():
        for result in arm.log["evaluation_results"]:
            name = result["evaluation_result_id"]
            lines = [line for line in arm.lines if line["evaluation_result_id"] == name]
            scores = [line["evaluation"]["score"] for line in lines]
            assert sum(scores) / len(scores) == pytest.approx(result["score_details"]["score"])


def test_a_line_is_right_where_its_prediction_is_the_reference(written):
    answers = set()
    for line in written["add"].lines:
        (prediction,) = line["output"]["raw"]
        (reference,) = line["input"]["reference"]
        assert line["evaluation"]["is_correct"] is (prediction == reference)
        assert prediction in line["input"]["choices"]
        answers.add(prediction)
    assert answers == {"entailment", "not_entailment", "neutral", "contradiction"}


def test_compare_reads_the_lines_as_it_reads_the_folder(results, written):
    """Seeds, examples and scores come back, so that the verdict on each column is the same.

    That on the average is not: a file does not say that one run is scored on both sets of MNLI.
    """
    files = [arm.samples for arm in written.values()]
    contrasts = compare_paths(files, reference="my-lab/toy-add").contrasts
    expected = compare_paths([results], reference="add").contrasts
    for name in ("difference", "low", "high", "p_adjusted"):
        values = expected.loc[expected["column"] != AVERAGE, name].tolist()
        found = contrasts.loc[contrasts["column"] != AVERAGE, name].tolist()
        assert found == pytest.approx(values), name


def test_clusters_of_examples_come_back(tmp_path):
    """Rows of MNLI that share a premise count as one; the tests' labels say which."""
    bench = two_arms(tmp_path / "toy")
    labels = bench.labels["mnli"]
    pairs = np.arange(ROWS) // 2
    bench.labels["mnli"] = labels | {"clusters": dict.fromkeys(labels["gold"], pairs)}
    files = [arm.samples for arm in write(bench, tmp_path / "out").values()]
    versus = compare_paths(files, reference="my-lab/toy-add", cluster="cluster").contrasts
    expected = compare_paths([bench.path], reference="add").contrasts
    task = "glue.mnli.validation_matched"
    (low,) = versus.loc[versus["task"] == task, "low"]
    assert low == pytest.approx(expected.set_index("column")["low"]["mnli_m"])
    without = compare_paths(files, reference="my-lab/toy-add").contrasts
    assert low != pytest.approx(without.set_index("task")["low"][task])


def test_a_regression_has_no_lines_and_the_log_says_why(bench, tmp_path):
    bench.finish_predicted("rte", "add", 0.7)
    bench.finish_predicted("stsb", "add", 0.7)
    log, lines, _ = write(bench, tmp_path / "out")["add"]
    assert {line["evaluation_name"] for line in lines} == {"glue.rte.validation"}
    assert log["detailed_evaluation_results"]["additional_details"] == {"stsb": REGRESSION_REASON}


def test_a_score_of_an_earlier_epoch_has_no_lines(bench, tmp_path):
    """The predictions that are stored are those of the last epoch."""
    bench.finish_predicted("mrpc", "add", 0.7, seeds=1)
    bench.finish_predicted("rte", "add", 0.7, seeds=1)
    cell, facts = bench.runs["add-rte-lr2e-05-s1"]
    last = facts["scores"]["validation"]["accuracy"]
    facts["history"] = history_of("validation", "accuracy", 0.9, last)
    bench.runs["add-rte-lr2e-05-s1"] = cell, facts
    log, lines, _ = write(bench, tmp_path / "out", config={"protocol": {"epoch": "best"}})["add"]
    assert {line["evaluation_name"] for line in lines} == {"glue.mrpc.validation"}
    assert log["detailed_evaluation_results"]["additional_details"] == {"rte": OTHER_EPOCH}


def test_without_predictions_there_is_a_log_alone(bench, tmp_path):
    bench.finish("rte")
    assert write(bench, tmp_path / "out") == {}
