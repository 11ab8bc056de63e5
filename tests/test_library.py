"""What a verb does a function does, and each says how it is called."""

import json
from pathlib import Path

import pytest
from stored import bench
from typer.main import get_command

import glue_bench
from glue_bench.cli import app
from glue_bench.errors import UserError

__all__ = ["bench"]

VERBS = (
    *("run", "plan", "status", "leaderboard", "statistics", "power", "table", "analyse", "report"),
    *("convert", "submit", "export", "verify", "predictions", "card", "explain", "intrinsic", "load_plugins"),
)


@pytest.fixture
def finished(bench):
    """Two arms with predictions on RTE, and a cell that is missing."""
    for arm, accuracy in (("add", 0.6), ("untied", 0.9)):
        bench.finish_predicted("rte", arm, accuracy)
    bench.expect("rte", 4, arm="untied")
    return bench.plan()


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_a_function_with_an_example(verb):
    assert verb in dir(glue_bench)
    text = getattr(glue_bench, verb).__doc__
    assert f"glue_bench.{verb}(" in text
    assert "Raises:" in text


def test_all_verbs_about_results_are_functions_but_one():
    others = {"demo", "init", "fetch-data", "data", "tasks", "variants"}
    assert set(get_command(app).commands) - others - set(dir(glue_bench)) == {"diagnostics"}


@pytest.mark.usefixtures("small_demo")
def test_a_plan_has_a_row_for_each_cell(tiny, tmp_path):
    frame = glue_bench.plan(tiny(seeds=[1, 2]), results=tmp_path)
    assert frame[["arm", "task", "seed"]].head(2).to_numpy().tolist() == [["add", "cola", 1], ["none", "cola", 1]]
    assert (len(frame), set(frame["state"])) == (8, {"missing"})
    assert not list(tmp_path.iterdir())


def test_a_status_tells_what_is_done(finished):
    assert glue_bench.status(finished)["state"].to_list() == ["done"] * 6 + ["missing"]


def test_predictions_give_the_scores(finished):
    frame = glue_bench.predictions(finished, task="RTE")
    assert len(frame) == 6 * 400
    scores = (frame["predicted"] == frame["label"]).groupby(frame["cell_id"]).mean()
    for cell_id, score in scores.items():
        record = json.loads((finished / "records" / f"{cell_id}.json").read_bytes())
        assert record["scores"]["validation"]["accuracy"] == pytest.approx(score)
    assert glue_bench.predictions(finished, task="mnli").empty


def test_statistics_and_power_are_frames(finished):
    frame = glue_bench.statistics(finished, equivalent=1.0, pairs=True)
    assert set(frame["kind"]) == {"reference", "pair"}
    assert frame.loc[frame["kind"] == "reference", "arm"].unique().tolist() == ["untied"]
    assert "untied" not in glue_bench.power(finished, 1.0).columns
    with pytest.raises(UserError, match="give points above 0"):
        glue_bench.power(finished, -1.0)


def test_a_bundle_is_good(finished, tmp_path):
    manifest = glue_bench.export(finished, tmp_path / "toy.zip")
    assert manifest["experiments"]["toy"]["records"] == 6


def test_a_submission_without_predictions_is_refused(finished, tmp_path):
    with pytest.raises(UserError, match="no test predictions at all"):
        glue_bench.submit(finished, tmp_path / "add.zip", arm="add")


def test_a_leaderboard_is_a_table_in_a_notebook(finished):
    shown = glue_bench.leaderboard(finished)._repr_html_()
    assert "<table" in shown
    assert "untied" in shown


@pytest.mark.parametrize("given", ["mine.txt", Path("mine.txt"), ["mine.txt"]])
def test_one_text_or_plugin_needs_no_list(tiny, tmp_path, given):
    pretrained = tiny(pretraining={"corpus": "demo", "steps": 1, "length": 32})
    for options, experiment in ({"corpus": given}, pretrained), ({"plugins": given}, tiny()):
        with pytest.raises(UserError, match=r"mine\.txt"):
            glue_bench.plan(experiment, results=tmp_path, **options)
