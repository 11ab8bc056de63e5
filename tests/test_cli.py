"""The command line: what it prints, where, and its exit statuses."""

import json
import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("small_demo")


@pytest.fixture
def config(tiny, write_yaml) -> Path:
    return write_yaml(tiny(tasks=["cola"]))


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Path:
    """Where the finished experiment stays, once a test has asked for it."""
    return tmp_path_factory.mktemp("kept")


@pytest.fixture
def finished(glue_bench, config, kept, tmp_path) -> Path:
    """The folder of a finished experiment, to be changed."""
    if not (kept / "tiny").exists():
        assert glue_bench("run", config, "--results", kept).status == 0
    return shutil.copytree(kept / "tiny", tmp_path / "runs" / "tiny")


def make_fail(monkeypatch, error: BaseException) -> None:
    """Every cell of the arm `none` raises."""
    from glue_bench.sweep import attempts

    finetune = attempts.finetune

    def perhaps(cell, *rest, **further):
        if cell.arm.name == "none":
            raise error
        return finetune(cell, *rest, **further)

    monkeypatch.setattr(attempts, "finetune", perhaps)


# run


def test_run_prints_the_leaderboard_and_what_was_done(glue_bench, config, tmp_path):
    said = glue_bench("run", config, "--results", tmp_path / "runs")
    assert said.status == 0
    assert "▲ ▼ better, worse than the reference; bold best" in said.out
    assert max(len(line) for line in said.out.splitlines() if str(tmp_path) not in line) <= 80
    assert "2 cells run, 0 were done before, 0 failed, 0 left" in said.out
    assert f"results: {tmp_path / 'runs' / 'tiny'}" in said.out
    assert said.out.splitlines()[-2:] == [
        f"page: {tmp_path / 'runs' / 'tiny' / 'report.html'}",
        "next: glue-bench run --checkpoint NAME --task rte (any encoder of the hub on a real task)",
    ]
    assert "[2/2] none on cola" in said.err
    again = glue_bench("run", config, "--results", tmp_path / "runs")
    assert again.status == 0
    assert "0 cells run, 2 were done before, 0 failed, 0 left" in again.out


def test_a_failing_cell_is_named_and_the_status_is_1(glue_bench, config, tmp_path, monkeypatch):
    make_fail(monkeypatch, RuntimeError("out of luck"))
    said = glue_bench("run", config, "--results", tmp_path)
    assert said.status == 1
    assert "1 cells run, 0 were done before, 1 failed, 0 left" in said.out
    assert "failed: none-cola-lr0.001-s1-" in said.err
    assert said.out.endswith(f"next: glue-bench status {tmp_path / 'tiny'} (why runs have failed)\n")
    assert "RuntimeError: out of luck" in said.err
    assert "Traceback" not in said.err
    status = glue_bench("status", tmp_path / "tiny")
    assert "failed: none-cola-lr0.001-s1-" in status.out
    assert "RuntimeError: out of luck" in status.out


def test_ctrl_c_in_a_cell_keeps_the_finished_ones(glue_bench, config, tmp_path, monkeypatch):
    make_fail(monkeypatch, KeyboardInterrupt())
    said = glue_bench("run", config, "--results", tmp_path)
    assert said.status == 130
    assert "1 cells run, 0 were done before, 0 failed, 1 left" in said.out
    assert "interrupted: finished cells are kept" in said.err


