"""What the README shows is true: its experiment is valid and its snippet runs."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from forked import Forked

import glue_bench
from glue_bench.config import (
    Arm,
    Experiment,
    Finetuning,
    Pretraining,
    Protocol,
    Resources,
    ScratchEncoder,
    TaskSettings,
    load_experiment,
    parse_experiment,
)
from glue_bench.values import Loader

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PRETRAINING = (ROOT / "docs" / "pretraining.md").read_text(encoding="utf-8")


def blocks(language, text=README):
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def block(language, holding=""):
    """The first block of a language that holds these words."""
    return next(code for code in blocks(language) if holding in code)


def test_the_annotated_experiment_is_valid_and_names_every_key(tmp_path):
    path = tmp_path / "example.yaml"
    path.write_text(block("yaml"))
    experiment = load_experiment(path)
    assert [arm.name for arm in experiment.arms] == ["add", "tupe-a", "none-scratch", "concat-split"]
    explained = "".join(blocks("yaml") + blocks("yaml", PRETRAINING))
    for section in (Experiment, Arm, ScratchEncoder, Pretraining, Finetuning, TaskSettings, Protocol, Resources):
        for name, field in section.model_fields.items():
            assert re.search(rf"^ *(- )?{field.alias or name}:|\b{name}\b", explained, re.M), f"{name} is not explained"


def test_the_annotated_pretraining_is_valid_and_shows_the_defaults():
    raw = yaml.load(blocks("yaml", PRETRAINING)[0], Loader=Loader)["pretraining"]
    shown = parse_experiment({"name": "x", "data": "demo", "arms": ["add"], "pretraining": raw}).pretraining
    by_default = Pretraining(corpus=shown.corpus, steps=shown.steps)
    chosen = {"batch_tokens", "micro_batch_tokens", "checkpoints"}
    assert shown.model_dump(exclude=chosen) == by_default.model_dump(exclude=chosen)
    rows = re.findall(r"^\| (`.+?) \|", PRETRAINING.split("## What is the same")[0], re.M)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(raw)


def test_the_annotated_defaults_are_the_defaults():
    shown = yaml.safe_load(block("yaml"))
    assert ScratchEncoder(**shown["scratch"]) == ScratchEncoder()
    assert Resources(**shown["resources"]) == Resources()
    finetuning = {key: value for key, value in shown["finetuning"].items() if key not in ("tasks", "learning_rates")}
    finetuning["adam_epsilon"] = float(finetuning["adam_epsilon"])
    assert Finetuning(**finetuning) == Finetuning()


FEW_ROWS = 'import glue_bench.benchmark.demo as d; d.ROWS = {"train": 48, "validation": 24, "test": 12}\n'


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["in short", "whole"])
def test_the_snippet_runs(tmp_path, monkeypatch, whole):
    """On a demo of few rows after few steps of pretraining; on the whole demo where there is time."""
    demo = (ROOT / "configs" / "demo.yaml").read_text()
    short = demo.replace("steps: 200", "steps: 3").replace("seeds: [1, 2]", "seeds: [1]")
    assert short != demo
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "demo.yaml").write_text(demo if whole else short)
    monkeypatch.chdir(tmp_path)
    snippet = ("" if whole else FEW_ROWS) + block("python", "glue_bench.run")
    process = Forked(snippet, GLUE_BENCH_CACHE=str(tmp_path / "cache"))
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert all(f"'{name}'" in out for name in ("add", "concat", "untied", "none", "cola", "ax"))
    assert (tmp_path / "runs/demo/leaderboard.md").exists()
    assert "Loading weights" not in err


def test_the_metric_serves_a_trainer(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_METRICS_CACHE", str(tmp_path))
    names = {"glue_bench": glue_bench}
    exec(block("python", "GlueMetric"), names)
    logits = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    given = SimpleNamespace(predictions=logits, label_ids=np.array([1, 0, 1]))
    assert names["compute_metrics"](given) == {"matthews_correlation": 1.0}


def test_the_plugin_is_short_meets_the_contract_and_runs(tiny, small_demo, write_plugin, tmp_path):  # noqa: ARG001
    code = block("python", "class Kerple")
    assert len(code.splitlines()) <= 25
    plugin = write_plugin(code)
    summary = glue_bench.run(tiny(arms=["add", "kerple"], tasks=["cola"]), results=tmp_path, plugins=[plugin])
    assert (summary.finished, summary.failed) == (2, {})
    assert sorted(glue_bench.leaderboard(summary.folder)["arm"]) == ["add", "kerple"]
    assert "kerple" not in glue_bench.VARIANTS  # the run has left nothing behind
    glue_bench.load_plugins([plugin])
    assert glue_bench.VARIANTS["kerple"].source == "Chi et al. 2022"


def test_the_tree_names_every_room():
    rooms = {p.name for p in (ROOT / "glue_bench").iterdir() if p.is_dir() and (p / "__init__.py").exists()}
    assert all(f"{room}/" in README for room in rooms)
