"""Logs of Every Eval Ever: what they state, that their lines give the scores, and that its own validator takes them."""

import json
import math
import shutil
import subprocess
from hashlib import sha256
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from stored import ROWS, digest, history_of, labels_of

from glue_bench.data.tasks import TASKS
from glue_bench.errors import UserError
from glue_bench.tables import every_eval
from glue_bench.tables.board import open_board
from glue_bench.tables.every_eval import write_logs


class Texts:
    """Made-up texts for the made-up labels; `digest` is what the records say of their data."""

    digest = digest("d")

    def load(self, task):
        text = [f"\N{SNOWMAN} {row}" for row in range(ROWS)]
        columns = {"text_a": text} if task == "cola" else {"text_a": text, "text_b": text}
        frame = pd.DataFrame(columns | {"label": labels_of(task)})
        return SimpleNamespace(digest=self.digest, splits=dict.fromkeys(TASKS[task].columns, frame))


@pytest.fixture
def written(bench, tmp_path, monkeypatch):
    """Write the logs of what the bench holds; the arm's log, its lines, and what was told."""
    source = Texts()
    monkeypatch.setattr(every_eval, "open_source", lambda _: source)

    def write(arm="add", data="texts", of="d", plan=None):
        source.digest = digest(of)
        bench.plan(**plan or {})
        told = write_logs([open_board(bench.path)], tmp_path / "out", "my-lab", data)
        (path,) = [tmp_path / "out" / name for name in told["files"] if f"-{arm}/" in name and name.endswith("json")]
        log = json.loads(path.read_bytes())
        lines = path.with_name(f"{path.stem}_samples.jsonl")
        content = lines.read_bytes() if data else b""
        if data:
            said = log["detailed_evaluation_results"]
            assert (tmp_path / "out" / said["file_path"], said["total_rows"]) == (lines, content.count(b"\n"))
            assert said["checksum"] == sha256(content).hexdigest()
        return log, [json.loads(line) for line in content.splitlines()], told

    return write


def test_a_score_is_the_mean_with_its_standard_error_and_the_lines_give_it(bench, written):
    bench.finish_predicted("rte", "add", 0.7, seeds=3, spread=0.05)
    log, lines, _ = written()
    (result,) = log["evaluation_results"]
    values = [facts["scores"]["validation"]["accuracy"] for _, facts in bench.runs.values()]
    told = result["score_details"]
    assert told["score"] == pytest.approx(np.mean(values))
    assert told["uncertainty"]["standard_error"]["value"] == pytest.approx(np.std(values, ddof=1) / math.sqrt(3))
    assert told["uncertainty"]["num_samples"] == 3
    assert json.loads(told["details"]["runs"]) == [f"add-rte-lr2e-05-s{seed}" for seed in (1, 2, 3)]
    assert len(lines) == ROWS
    assert np.mean([line["evaluation"]["score"] for line in lines]) == pytest.approx(told["score"])
    assert {line["evaluation_result_id"] for line in lines} == {result["evaluation_result_id"]}
    assert {line["evaluation_id"] for line in lines} == {log["evaluation_id"]}
    for line in lines:
        (gold,), answers = line["input"]["reference"], line["output"]["raw"]
        assert line["evaluation"]["score"] == pytest.approx(np.mean([answer == gold for answer in answers]))
        assert line["evaluation"]["is_correct"] == (answers.count(gold) >= 2)
    assert lines[0]["input"]["raw"] == "\N{SNOWMAN} 0\n\N{SNOWMAN} 0"


def test_only_a_revision_that_the_record_knows_is_stated(bench, written):
    bench.record(bench.expect("rte"), 0.7, data={"source": "hub", "digest": "d", "revision": "r"})
    bench.finish("cola", source="hub")
    bench.plan()
    told = {each["source_data"]["dataset_name"]: each for each in written(data=None)[0]["evaluation_results"]}
    about = {name: each["source_data"]["additional_details"] for name, each in told.items()}
    assert about["GLUE RTE"]["revision"] == "r"
    assert "revision" not in about["GLUE CoLA"]


