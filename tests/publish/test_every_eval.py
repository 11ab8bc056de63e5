"""Logs of Every Eval Ever: what they state, and that the project's own validator takes them."""

import json
import math
import shutil
import subprocess

import numpy as np
import pytest
from helpers.tiny_runs import contents

from glue_bench.board.board import open_board
from glue_bench.errors import UserError
from glue_bench.publish.every_eval import write_logs


@pytest.fixture
def results(bench, tmp_path):
    """Write the logs of what the bench holds; the results in that of `add` by their names, and what was told."""

    def write(**plan):
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        told = write_logs([open_board(bench.plan(**plan))], tmp_path / "out", "my-lab")
        (path,) = [tmp_path / "out" / name for name in told["files"] if "-add/" in name]
        log = json.loads(path.read_bytes())
        return {
            result["evaluation_result_id"]: result for result in log["evaluation_results"]
        }, told

    return write


def test_a_score_is_the_mean_with_its_standard_error(bench, results):
    bench.finish_predicted("rte", "add", 0.7, seeds=3, spread=0.05)
    (result,) = results()[0].values()
    values = [facts["scores"]["validation"]["accuracy"] for _, facts in bench.runs.values()]
    told = result["score_details"]
    assert told["score"] == pytest.approx(np.mean(values))
    assert told["uncertainty"]["standard_error"]["value"] == pytest.approx(
        np.std(values, ddof=1) / math.sqrt(3)
    )
    assert told["uncertainty"]["standard_deviation"] == pytest.approx(np.std(values, ddof=1))
    assert told["uncertainty"]["num_samples"] == 3
    assert json.loads(told["details"]["runs"]) == [f"add-rte-lr2e-05-s{seed}" for seed in (1, 2, 3)]
    bench.finish("cola")
    assert (
        "uncertainty"
        not in results()[0]["glue.cola.validation.matthews_correlation"]["score_details"]
    )


def test_only_a_revision_that_the_record_knows_is_stated(bench, results):
    bench.record(bench.expect("rte"), 0.7, data={"source": "hub", "digest": "d", "revision": "r"})
    bench.finish("cola", source="hub")
    about = {name: each["source_data"]["additional_details"] for name, each in results()[0].items()}
    assert about["glue.rte.validation.accuracy"]["revision"] == "r"
    assert "revision" not in about["glue.cola.validation.matthews_correlation"]


def test_only_a_benchmarks_scores_are_stated(bench, new_bench, results, tmp_path):
    bench.finish_predicted("rte", "add", 0.7)
    bench.finish("mrpc", 1, 0.6, partial=True)
    stated, told = results()
    assert set(stated) == {"glue.rte.validation.accuracy"}
    assert told["left_out"] == {"toy": "run on a part of the official rows: MRPC"}
    demo = new_bench("demo")
    demo.finish("rte", 1, 0.6, source="demo")
    with pytest.raises(UserError, match=r"nothing to export .*its data are made up"):
        write_logs([open_board(demo.plan())], tmp_path / "out", "my-lab")
    for name in ("a/b", "data"):
        with pytest.raises(UserError, match=f"organization '{name}': give letters"):
            write_logs([], tmp_path / "out", name)


def test_other_rows_are_left_out_and_the_hub_is_not_stated_for_what_was_not_compared(
    bench, results
):
    bench.record(
        bench.expect("qqp"),
        0.7,
        data={"source": "tsv", "digest": "d", "unchecked": ("validation",)},
    )
    others = {"partial": True, "differences": {"validation": "other rows"}}
    bench.record(bench.expect("rte"), 0.7, data={"source": "tsv", "digest": "d", **others})
    stated, told = results()
    assert told["left_out"] == {"toy": "run on other rows than the official ones: RTE"}
    assert {name.split(".")[1] for name in stated} == {"qqp"}
    source = stated["glue.qqp.validation.accuracy"]["source_data"]
    assert source["source_type"] == "other"
    assert "hf_repo" not in source


def test_two_logs_of_a_model_never_lie_beside_each_other(bench, new_bench, tmp_path):
    """Equal ones have one name. Of others nobody could tell which counts, whoever has put them there."""
    bench.finish_predicted("rte", "add", 0.7)
    board = open_board(bench.plan())
    (place,) = write_logs([board], tmp_path / "out", "my-lab")["files"]
    assert write_logs([board], tmp_path / "out", "my-lab")["files"] == [place]
    bench.finish("cola")
    files = contents(tmp_path / "out")
    with pytest.raises(
        UserError, match=f"{place}' is another log of the same model; delete it, or choose another"
    ):
        write_logs([open_board(bench.plan())], tmp_path / "out", "my-lab")
    assert contents(tmp_path / "out") == files
    other = new_bench("elsewhere")
    other.finish_predicted("rte", "add", 0.6)
    boards = [board, open_board(other.plan(experiment="toy"))]
    with pytest.raises(
        UserError, match=r"an experiment and an arm of one name \(toy-add\); export each to a place"
    ):
        write_logs(boards, tmp_path / "both", "my-lab")
    assert not (tmp_path / "both").exists()


@pytest.mark.skipif(
    not shutil.which("every_eval_ever"), reason="its validator needs Python 3.12: CONTRIBUTING.md"
)
def test_its_own_validator_finds_no_fault(bench, results, tmp_path):
    for task in ("cola", "stsb", "mnli", "mrpc"):
        for arm in ("add", "untied"):
            bench.finish_predicted(task, arm, 0.7, seeds=1 + (arm == "untied"))
    results()
    files = sorted(
        path.relative_to(tmp_path / "out") for path in (tmp_path / "out").rglob("*.json")
    )
    command = ["every_eval_ever", "validate", "--format", "json", *map(str, files)]
    said = subprocess.run(
        command, cwd=tmp_path / "out", capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stdout
    assert '"warnings": [\n' not in said.stdout