def test_ctrl_c_before_any_cell(glue_bench, config, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("glue_bench.sweep.work.plan_cells", interrupt)
    said = glue_bench("run", config, "--results", tmp_path)
    assert said.status == 130
    assert "Traceback" not in said.err


def test_a_dry_run_lists_cells_and_writes_nothing(glue_bench, config, tmp_path):
    said = glue_bench("run", config, "--results", tmp_path / "runs", "--only", "arm=none", "--dry-run")
    assert said.status == 0
    first, last = said.out.splitlines()
    assert first.startswith("none-cola-lr0.001-s1-")
    assert last == f"would run 1 of 1 cells, 0 are done, in {tmp_path / 'runs' / 'tiny'}"
    assert not (tmp_path / "runs").exists()


def test_a_plugin_joins_the_experiments_own(glue_bench, tiny, write_yaml, write_plugin, tmp_path, monkeypatch):
    write_plugin(name="first.py")
    second = write_plugin(write_plugin().read_text().replace("mine", "yours"), "second.py")
    config = write_yaml(tiny(arms=["mine", "yours"], tasks=["cola"], plugins=["first.py"]))
    monkeypatch.chdir(tmp_path)
    said = glue_bench("run", config, "--plugin", second, "--results", tmp_path, "--dry-run")
    assert said.status == 0, said.err
    assert [line.split("-")[0] for line in said.out.splitlines()[:-1]] == ["mine", "yours"]


# Bad input


def test_a_hub_out_of_reach_says_how_to_give_a_folder(refused, tiny, write_yaml, tmp_path, monkeypatch):
    def unreachable(*_, **__):
        raise ConnectionError("no route to host")

    monkeypatch.setattr("huggingface_hub.snapshot_download", unreachable)
    said = refused("run", write_yaml(tiny(checkpoint="someone/some-bert")), "--results", tmp_path)
    assert "the hub cannot be reached" in said
    assert "give the folder of a downloaded copy instead" in said


def test_a_checkpoint_without_weights_is_refused(refused, tiny, write_yaml, tmp_path):
    (tmp_path / "empty").mkdir()
    said = refused("run", write_yaml(tiny(checkpoint=str(tmp_path / "empty"))), "--results", tmp_path)
    assert "has no weights" in said


def test_a_vocabulary_that_does_not_fit_is_refused(refused, tiny, write_yaml, make_bert, tmp_path):
    words = make_bert("words", texts=("the quick brown fox jumps over the lazy dog",))
    values = tiny(checkpoint=str(make_bert("small", vocab_size=20)), tokenizer=str(words))
    said = refused("run", write_yaml(values), "--results", tmp_path)
    assert "embeds 20; give the tokenizer it was trained with" in said


def test_a_plugin_that_is_none_is_refused(refused, config, write_plugin, tmp_path):
    broken = write_plugin(write_plugin().read_text() + "    uses_position = False\n")
    for words in (["run", config, "--results", tmp_path / "runs"], ["variants"]):
        assert "cannot read plugin" in refused(*words, "--plugin", tmp_path / "none.py")
        assert "variant 'mine' does not meet the contract: clause 'position'" in refused(*words, "--plugin", broken)
    assert not (tmp_path / "runs").exists()


# status and leaderboard


def test_status_says_what_is_done_failed_and_missing(glue_bench, config, tmp_path):
    glue_bench("run", config, "--results", tmp_path, "--only", "arm=add")
    said = glue_bench("status", tmp_path / "tiny")
    rows = [line.split() for line in said.out.splitlines()]
    assert rows[:3] == [
        ["arm", "done", "running", "failed", "missing"], ["add", "1", "0", "0", "0"], ["none", "0", "0", "0", "1"],
    ]  # fmt: skip
    assert said.out.splitlines()[-1] == f"1 of 2 cells done in {tmp_path / 'tiny'}"


def test_the_leaderboard_is_recomputed_in_every_format(glue_bench, finished, tmp_path):
    assert glue_bench("leaderboard", finished).out == (finished / "leaderboard.md").read_text()
    assert glue_bench("leaderboard", finished, "--format", "csv").out == (finished / "leaderboard.csv").read_text()
    document = json.loads(glue_bench("leaderboard", finished, "--format", "json").out)
    assert [row["arm"] for row in document["rows"]] == ["add", "none", "majority class"]
    file = tmp_path / "board.csv"
    assert glue_bench("leaderboard", finished, "-o", file) == (0, "", "")
    assert file.read_text() == (finished / "leaderboard.csv").read_text()
    assert glue_bench("leaderboard", finished, "--format", "latex", "-o", file) == (0, "", "")
    assert file.read_text() == glue_bench("leaderboard", finished, "--format", "latex").out
    assert "\\toprule" in file.read_text()
    assert glue_bench("leaderboard", finished, "--format", "html").out.startswith("<!doctype html>")


def test_a_report_is_written_beside_the_tables_and_where_one_asks(glue_bench, refused, finished, tmp_path):
    assert glue_bench("report", finished).out == f"page: {finished / 'report.html'}\n"
    said = glue_bench("report", finished, "-o", tmp_path / "a.html", "--figures", tmp_path / "figures")
    assert said.out == f"page: {tmp_path / 'a.html'}\nfigures: {tmp_path / 'figures'}\n"
    assert (tmp_path / "a.html").read_bytes() == (finished / "report.html").read_bytes()
    assert "ends in .html" in refused("report", finished, "-o", tmp_path / "a.pdf")
    assert "there is no folder" in refused("report", finished, "-o", tmp_path / "no" / "a.html")
    assert "no experiment in" in refused("report", tmp_path)


def test_run_writes_the_report_last(glue_bench, config, tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(
        "glue_bench.api.write_page",
        lambda comparison: written.append((comparison.board.results.folder / "leaderboard.md").is_file()),
    )
    glue_bench("run", config, "--results", tmp_path, "--dry-run")
    assert written == []
    glue_bench("run", config, "--results", tmp_path, "--only", "arm=add")
    assert written == [True]


def test_a_damaged_record_is_named_and_the_rest_is_printed(glue_bench, finished):
    first, *others = sorted((finished / "records").iterdir())
    first.write_text("{")
    said = glue_bench("leaderboard", finished)
    assert said.status == 0
    assert f"| records/{first.name}: not valid JSON" in said.out
    assert f"{len(others)} of {len(others) + 1} planned" in said.out


def test_a_protocol_can_be_tried(glue_bench, refused, finished):
    assert "which is optimistic" in glue_bench("leaderboard", finished, "--protocol", "epoch=best").out
    assert "--protocol seeds: 'max' is not one of" in refused("leaderboard", finished, "--protocol", "seeds=max")


# What is there


def test_variants_and_tasks_are_listed(glue_bench):
    from glue_bench.data.tasks import TASKS
    from glue_bench.model.variants import VARIANTS

    variants, tasks = glue_bench("variants"), glue_bench("tasks")
    assert [line.split()[0] for line in variants.out.splitlines()[1:]] == list(VARIANTS)
    assert [line.split()[0] for line in tasks.out.splitlines()[1:]] == list(TASKS)
    assert all(variant.summary in variants.out for variant in VARIANTS.values())
    assert "matthews_correlation" in tasks.out
    assert "392702" in tasks.out


def test_variants_of_plugins_are_listed(glue_bench, write_plugin):
    said = glue_bench("variants", "--plugin", write_plugin())
    assert said.out.splitlines()[-1].split() == ["mine", "Mine", "my_variant.py"]


def test_data_shows_every_split(glue_bench):
    said = glue_bench("data", "demo")
    assert said.status == 0
    assert [line.split()[:3] for line in said.out.splitlines() if line.startswith("rte")] == [
        ["rte", "train", "48"],
        ["rte", "validation", "24"],
        ["rte", "test", "12"],
    ]
    assert said.out.splitlines()[-1].startswith("demo: cola, sst2")
