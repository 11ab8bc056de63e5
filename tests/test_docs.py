"""What the README and docs/ show is true: experiments are valid, snippets run, and nothing is left out."""

import ast
import re
import shlex
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from forked import Forked
from pages import PAGES, README, ROOT, block, blocks, page
from typer.main import get_command

import glue_bench
from glue_bench.cli import app as cli
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
from glue_bench.errors import UserError
from glue_bench.model.variants.base import Additive, Dimensions, EncoderInput
from glue_bench.values import Loader

EVERY_KEY = block("yaml", page("experiments"))
LEAST = {"name": "x", "data": "demo", "arms": ["add"], "checkpoint": "scratch"}
SNIPPETS = ("glue_bench.run", "GlueMetric", "class Kerple", "AutoModelForSequenceClassification")
"""The blocks of Python, by what they hold: each has its test below."""


@pytest.mark.parametrize("text", blocks("yaml"))
def test_every_block_of_yaml_is_part_of_an_experiment(text):
    raw = yaml.load(text, Loader=Loader)
    if "pretraining" in raw:
        raw["pretraining"] = {"corpus": "demo", "steps": 500} | raw["pretraining"]
    parse_experiment(LEAST | raw)


def test_the_readme_is_short_and_its_experiment_complete():
    assert len(README.split()) <= 1200
    experiment = parse_experiment(yaml.load(block("yaml", README), Loader=Loader))
    assert [arm.name for arm in experiment.arms] == ["add", "untied", "concat-start-add"]


def test_the_annotated_experiment_is_valid_and_names_every_key(tmp_path):
    path = tmp_path / "example.yaml"
    path.write_text(EVERY_KEY)
    experiment = load_experiment(path)
    assert [arm.name for arm in experiment.arms] == ["add", "tupe-a", "none-scratch", "concat-split"]
    explained = EVERY_KEY + "".join(blocks("yaml", page("pretraining")))
    for section in (Experiment, Arm, ScratchEncoder, Pretraining, Finetuning, TaskSettings, Protocol, Resources):
        for name, field in section.model_fields.items():
            assert re.search(rf"^ *(- )?{field.alias or name}:|\b{name}\b", explained, re.M), f"{name} is not explained"


def test_the_annotated_pretraining_is_valid_and_shows_the_defaults():
    text = page("pretraining")
    raw = yaml.load(block("yaml", text), Loader=Loader)["pretraining"]
    shown = parse_experiment(LEAST | {"pretraining": raw}).pretraining
    by_default = Pretraining(corpus=shown.corpus, steps=shown.steps)
    chosen = {"batch_tokens", "micro_batch_tokens", "checkpoints"}
    assert shown.model_dump(exclude=chosen) == by_default.model_dump(exclude=chosen)
    rows = re.findall(r"^\| (`.+?) \|", text.split("## What is the same")[0], re.M)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(raw)


def test_the_annotated_defaults_are_the_defaults():
    shown = yaml.safe_load(EVERY_KEY)
    assert ScratchEncoder(**shown["scratch"]) == ScratchEncoder()
    assert Resources(**shown["resources"]) == Resources()
    assert Protocol(**shown["protocol"]) == Protocol()
    finetuning = {key: value for key, value in shown["finetuning"].items() if key not in ("tasks", "learning_rates")}
    finetuning["adam_epsilon"] = float(finetuning["adam_epsilon"])
    assert Finetuning(**finetuning) == Finetuning()


def test_every_command_has_a_verb_and_options_that_exist():
    verbs = get_command(cli)
    lines = [line.removeprefix("$ ") for code in blocks("console") for line in code.replace("\\\n", "").splitlines()]
    commands = [shlex.split(line, comments=True) for line in lines if re.match(r"(\$ )?glue-bench ", line)]
    assert len(commands) > 40
    for _, verb, *words in commands:
        verbs.commands[verb].make_context(verb, words)
    mentioned = {verb for text in PAGES.values() for verb in re.findall(r"`glue-bench ([a-z-]+)", text)}
    assert mentioned <= set(verbs.commands)
    assert {verb for _, verb, *_ in commands} | mentioned == set(verbs.commands)


def test_every_target_of_make_and_file_of_a_command_is_there():
    text = "\n".join(blocks("console"))
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", text, re.M):
        assert re.search(rf"^{target}:", makefile, re.M), target
    for path in re.findall(r"\b(?:benchmarks|configs)/\w+\.\w+", text):
        assert (ROOT / path).exists(), path


def test_every_block_of_python_has_a_test():
    assert all(any(words in code for words in SNIPPETS) for code in blocks("python"))


FEW_ROWS = 'import glue_bench.data.demo as d; d.ROWS = {"train": 48, "validation": 24, "test": 12}\n'


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["in short", "whole"])
def test_the_snippet_runs(tmp_path, monkeypatch, whole):
    """On a demo of few rows after few steps of pretraining; on the whole demo where there is time."""
    demo = (ROOT / "configs" / "demo.yaml").read_text()
    short = demo.replace("steps: 200", "steps: 3").replace("seeds: [1, 2]", "seeds: [1]")
    assert short != demo
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "demo.yaml").write_text(demo if whole else short)
    monkeypatch.chdir(tmp_path)
    snippet = ("" if whole else FEW_ROWS) + block("python", page("reference/library"), "glue_bench.run")
    process = Forked(snippet, GLUE_BENCH_CACHE=str(tmp_path / "cache"))
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert all(f"'{name}'" in out for name in ("add", "concat", "untied", "none", "cola", "ax"))
    assert (tmp_path / "runs/demo/leaderboard.md").exists()
    assert "Loading weights" not in err


