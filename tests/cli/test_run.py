"""The verbs that run experiments: what they print, where, and their exit statuses."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from glue_bench import __version__
from glue_bench.config import load_experiment
from glue_bench.records.store import Store
from glue_bench.records.values import Failure, Progress

ROOT = Path(__file__).parents[2]
GOES_ON = "finished jobs are kept; the same command goes on from here\n"
pytestmark = pytest.mark.usefixtures("small_demo")


# run


def test_run_prints_the_leaderboard_and_what_was_done(glue_bench, config, tmp_path):
    folder = tmp_path / "runs" / "tiny"
    said = glue_bench("run", config, "--results", tmp_path / "runs")
    assert said.status == 0
    assert "▲ ▼ better, worse than the reference; bold best" in said.out
    assert max(len(line) for line in said.out.splitlines()[:-2] if str(tmp_path) not in line) <= 80
    assert "2 cells run, 0 were done before, 0 failed, 0 left" in said.out
    assert f"results: {folder}" in said.out
    assert said.out.splitlines()[-2:] == [
        f"page: {folder / 'report.html'}",
        "next: glue-bench run --checkpoint NAME --task rte (any encoder of the hub)",
    ]
    assert "[2/2] none on cola" in said.err
    again = glue_bench("run", config, "--results", tmp_path / "runs")
    assert again.status == 0
    assert "0 cells run, 2 were done before, 0 failed, 0 left" in again.out


def test_the_page_is_written_last_and_not_by_a_dry_run(glue_bench, config, tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(
        "glue_bench.api.write_page",
        lambda comparison: written.append((comparison.board.results.folder / "leaderboard.md").is_file()),
    )
    glue_bench("run", config, "--results", tmp_path, "--dry-run")
    assert written == []
    glue_bench("run", config, "--results", tmp_path, "--only", "arm=add")
    assert written == [True]


def raising(error: BaseException):
    def does() -> None:
        raise error

    return does


@pytest.fixture
def moody_config(tiny, write_yaml) -> Path:
    return write_yaml(tiny(arms=["add", "moody"], tasks=["cola"]))


def test_a_failing_cell_is_named_and_the_status_is_1(glue_bench, moody_config, tmp_path, moody):
    moody(raising(RuntimeError("out of luck")))
    said = glue_bench("run", moody_config, "--results", tmp_path)
    assert said.status == 1
    assert "1 cells run, 0 were done before, 1 failed, 0 left" in said.out
    assert "failed: moody-cola-lr0.001-s1-" in said.err
    assert said.out.endswith(f"next: glue-bench status {tmp_path / 'tiny'} (why runs have failed)\n")
    assert "RuntimeError: out of luck" in said.err
    assert "Traceback" not in said.err
    status = glue_bench("status", tmp_path / "tiny")
    assert "failed: moody on cola, rate 0.001, seed 1: RuntimeError: out of luck" in status.out
    dry = glue_bench("run", moody_config, "--results", tmp_path, "--dry-run")
    assert dry.out.splitlines()[0] == "1 job: it failed: RuntimeError: out of luck"


ENDS = {"interrupted": (KeyboardInterrupt(), 130), "terminated": (None, 143)}


@pytest.mark.parametrize("cause", ENDS)
def test_what_is_finished_is_kept_when_a_run_is_ended(glue_bench, moody_config, tmp_path, moody, cause):
    error, status = ENDS[cause]
    moody(raising(error) if error else lambda: signal.raise_signal(signal.SIGTERM))
    before = signal.getsignal(signal.SIGTERM)
    said = glue_bench("run", moody_config, "--results", tmp_path)
    assert said.status == status
    assert "1 cells run, 0 were done before, 0 failed, 1 left" in said.out
    assert said.err.endswith(f"{cause}: {GOES_ON}")
    assert (tmp_path / "tiny" / "leaderboard.md").exists() == (cause == "interrupted")
    assert ("▲ ▼ better" in said.out) == (cause == "interrupted")
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_may_be_ended_before_any_cell(glue_bench, config, tmp_path, monkeypatch, number):
    """As its first step is to find where the text and the data are kept."""
    monkeypatch.setattr("platformdirs.user_cache_path", lambda _: signal.raise_signal(number))
    monkeypatch.delenv("GLUE_BENCH_CACHE")
    monkeypatch.setattr("glue_bench.files.user_cache_path", lambda _: signal.raise_signal(number))
    said = glue_bench("run", config, "--results", tmp_path)
    assert (said.status, "Traceback" in said.err) == ({signal.SIGINT: 130, signal.SIGTERM: 143}[number], False)


def test_a_dry_run_says_what_would_run_and_why_and_writes_nothing(glue_bench, config, tmp_path):
    said = glue_bench("run", config, "--results", tmp_path / "runs", "--only", "arm=none", "--dry-run")
    assert said.status == 0
    assert said.out.splitlines() == [
        "1 job: not run yet",
        f"would run 1 of 1 cells, 0 are done, in {tmp_path / 'runs' / 'tiny'}",
    ]
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_names_what_has_changed(glue_bench, finished, tiny, write_yaml):
    changed = write_yaml(tiny(tasks=["cola"], finetuning={"weight_decay": 0.5}))
    said = glue_bench("run", changed, "--results", finished.parent, "--dry-run")
    assert said.out.splitlines()[0] == "2 jobs: finetuning.weight_decay 0.01 -> 0.5"


def test_a_plugin_joins_the_experiments_own(glue_bench, tiny, write_yaml, write_plugin, tmp_path, monkeypatch):
    write_plugin(name="first.py")
    second = write_plugin(write_plugin().read_text().replace("mine", "yours"), "second.py")
    config = write_yaml(tiny(arms=["mine", "yours"], tasks=["cola"], plugins=["first.py"]))
    monkeypatch.chdir(tmp_path)
    said = glue_bench("run", config, "--plugin", second, "--results", tmp_path, "--dry-run")
    assert said.status == 0, said.err
    assert said.out.startswith("2 jobs: not run yet\n")


# Without a file


def test_a_run_without_a_file_is_the_experiment_that_it_prints(glue_bench, make_bert, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    folder = make_bert("bert-tiny", texts=("one two three",))
    said = [("--checkpoint", folder), ("--arm", "add"), ("--arm", "native"), ("--task", "RTE"), ("--seed", 1)]
    words = [word for pair in said for word in pair]
    refusal = glue_bench("run", *words, "--data", "demo", "--limit", 16, "--dry-run")
    assert "lower max_length" in refusal.err  # of 32 positions
    printed = refusal.err.split("experiment:\n")[1].split("checking")[0].rstrip()
    assert printed.endswith('finetuning: {"learning_rates": [2e-05, 3e-05, 4e-05, 5e-05]}')
    config = tmp_path / "printed.yaml"
    config.write_text(f'{printed[:-1]}, "max_length": 32}}')
    found = glue_bench("run", config, "--dry-run")
    assert found.out.endswith("would run 8 of 8 cells, 0 are done, in runs/bert-tiny\n")


@pytest.mark.parametrize(
    ("checkpoint", "name"),
    [
        ("./модель-bert", "bert"),
        ("org/bert-base", "bert-base"),
        ("модель", "experiment"),
        ("x/" + "b" * 120, "b" * 100),
    ],
)
def test_a_run_without_a_file_has_a_name_that_is_one(glue_bench, checkpoint, name):
    said = glue_bench("run", "--checkpoint", checkpoint, "--arm", "add", "--data", "demo", "--dry-run")
    assert f'\nname: "{name}"\n' in said.err
    assert "mistake" not in said.err


# What a checkpoint or a plugin may lack


def test_a_hub_out_of_reach_says_how_to_give_a_folder(refused, tiny, write_yaml, tmp_path, monkeypatch):
    def unreachable(*_, **__):
        raise ConnectionError("no route to host")

    monkeypatch.setattr("huggingface_hub.snapshot_download", unreachable)
    said = refused("run", write_yaml(tiny(checkpoint="someone/some-bert")), "--results", tmp_path)
    assert "the hub cannot be reached" in said
    assert "give the folder of a downloaded copy instead" in said


def test_a_checkpoint_that_does_not_fit_is_refused(refused, tiny, write_yaml, make_bert, tmp_path):
    (tmp_path / "empty").mkdir()
    said = refused("run", write_yaml(tiny(checkpoint=str(tmp_path / "empty"))), "--results", tmp_path)
    assert "has no weights" in said
    words = make_bert("words", texts=("the quick brown fox jumps over the lazy dog",))
    values = tiny(checkpoint=str(make_bert("small", vocab_size=20)), tokenizer=str(words))
    said = refused("run", write_yaml(values), "--results", tmp_path)
    assert "embeds 20; give the tokenizer it was trained with" in said


def test_a_plugin_that_is_none_is_refused(refused, config, write_plugin, tmp_path):
    broken = write_plugin(write_plugin().read_text() + "    uses_position = False\n")
    for words in (["run", config, "--results", tmp_path / "runs"], ["variants"]):
        assert "variant 'mine' does not meet the contract: clause 'position'" in refused(*words, "--plugin", broken)
    assert not (tmp_path / "runs").exists()


# demo and init


def test_the_demo_is_the_experiment_that_comes_with_the_package():
    shipped = ROOT / "glue_bench" / "config" / "experiments" / "demo.yaml"
    assert shipped.read_bytes() == (ROOT / "configs" / "demo.yaml").read_bytes()


def test_init_writes_an_experiment_that_is_valid_and_overwrites_nothing(glue_bench, refused, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert "glue-bench run mine.yaml" in glue_bench("init", "mine").out
    experiment = load_experiment("mine.yaml")
    assert (experiment.name, [arm.variant for arm in experiment.arms]) == ("mine", ["add", "untied", "native"])
    text = Path("mine.yaml").read_text()
    assert "{" not in text.replace("# - {name: modernbert", "")
    assert "nothing is overwritten" in refused("init", "mine")
    assert Path("mine.yaml").read_text() == text
    for name in ("../mine", "x" * 101):
        assert "no name of an experiment" in refused("init", name)
    assert glue_bench("init", "x" * 100).status == 0
    assert load_experiment(f"{'x' * 100}.yaml").name == "x" * 100


def test_version_and_short_help(glue_bench):
    assert glue_bench("--version").out == f"glue-bench {__version__}\n"
    assert "analyse" in glue_bench("-h").out
    assert "--checkpoint" in glue_bench("run", "-h").out


@pytest.mark.parametrize("words", [("verify", ""), ("run", "x.yaml", "--data", ""), ("run", "x.yaml", "--data=")])
def test_an_empty_argument_is_refused(glue_bench, words):
    assert glue_bench(*words) == (2, "", "error: an argument is empty; give a name, or leave it out\n")


# status


@pytest.fixture
def part(glue_bench, tiny, write_yaml, tmp_path) -> Path:
    """An experiment of three cells, one of them done."""
    config = write_yaml(tiny(arms=["add"], tasks=["cola"], seeds=[1, 2, 3]))
    assert glue_bench("run", config, "--results", tmp_path, "--only", "seed=1").status == 0
    return tmp_path / "tiny"


def planned(folder: Path) -> list[str]:
    return [cell.id for cell in Store(folder).plan().cells]


def test_status_says_what_is_done_runs_has_failed_and_is_missing(glue_bench, part):
    store, (_, second, third) = Store(part), planned(part)
    now = time.time()
    store.write_progress(Progress(id=second, worker="here:1", began=now - 9, updated=now, step=3, steps=9, loss=0.5))
    for job in (third, "of-an-earlier-plan"):
        store.write_failure(Failure(id=job, error="out of luck"))
    said = glue_bench("status", part)
    lines = said.out.splitlines()
    assert [line.split() for line in lines[:2]] == [
        ["arm", "done", "running", "failed", "missing"], ["add", "1", "1", "1", "0"],
    ]  # fmt: skip
    assert lines[2].startswith("running: add on cola, rate 0.001, seed 2, step 3 of 9, loss 0.500")
    assert lines[3] == "failed: add on cola, rate 0.001, seed 3: out of luck"
    assert lines[-1] == f"1 of 3 cells done, 1 running, 1 failed, 0 missing in {part}"
    document = json.loads(glue_bench("status", part, "--format", "json").out)
    assert document["cells"] == {"done": 1, "running": 1, "failed": 1, "missing": 0}


@pytest.fixture
def watching(part):
    """Start `status --watch` on the folder; whatever becomes of the test, it ends."""
    with ExitStack() as started:

        def start(**streams) -> subprocess.Popen:
            words = [sys.executable, "-m", "glue_bench", "status", str(part), "--watch", "--interval", "0.1"]
            process = subprocess.Popen(words, **streams)
            started.enter_context(process)
            started.callback(process.kill)
            return process

        yield start


def test_in_a_pipe_there_is_a_line_a_change_until_nothing_is_missing(part, watching):
    store, (_, second, third) = Store(part), planned(part)
    process = watching(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout.readline().endswith(" 1 of 3 cells done, 0 running, 0 failed, 2 missing\n")
    store.write_failure(Failure(id=second, error="out of luck"))
    assert process.stdout.readline().endswith(" 1 of 3 cells done, 0 running, 1 failed, 1 missing\n")
    store.write_failure(Failure(id=third, error="out of luck"))
    rest, _ = process.communicate(timeout=600)
    assert "failed: add on cola, rate 0.001, seed 3: out of luck" in rest
    assert process.returncode == 1


@pytest.mark.skipif(os.name != "posix", reason="needs terminals")
def test_in_a_terminal_ctrl_c_ends_it_with_the_counts_and_no_traceback(watching):
    import pty

    main, terminal = pty.openpty()
    process = watching(stdout=terminal, stderr=terminal, stdin=terminal)
    os.close(terminal)
    shown = read_until(main, b"1 of 3 cells done")
    process.send_signal(signal.SIGINT)
    shown += read_until(main, b"missing in")
    assert process.wait(timeout=600) == 130
    os.close(main)
    assert b"Traceback" not in shown
    assert b"Aborted" not in shown


def read_until(handle: int, words: bytes) -> bytes:
    found, give_up = b"", time.monotonic() + 60
    while words not in found and time.monotonic() < give_up:
        if select.select([handle], [], [], 1)[0]:
            found += os.read(handle, 65536)
    assert words in found
    return found