def test_one_run_has_a_standard_error_over_the_examples(bench, written):
    bench.finish_predicted("rte", "add", 0.7, seeds=1, spread=0)
    log, _, told = written(data=None)
    (result,) = log["evaluation_results"]
    uncertainty = result["score_details"]["uncertainty"]
    assert uncertainty["standard_error"]["value"] == pytest.approx(math.sqrt(0.7 * 0.3 / (ROWS - 1)))
    assert uncertainty["num_samples"] == ROWS
    assert "detailed_evaluation_results" not in log
    assert len(told["files"]) == 1


def test_a_similarity_is_scored_by_its_error(bench, written):
    bench.finish_predicted("stsb", "add", 0.8, seeds=1)
    log, lines, _ = written()
    assert [result["metric_config"]["metric_id"] for result in log["evaluation_results"]] == ["pearson", "spearmanr"]
    errors = [float(line["output"]["raw"][0]) - float(line["input"]["reference"][0]) for line in lines]
    assert [line["evaluation"]["score"] for line in lines] == pytest.approx(-np.abs(errors), abs=1e-3)
    assert 0 < sum(line["evaluation"]["is_correct"] for line in lines) < ROWS


def test_only_a_benchmarks_scores_are_stated(bench, new_bench, written, tmp_path):
    bench.finish_predicted("rte", "add", 0.7)
    bench.finish("mrpc", 1, 0.6, partial=True)
    log, _, told = written()
    assert {result["evaluation_name"] for result in log["evaluation_results"]} == {"glue.rte.validation"}
    assert told["left_out"] == {"toy": "run on a part of the official rows: MRPC"}
    demo = new_bench("demo")
    demo.finish("rte", 1, 0.6, source="demo")
    demo.plan()
    with pytest.raises(UserError, match=r"nothing to export .*its data are made up"):
        write_logs([open_board(demo.path)], tmp_path / "out", "my-lab")
    with pytest.raises(UserError, match="organization 'a/b': give letters"):
        write_logs([], tmp_path / "out", "a/b")


def test_lines_are_of_the_very_data_that_was_predicted(bench, written):
    bench.finish_predicted("rte", "add", 0.7, seeds=1)
    with pytest.raises(UserError, match="the data of rte are not those that 'add-rte-lr2e-05-s1' was made with"):
        written(of="e")
    bench.predict("add-rte-lr2e-05-s1", {"validation": np.zeros((3, 2))})
    with pytest.raises(UserError, match="has no predictions for each of validation's 400 rows"):
        written()


def test_an_earlier_epoch_has_a_score_but_no_lines_and_no_error_over_examples(bench, written):
    bench.finish_predicted("rte", "add", 0.7, seeds=1)
    bench.change("add-rte-lr2e-05-s1", history=history_of("validation", "accuracy", 0.9, 0.7))
    best = {"config": {"protocol": {"epoch": "best"}}}
    (result,) = written(data=None, plan=best)[0]["evaluation_results"]
    assert result["score_details"]["score"] == 0.9
    assert "uncertainty" not in result["score_details"]
    with pytest.raises(
        UserError, match="the score of 'add-rte-lr2e-05-s1' is of an earlier epoch than its predictions"
    ):
        written(plan=best)


@pytest.mark.skipif(not shutil.which("every_eval_ever"), reason="its validator needs Python 3.12: docs/contributing.md")
def test_its_own_validator_finds_no_fault(bench, written, tmp_path):
    for task in ("cola", "stsb", "mnli", "mrpc"):
        for arm in ("add", "untied"):
            bench.finish_predicted(task, arm, 0.7, seeds=1 + (arm == "untied"))
    written()
    files = sorted(path.relative_to(tmp_path / "out") for path in (tmp_path / "out").rglob("*.json*"))
    command = ["every_eval_ever", "validate", "--format", "json", *map(str, files)]
    said = subprocess.run(command, cwd=tmp_path / "out", capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout
    assert '"warnings": [\n' not in said.stdout