def test_the_metric_serves_a_trainer(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_METRICS_CACHE", str(tmp_path))
    names = {"glue_bench": glue_bench}
    exec(block("python", page("reference/library"), "GlueMetric"), names)
    logits = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    given = SimpleNamespace(predictions=logits, label_ids=np.array([1, 0, 1]))
    assert names["compute_metrics"](given) == {"matthews_correlation": 1.0}


def test_a_kept_model_is_read_as_shown(tiny, small_demo, tmp_path):  # noqa: ARG001
    summary = glue_bench.run(tiny(arms=["add"], tasks=["rte"], finetuning={"keep": "best"}), results=tmp_path)
    (kept,) = (summary.folder / "models").iterdir()
    code = block("python", page("submitting"))
    names: dict[str, Any] = {}
    exec(re.sub(r'folder = ".*"', f"folder = {str(kept)!r}", code), names)
    read = names["tokenizer"]("a cat", "a dog", return_tensors="pt")
    assert names["model"](**read).logits.shape == (1, 2)


def test_the_plugin_is_short_meets_the_contract_and_runs(tiny, small_demo, write_plugin, tmp_path):  # noqa: ARG001
    code = block("python", page("own-variant"))
    assert len(code.splitlines()) <= 25
    plugin = write_plugin(code)
    summary = glue_bench.run(tiny(arms=["add", "kerple"], tasks=["cola"]), results=tmp_path, plugins=[plugin])
    assert (summary.finished, summary.failed) == (2, {})
    assert sorted(glue_bench.leaderboard(summary.folder)["arm"]) == ["add", "kerple"]
    assert glue_bench.VARIANTS["kerple"].source == "Chi et al. 2022"


def test_the_first_broken_clause_is_named_as_shown(write_plugin):
    code = block("python", page("own-variant"))
    plugin = write_plugin(code.replace("self.log_r2.exp() * away", "away"))
    with pytest.raises(UserError) as raised:
        glue_bench.load_plugins([plugin])
    expected = next(text for text in blocks("", page("own-variant")) if text.startswith("error: "))
    assert f"error: {raised.value}\n".replace(str(plugin.resolve()), "/home/me/my_variant.py") == expected


def messages(path: str, *, raised: bool) -> set[str]:
    """The texts of a module's errors, or of what its functions return; `…` where a value is filled in."""
    tree = ast.parse((ROOT / "glue_bench" / path).read_text(encoding="utf-8"))
    if raised:
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        said = [call.args[0] for call in calls if ast.unparse(call.func) == "UserError"]
    else:
        returned = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return)]
        said = [
            part
            for value in returned
            for part in ([value.body, value.orelse] if isinstance(value, ast.IfExp) else [value])
        ]
    texts = {"".join(map(told, node.values)) for node in said if isinstance(node, ast.JoinedStr)}
    texts |= {node.value for node in said if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return {re.sub("… …", "…", text) for text in texts} - {"…: …"}


def told(part: ast.expr) -> str:
    return str(part.value) if isinstance(part, ast.Constant) else "…"


def test_every_message_of_the_contract_is_explained():
    contract, before = page("own-variant").split("### Every message of the contract")[1].split("### Messages before")
    assert set(re.findall(r"^\| [a-z0-9 ]+ \| `(.+?)` \| \w", contract, re.M)) == messages(
        "testing/clauses.py", raised=False
    )
    explained = {text for _, text in re.findall(r"^\| (`+)(.+?)\1 \| \w", before, re.M)}
    contract_broken = "plugin '…': variant '…' does not meet the contract: …"
    assert explained == messages("model/plugins.py", raised=True)
    assert contract_broken in messages("testing/plugins.py", raised=True)


@pytest.mark.parametrize(
    ("kind", "heading"), [(Dimensions, "built for"), (EncoderInput, "it returns"), (Additive, "starts from")]
)
def test_every_field_that_a_variant_sees_is_explained(kind, heading):
    section = next(text for text in page("own-variant").split("\n## ") if heading in text.split("\n")[0])
    rows = re.findall(r"^\| (`.+?) \|", section, re.M)
    assert [name for row in rows for name in re.findall(r"`(\w+)`", row)] == [field.name for field in fields(kind)]


def test_every_variant_is_in_the_reference():
    text = page("reference/variants")
    for name, variant in glue_bench.VARIANTS.items():
        assert f"## {name}\n\n::: {variant.__module__}.{variant.__qualname__}\n" in text


def test_the_citation_names_this_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == glue_bench.__version__
    assert f"version = {{{glue_bench.__version__}}}" in page("cite")
    assert cited["title"] in page("cite")


def test_the_tree_names_every_room():
    rooms = {p.name for p in (ROOT / "glue_bench").iterdir() if p.is_dir() and (p / "__init__.py").exists()}
    tree = block("", page("architecture"), "glue_bench/\n")
    assert [room for room in rooms if f"\n  {room}/ " not in tree] == []
