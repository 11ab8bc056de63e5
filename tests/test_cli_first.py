"""The first minutes: the demo, an experiment to begin with, a run without a file, and GLUE from the hub."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from glue_bench import __version__
from glue_bench.cli import sweeps
from glue_bench.config import parse_experiment

ROOT = Path(__file__).parents[1]


def test_the_demo_is_the_experiment_that_comes_with_the_package(glue_bench, monkeypatch, tmp_path):
    from glue_bench.cli import first
    from glue_bench.config import load_experiment

    asked = []
    monkeypatch.setattr(first, "run_and_print", lambda options, path: asked.append((options.results, path)))
    assert glue_bench("demo", "--results", tmp_path).status == 0
    [(results, path)] = asked
    assert results == tmp_path
    assert load_experiment(path).name == "demo"
    assert path.read_bytes() == (ROOT / "configs" / "demo.yaml").read_bytes()


def test_init_writes_an_experiment_that_is_valid_and_overwrites_nothing(glue_bench, refused, monkeypatch, tmp_path):
    from glue_bench.config import load_experiment

    monkeypatch.chdir(tmp_path)
    assert "glue-bench run mine.yaml" in glue_bench("init", "mine").out
    experiment = load_experiment("mine.yaml")
    assert (experiment.name, [arm.variant for arm in experiment.arms]) == ("mine", ["add", "untied", "native"])
    text = Path("mine.yaml").read_text()
    assert "{" not in text.replace("# - {name: modernbert", "")
    assert "nothing is overwritten" in refused("init", "mine")
    assert Path("mine.yaml").read_text() == text
    assert "no name of an experiment" in refused("init", "../mine")
    assert "no name of an experiment" in refused("init", "x" * 101)
    assert glue_bench("init", "x" * 100).status == 0
    assert load_experiment(f"{'x' * 100}.yaml").name == "x" * 100


@pytest.mark.usefixtures("small_demo")
def test_a_run_without_a_file_is_the_experiment_that_it_prints(glue_bench, make_bert, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    folder = make_bert("bert-tiny", texts=("one two three",))
    said = [("--checkpoint", folder), ("--arm", "add"), ("--arm", "native"), ("--task", "RTE"), ("--seed", 1)]
    words = [word for pair in said for word in pair]
    rest = ["--data", "demo", "--limit", 16, "--dry-run"]
    config = tmp_path / "printed.yaml"
    refusal = glue_bench("run", *words, *rest)
    assert "lower max_length" in refusal.err  # of 32 positions
    printed = refusal.err.split("experiment:\n")[1].split("checking")[0].rstrip()
    assert printed.endswith("finetuning:\n  learning_rates: [2.0e-05, 3.0e-05, 4.0e-05, 5.0e-05]")
    config.write_text(f"{printed}\n  max_length: 32\n")
    found = glue_bench("run", config, "--dry-run")
    assert "native-rte-lr2e-05-s1" in found.out
    assert "would run 8 of 8 cells, 0 are done, in runs/bert-tiny" in found.out


@pytest.mark.parametrize(
    ("checkpoint", "name"),
    [
        ("./модель-bert", "bert"),
        ("org/bert-base", "bert-base"),
        ("модель", "experiment"),
        ("/x/" + "b" * 120, "b" * 100),
    ],
    ids=["cyrillic", "hub id", "nothing left", "long"],
)
def test_a_run_without_a_file_has_a_name_that_is_one(checkpoint, name):
    described = {"data": "demo", "limit": None, "arms": ["add"], "tasks": ["rte"], "seeds": [1]}
    values = sweeps._experiment(None, checkpoint, **described)
    assert parse_experiment(values).name == values["name"] == name


def test_version_and_short_help(glue_bench):
    assert glue_bench("--version").out == f"glue-bench {__version__}\n"
    assert "leaderboard" in glue_bench("-h").out
    assert "--checkpoint" in glue_bench("run", "-h").out


@pytest.mark.slow
def test_wheel_and_sdist_have_every_file_of_the_package(tmp_path):
    source = tmp_path / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "runs", "build", "*.egg-info"))
    for kind in ("wheel", "sdist"):
        code = f"from setuptools import build_meta; build_meta.build_{kind}({str(tmp_path)!r})"
        subprocess.run([sys.executable, "-c", code], cwd=source, check=True, capture_output=True)
    wheel = set(zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist())
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        sdist = {name.partition("/")[2] for name in archive.getnames()}
    files = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "glue_bench").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files <= wheel & sdist
    assert {
        "CHANGELOG.md",
        "constraints.txt",
        "configs/minilm.yaml",
        "docs/first-steps.md",
        "Makefile",
        "mkdocs.yml",
    } <= sdist
