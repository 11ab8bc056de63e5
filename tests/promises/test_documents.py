"""Pages: YAML is valid, commands and what they name exist, snippets run, links lead somewhere, nothing is left out."""

import json
import re
import shlex
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.main import get_command
from typer.testing import CliRunner

import glue_bench
from glue_bench.analysis.analyse import MEASURES
from glue_bench.cli import app
from glue_bench.config import load_experiment
from glue_bench.config.plain_yaml import parse_yaml
from glue_bench.testing import CLAUSES

ROOT = Path(__file__).parents[2]
PATTERNS = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "benchmarks/README.md",
    "docs/**/*.md",
    "results/*/README.md",
)
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for pattern in (*PATTERNS, "results/*/METHODS.md")
    for path in sorted(ROOT.glob(pattern))
}
SNIPPETS = (
    "glue_bench.run",
    "GlueMetric",
    "class Kerple",
    "class Scaled",
    "AutoModelForSequenceClassification",
)
"""The blocks of Python, by what they hold: each has its test below."""


def page(name: str) -> str:
    """A page of docs/."""
    return PAGES[f"docs/{name}.md"]


def blocks(language: str, text: str | None = None) -> list[str]:
    """The code of all blocks of a language, of one page or of all of them."""
    fences = re.findall(
        r"^```(\w*)\n(.*?)^```$", text or "\n".join(PAGES.values()), re.DOTALL | re.MULTILINE
    )
    return [code for named, code in fences if named == language]


def test_every_block_of_yaml_is_an_experiment():
    for text in blocks("yaml"):
        load_experiment(parse_yaml(text, "page"))


def test_every_command_has_a_verb_and_options_that_exist_and_every_verb_is_on_a_page():
    verbs, shown = get_command(app).commands, set[str]()
    for name, text in PAGES.items():
        shown.update(re.findall(r"`glue-bench ([a-z-]+)", text))
        lines = "".join(blocks("console", text)).replace("\\\n", "").splitlines()
        commands = [shlex.split(line.removeprefix("$ "), comments=True) for line in lines]
        for program, *words in filter(None, commands):
            if program == "glue-bench":
                shown.add(words[0])
                verbs[words[0]].make_context(words[0], words[1:])
            for path in re.findall(r"\b(?:benchmarks|configs|docs)/\w+\.\w+", " ".join(words)):
                assert (ROOT / path).exists(), (name, path)
            if program == "make":
                assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), (
                    name
                )
    assert shown == set(verbs)


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_to_a_file_and_a_heading(name):
    links = re.findall(r"\]\(([^)\s]+)", PAGES[name]) + re.findall(
        r'(?:src|srcset)="(.+?)"', PAGES[name]
    )
    for file, _, anchor in (link.partition("#") for link in links if "://" not in link):
        target = (ROOT / name).parent / file if file else ROOT / name
        assert target.exists(), file
        assert target.suffix != ".py", f"{file}: the built documentation has no code"
        if anchor and "." not in anchor:  # a dot: made from a docstring
            headings = re.findall(r"^#+ (.+)$", target.read_text("utf-8"), re.MULTILINE)
            plain = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings)
            assert anchor in {re.sub(r"[-\s]+", "-", heading) for heading in plain}, (
                f"{file}#{anchor}"
            )


# What a page has to name


def keys(section: Any, prefix: str = "") -> set[str]:
    """The keys of a section of an experiment, those of its sections with their own names before them."""
    inner = (
        keys(value, f"{prefix}{key}.") for key, value in section.items() if isinstance(value, dict)
    )
    return {prefix + key for key in section}.union(*inner)


def test_the_reference_of_an_experiment_has_every_key_and_its_default():
    """Only arms, and what a section requires, are examples."""
    every_key = parse_yaml(blocks("yaml", page("reference/experiment"))[0], "page")
    few = {key: every_key["pretraining"][key] for key in ("corpus", "steps")}
    named = {key: every_key[key] for key in ("name", "data", "arms")}
    default = load_experiment({**named, "pretraining": few}).model_dump(mode="json", by_alias=True)
    assert load_experiment(every_key).model_dump(mode="json", by_alias=True) == default
    assert keys(default) <= keys(every_key)


def test_every_variant_is_in_the_reference():
    """With its docstring, and in the list that the command prints."""
    text = page("reference/variants")
    for name, variant in glue_bench.VARIANTS.items():
        assert f"## {name}\n\n::: {variant.__module__}.{variant.__qualname__}\n" in text
    printed = [line.rstrip() for line in CliRunner().invoke(app, ["variants"]).stdout.splitlines()]
    assert [line for line in blocks("", text)[0].splitlines() if line.rstrip() not in printed] == []


def test_every_clause_of_the_contract_and_every_kind_of_measure_is_on_its_page():
    _, _, contract = page("how-to/add-a-variant").partition(
        "| clause | what it asks |\n|---|---|\n"
    )
    assert re.findall(r"^\| ([a-z ]+) \|", contract, re.MULTILINE) == list(CLAUSES)
    assert set(re.findall(r"^## .*\(`(\w+)`\)$", page("reference/measures"), re.MULTILINE)) == set(
        MEASURES
    )


