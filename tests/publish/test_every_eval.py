"""Logs of Every Eval Ever: what they state, and that the project's own validator takes them."""

import json
import math
import shutil
import subprocess
from typing import Any, NamedTuple

import numpy as np
import pytest
from helpers.tiny_runs import contents

from glue_bench.board.board import open_board
from glue_bench.errors import UserError
from glue_bench.publish.every_eval import write_logs


class Logs(NamedTuple):
    """The results in the log of the arm `add` by their ids, and what `write_logs` returned."""

    results: dict[str, Any]
    summary: dict[str, Any]


@pytest.fixture
def write(bench, tmp_path):
    """A function that writes the logs of the bench and reads them."""

    def write(**plan) -> Logs:
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        summary = write_logs([open_board(bench.plan(**plan))], tmp_path / "out", "my-lab")
        (name,) = [name for name in summary["files"] if "-add/" in name]
        log = json.loads((tmp_path / "out" / name).read_bytes())
        results = {}
        for result in log["evaluation_results"]:
            results[result["evaluation_result_id"]] = result
        return Logs(results, summary)

    return write


def test_a_score_is_the_mean_with_its_standard_error(bench, write):
    bench.finish_predicted("rte", "add", 0.7, seeds=3, spread=0.05)
    (result,) = write().results.values()
    values = [facts["scores"]["validation"]["accuracy"] for _, facts in bench.runs.values()]
    score = result["score_details"]
    uncertainty = score["uncertainty"]
    deviation = np.std(values, ddof=1)
    assert score["score"] == pytest.approx(np.mean(values))
    expected = deviation / math.sqrt(3)
    assert uncertainty["standard_error"]["value"] == pytest.approx(expected)
    assert uncertainty["standard_deviation"] == pytest.approx(deviation)
    assert uncertainty["num_samples"] == 3
    runs = [f"add-rte-lr2e-05-s{seed}" for seed in (1, 2, 3)]
    assert json.loads(score["details"]["runs"]) == runs


def test_the_score_of_one_run_has_no_uncertainty(bench, write):
    bench.finish("cola")
    (result,) = write().results.values()
    assert "uncertainty" not in result["score_details"]


def test_only_a_revision_that_the_record_knows_is_stated(bench, write):
    bench.record(
        bench.expect("rte"), score=0.7, data={"source": "hub", "digest": "d", "revision": "r"}
    )
    bench.finish("cola", source="hub")
    details = {}
    for name, result in write().results.items():
        details[name] = result["source_data"]["additional_details"]
    assert details["glue.rte.validation.accuracy"]["revision"] == "r"
    assert "revision" not in details["glue.cola.validation.matthews_correlation"]


def test_a_part_of_a_task_is_left_out(bench, write):
    bench.finish_predicted("rte", "add", 0.7)
    bench.finish("mrpc", seed=1, score=0.6, partial=True)
    logs = write()
    assert set(logs.results) == {"glue.rte.validation.accuracy"}
    assert logs.summary["left_out"] == {"toy": "run on a part of the official rows: MRPC"}


def test_made_up_data_are_refused(new_bench, tmp_path):
    demo = new_bench("demo")
    demo.finish("rte", seed=1, score=0.6, source="demo")
    with pytest.raises(UserError, match=r"nothing to export .*its data are made up"):
        write_logs([open_board(demo.plan())], tmp_path / "out", "my-lab")


@pytest.mark.parametrize("name", ["a/b", "data"])
def test_an_organization_that_cannot_be_part_of_a_path_is_refused(name, tmp_path):
    with pytest.raises(UserError, match=f"organization '{name}': give letters"):
        write_logs([], tmp_path / "out", name)


def test_other_rows_are_left_out(bench, write):
    bench.finish("cola")
    data = {
        "source": "tsv",
        "digest": "d",
        "partial": True,
        "differences": {"validation": "other rows"},
    }
    bench.record(bench.expect("rte"), score=0.7, data=data)
    logs = write()
    reason = "run on other rows than the official ones: RTE"
    assert logs.summary["left_out"] == {"toy": reason}
    assert {name.split(".")[1] for name in logs.results} == {"cola"}


def test_the_hub_is_not_stated_for_what_was_not_compared_with_it(bench, write):
    data = {"source": "tsv", "digest": "d", "unchecked": ("validation",)}
    bench.record(bench.expect("qqp"), score=0.7, data=data)
    source = write().results["glue.qqp.validation.accuracy"]["source_data"]
    assert source["source_type"] == "other"
    assert "hf_repo" not in source


def test_equal_logs_have_one_name(bench, tmp_path):
    bench.finish_predicted("rte", "add", 0.7)
    board = open_board(bench.plan())
    (path,) = write_logs([board], tmp_path / "out", "my-lab")["files"]
    assert write_logs([board], tmp_path / "out", "my-lab")["files"] == [path]


def test_another_log_of_a_model_is_refused_and_stays(bench, tmp_path):
    """Of two logs nobody could tell which counts."""
    bench.finish_predicted("rte", "add", 0.7)
    (path,) = write_logs([open_board(bench.plan())], tmp_path / "out", "my-lab")["files"]
    bench.finish("cola")
    files = contents(tmp_path / "out")
    line = f"{path}' is another log of the same model; delete it, or choose another"
    with pytest.raises(UserError, match=line):
        write_logs([open_board(bench.plan())], tmp_path / "out", "my-lab")
    assert contents(tmp_path / "out") == files


def test_two_experiments_with_an_arm_of_one_name_are_refused(bench, new_bench, tmp_path):
    bench.finish_predicted("rte", "add", 0.7)
    second = new_bench("elsewhere")
    second.finish_predicted("rte", "add", 0.6)
    boards = [open_board(bench.plan()), open_board(second.plan(experiment="toy"))]
    line = r"an experiment and an arm of one name \(toy-add\); export each to a place"
    with pytest.raises(UserError, match=line):
        write_logs(boards, tmp_path / "both", "my-lab")
    assert not (tmp_path / "both").exists()


@pytest.mark.skipif(
    not shutil.which("every_eval_ever"), reason="its validator needs Python 3.12: CONTRIBUTING.md"
)
def test_its_own_validator_finds_no_fault(bench, write, tmp_path):
    for task in ("cola", "stsb", "mnli", "mrpc"):
        bench.finish_predicted(task, "add", 0.7, seeds=1)
        bench.finish_predicted(task, "untied", 0.7, seeds=2)
    write()
    folder = tmp_path / "out"
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.json"))
    command = ["every_eval_ever", "validate", "--format", "json", *files]
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout
    assert '"warnings": [\n' not in process.stdout