def test_every_docstring_that_a_page_shows_is_there():
    for path in re.findall(r"^::: (\S+)", "".join(PAGES.values()), re.MULTILINE):
        room, _, name = path.rpartition(".")
        assert getattr(import_module(room), name).__doc__, path


def test_pages_are_short_and_the_citation_names_this_version():
    assert len(PAGES["README.md"].split()) <= 900
    for name, words in {"leaderboard": 270, "statistics": 220}.items():  # outside of tables
        assert (
            len(
                re.sub(
                    r"^\|.*$", "", (ROOT / f"results/study/{name}.md").read_text(), flags=re.M
                ).split()
            )
            <= words
        )
    cited = parse_yaml((ROOT / "CITATION.cff").read_bytes(), "CITATION.cff")
    assert cited["version"] == glue_bench.__version__


def test_the_architecture_names_every_room_and_stations_that_are_there():
    rooms = {
        path.name for path in (ROOT / "glue_bench").iterdir() if (path / "__init__.py").exists()
    }
    text = page("explanation/architecture")
    assert [room for room in rooms if f"\n  {room}/ " not in text] == []
    stations = re.findall(r"^([a-z/_]+)\.py +([\w.]+) ", "".join(blocks("", text)), re.MULTILINE)
    for path, name in stations:
        assert attrgetter(name)(import_module(f"glue_bench.{path.replace('/', '.')}")), name
    assert len(stations) == 15  # ten of a cell, five of a bias


# Snippets


def test_every_block_of_python_has_a_test():
    assert all(any(words in code for words in SNIPPETS) for code in blocks("python"))


def test_the_snippet_runs_and_prints_nothing_of_its_own(small_demo, tmp_path, monkeypatch, capfd):  # noqa: ARG001
    """On a demo of few rows after few steps of pretraining."""
    short = (ROOT / "configs" / "demo.yaml").read_text().replace("steps: 200", "steps: 3")
    short = short.replace("seeds: [1, 2]", "seeds: [1]").replace(
        "[add, concat, untied, none]", "[add, none]"
    )
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "demo.yaml").write_text(short)
    monkeypatch.chdir(tmp_path)
    exec(blocks("python", page("reference/library"))[0], {})
    assert capfd.readouterr() == (f"{list(glue_bench.VARIANTS)} {list(glue_bench.TASKS)}\n", "")
    assert (tmp_path / "runs/demo/leaderboard.md").exists()


def test_the_metric_serves_a_trainer(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_METRICS_CACHE", str(tmp_path))
    names = {"glue_bench": glue_bench}
    exec(blocks("python", page("reference/library"))[1], names)
    logits = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    given = SimpleNamespace(predictions=logits, label_ids=np.array([1, 0, 1]))
    assert names["compute_metrics"](given) == {"matthews_correlation": 1.0}


def test_a_kept_model_is_read_as_shown(tiny, small_demo, tmp_path):  # noqa: ARG001
    summary = glue_bench.run(
        tiny(arms=["add"], tasks=["rte"], finetuning={"keep": "best"}), results=tmp_path
    )
    (kept,) = summary.folder.glob("cells/*/model")
    names: dict[str, Any] = {}
    exec(
        re.sub(
            r'folder = ".*"',
            f"folder = {str(kept)!r}",
            blocks("python", page("how-to/publish-results"))[0],
        ),
        names,
    )
    read = names["tokenizer"]("a cat", "a dog", return_tensors="pt")
    assert names["model"](**read).logits.shape == (1, 2)


def test_the_plugin_is_short_meets_the_contract_and_runs(tiny, small_demo, write_plugin, tmp_path):  # noqa: ARG001
    (code,) = blocks("python", page("how-to/add-a-variant"))
    assert len(code.splitlines()) <= 25
    values = tiny(arms=["add", "kerple"], tasks=["cola"])
    summary = glue_bench.run(values, results=tmp_path, plugins=[write_plugin(code)])
    assert (summary.finished, summary.failed) == (2, {})


@pytest.mark.usefixtures("small_demo", "write_plugin")
def test_the_notebook_runs_and_is_kept_without_what_a_run_left(tmp_path, monkeypatch):
    cells = json.loads((ROOT / "docs" / "tutorial" / "notebook.ipynb").read_bytes())["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
    monkeypatch.chdir(tmp_path)
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    assert blocks("python", PAGES["README.md"])[0] in text
    for key, short in {
        "steps": 3,
        "batch_tokens": 256,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "epochs": 1,
    }.items():
        text = re.sub(rf'"{key}": \d+', f'"{key}": {short}', text)
    exec(text, {})
    import_module("matplotlib.pyplot").close("all")
    assert {*glue_bench.leaderboard(tmp_path / "runs" / "notebook")["arm"]} >= {"add", "scaled"}
