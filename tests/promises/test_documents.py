"""Pages are right: YAML is valid, commands and what they name exist, snippets run, links lead
somewhere, nothing is left out.
"""

import json
import re
import shlex
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.main import get_command
from typer.testing import CliRunner

import glue_bench
from glue_bench.analysis.analyse import ENCODER_MEASURES
from glue_bench.cli import app
from glue_bench.config import load_experiment
from glue_bench.config.load import load_task, read_task
from glue_bench.config.plain_yaml import parse_yaml
from glue_bench.data.measures import MEASURES
from glue_bench.data.own import read_own
from glue_bench.data.tasks import scored_columns
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
    "samples_arc_easy",
)
"""The blocks of Python, by what they hold: each has its test below."""


def page(name: str) -> str:
    """Return a page of docs/."""
    return PAGES[f"docs/{name}.md"]


def blocks(language: str, text: str | None = None) -> list[str]:
    """Return the code of all blocks of a language, of one page or of all of them."""
    searched = text or "\n".join(PAGES.values())
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", searched, re.DOTALL | re.MULTILINE)
    return [code for kind, code in fences if kind == language]


def commands_of(text: str) -> list[list[str]]:
    """Return the words of every command in the console blocks of a page."""
    lines = "".join(blocks("console", text)).replace("\\\n", "").splitlines()
    commands = [shlex.split(line.removeprefix("$ "), comments=True) for line in lines]
    return [words for words in commands if words]


def test_every_block_of_yaml_is_an_experiment_or_a_task():
    for text in blocks("yaml"):
        content = parse_yaml(text, "page")
        read = read_task if "texts" in content else load_experiment
        read(content)


def test_the_task_of_the_how_to_reads_the_rows_beside_it(tmp_path):
    text = page("how-to/use-your-checkpoint-and-data")
    (rows,) = blocks("csv", text)
    for name in ("train.csv", "dev.csv"):
        (tmp_path / name).write_text(rows)
    (tmp_path / "reviews.yaml").write_text(blocks("yaml", text)[1])
    data = read_own(load_task(str(tmp_path / "reviews.yaml")))
    assert data.splits["train"]["label"].tolist() == [0, 1]
    assert data.splits["train"]["text_a"][0] == "The plot is dull, the end too."


@pytest.mark.parametrize("name", PAGES)
def test_every_command_has_a_verb_and_options_that_exist(name):
    verbs = get_command(app).commands
    for program, *words in commands_of(PAGES[name]):
        if program == "glue-bench":
            verbs[words[0]].make_context(words[0], words[1:])


@pytest.mark.parametrize("name", PAGES)
def test_every_target_of_make_exists(name):
    makefile = (ROOT / "Makefile").read_text()
    for program, *words in commands_of(PAGES[name]):
        if program == "make":
            assert re.search(rf"^{words[0]}:", makefile, re.MULTILINE), words


@pytest.mark.parametrize("name", PAGES)
def test_every_file_of_the_repository_that_a_command_names_exists(name):
    for words in commands_of(PAGES[name]):
        for path in re.findall(r"\b(?:benchmarks|configs|docs)/\w+\.\w+", " ".join(words[1:])):
            assert (ROOT / path).exists(), path


def test_every_verb_is_on_a_page():
    verbs: set[str] = set()
    for text in PAGES.values():
        verbs.update(re.findall(r"`glue-bench ([a-z-]+)", text))
        verbs.update(words[1] for words in commands_of(text) if words[0] == "glue-bench")
    assert verbs == set(get_command(app).commands)


def anchors_of(path: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    anchors: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", path.read_text("utf-8"), re.MULTILINE):
        plain = re.sub(r"[^\w\s-]", "", heading).strip().lower()
        anchors.add(re.sub(r"[-\s]+", "-", plain))
    return anchors


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_to_a_file_and_a_heading(name):
    links = re.findall(r"\]\(([^)\s]+)", PAGES[name])
    links += re.findall(r'(?:src|srcset)="(.+?)"', PAGES[name])
    for link in links:
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (ROOT / name).parent / file if file else ROOT / name
        assert target.exists(), link
        assert target.suffix != ".py", f"{link}: the built documentation has no code"
        if anchor and "." not in anchor:  # a dot: made from a docstring
            assert anchor in anchors_of(target), link


# What a page has to name


def keys(section: Any, prefix: str = "") -> set[str]:
    """Return the keys of a section of an experiment, those of its sections with their own names
    before them.
    """
    names = {prefix + key for key in section}
    for key, value in section.items():
        if isinstance(value, dict):
            names |= keys(value, f"{prefix}{key}.")
    return names


@pytest.fixture(scope="module")
def every_key() -> dict[str, Any]:
    """The experiment of the reference."""
    return parse_yaml(blocks("yaml", page("reference/experiment"))[0], "page")


@pytest.fixture(scope="module")
def defaults(every_key) -> dict[str, Any]:
    """The experiment that has of the reference's only arms and what a section requires."""
    required = {key: every_key["pretraining"][key] for key in ("corpus", "steps")}
    values = {key: every_key[key] for key in ("name", "data", "arms")}
    experiment = load_experiment({**values, "pretraining": required})
    return experiment.model_dump(mode="json", by_alias=True)


def test_the_reference_of_an_experiment_has_every_default(every_key, defaults):
    assert load_experiment(every_key).model_dump(mode="json", by_alias=True) == defaults


def test_the_reference_of_an_experiment_has_every_key(every_key, defaults):
    assert keys(defaults) - keys(every_key) == set()


@pytest.mark.parametrize("name", glue_bench.VARIANTS)
def test_every_variant_is_in_the_reference_with_its_docstring(name):
    variant = glue_bench.VARIANTS[name]
    heading = f"## {name}\n\n::: {variant.__module__}.{variant.__qualname__}\n"
    assert heading in page("reference/variants")


def test_the_list_of_variants_is_what_the_command_prints():
    output = CliRunner().invoke(app, ["variants"]).stdout
    printed = [line.rstrip() for line in output.splitlines()]
    lines = blocks("", page("reference/variants"))[0].splitlines()
    assert [line.rstrip() for line in lines] == printed


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md"])
def test_a_page_has_the_number_of_variants(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert f"{len(glue_bench.VARIANTS)} [variants](docs/reference/variants.md)" in text


def test_every_clause_of_the_contract_is_on_its_page():
    head = "| clause | what it asks |\n|---|---|\n"
    _, _, contract = page("how-to/add-a-variant").partition(head)
    assert re.findall(r"^\| ([a-z ]+) \|", contract, re.MULTILINE) == list(CLAUSES)


def test_every_kind_of_measure_is_on_its_page():
    kinds = re.findall(r"^## .*\(`(\w+)`\)$", page("reference/measures"), re.MULTILINE)
    assert set(kinds) == set(ENCODER_MEASURES)


LEADERBOARDS = sorted(ROOT.glob("results/*/leaderboard.csv"))
SCORES = {*MEASURES, *scored_columns(), "average_official", "average_nine_columns"}


@pytest.mark.parametrize("path", LEADERBOARDS, ids=lambda path: path.parent.name)
def test_every_column_of_a_leaderboard_is_in_the_reference(path):
    """`rte_std` is there as `COL_std`, and `rte` is a task."""
    section = page("reference/files").partition("## Columns of leaderboard.csv")[2]
    section = section.partition("\n## ")[0]
    names = {*re.findall(r"`(\w+)`", section), *scored_columns()}
    absent = []
    for column in pd.read_csv(path, nrows=0).columns:
        score, _, part = column.rpartition("_")
        is_part = score in SCORES and f"COL_{part}" in names
        if column not in names and not is_part:
            absent.append(column)
    assert absent == []


def test_every_docstring_that_a_page_shows_is_there():
    for path in re.findall(r"^::: (\S+)", "".join(PAGES.values()), re.MULTILINE):
        room, _, name = path.rpartition(".")
        assert getattr(import_module(room), name).__doc__, path


def test_the_readme_is_short():
    assert len(PAGES["README.md"].split()) <= 900


@pytest.mark.parametrize(("name", "limit"), [("leaderboard", 270), ("statistics", 360)])
def test_a_page_of_results_has_few_words_outside_of_tables(name, limit):
    text = (ROOT / f"results/study/{name}.md").read_text()
    prose = re.sub(r"^\|.*$", "", text, flags=re.MULTILINE)
    assert len(prose.split()) <= limit


def test_the_citation_names_the_version_of_the_changelog():
    citation = parse_yaml((ROOT / "CITATION.cff").read_bytes(), "CITATION.cff")
    newest = re.search(r"^## ([\d.]+)", PAGES["CHANGELOG.md"], re.MULTILINE)
    assert newest is not None
    assert citation["version"] == newest[1]


def test_the_architecture_names_every_room():
    text = page("explanation/architecture")
    paths = (ROOT / "glue_bench").iterdir()
    rooms = [path.name for path in paths if (path / "__init__.py").exists()]
    assert [room for room in rooms if f"\n  {room}/ " not in text] == []


def test_the_architecture_names_stations_that_are_there():
    code = "".join(blocks("", page("explanation/architecture")))
    stations = re.findall(r"^([a-z/_]+)\.py +([\w.]+) ", code, re.MULTILINE)
    for path, name in stations:
        module = import_module(f"glue_bench.{path.replace('/', '.')}")
        assert attrgetter(name)(module), name
    assert len(stations) == 16  # eleven of a cell, five of a bias


# Snippets


def test_every_block_of_python_has_a_test():
    untested = [code for code in blocks("python") if not any(map(code.__contains__, SNIPPETS))]
    assert untested == []


@pytest.mark.usefixtures("small_demo")
def test_the_snippet_runs_and_prints_nothing_of_its_own(tmp_path, monkeypatch, capfd):
    """On a demo of few rows after few steps of pretraining."""
    short = (ROOT / "configs" / "demo.yaml").read_text()
    short = short.replace("steps: 200", "steps: 3").replace("seeds: [1, 2]", "seeds: [1]")
    short = short.replace("[add, concat, untied, none]", "[add, none]")
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "demo.yaml").write_text(short)
    monkeypatch.chdir(tmp_path)
    exec(blocks("python", page("reference/library"))[0], {})
    assert capfd.readouterr() == (f"{list(glue_bench.VARIANTS)} {list(glue_bench.TASKS)}\n", "")
    assert (tmp_path / "runs/demo/leaderboard.md").exists()


def test_the_comparison_prints_what_the_page_shows(tmp_path, monkeypatch, glue_bench):
    monkeypatch.chdir(tmp_path)
    text = page("how-to/compare-anyones-runs")
    exec(blocks("python", text)[0], {})
    answers, scores, of_scores, *_ = blocks("text", text)
    (tmp_path / "scores.csv").write_text(scores)
    printed = (
        glue_bench("compare", "out").out
        + glue_bench("compare", "scores.csv", "--reference", "base").out
    )
    cells = {re.sub(r"[\\\s]", "", line) for line in printed.splitlines()}
    rows = [line for line in (answers + of_scores).splitlines() if re.match(r"\| *[a-z]", line)]
    assert len(rows) == 8
    assert {re.sub(r"\s", "", row) for row in rows} <= cells


def without_space(line: str) -> str:
    """Return a row of a table without the space that aligns it, and without backslashes."""
    return re.sub(r"[\\\s]|-+:|:-+", "", line)


def test_the_audits_of_boards_print_what_the_page_shows(tmp_path, glue_bench):
    _, _, _, babylm, rest, mteb, unpaired = blocks("text", page("how-to/compare-anyones-runs"))
    boards = ROOT / "docs/how-to/boards"
    answers = pd.read_parquet(boards / "babylm-2026.parquet")
    answers[answers["task"] != "sib200"].to_csv(tmp_path / "rest.csv")
    scores = (boards / "mteb.csv").read_text()
    (tmp_path / "unpaired.csv").write_text(scores.replace("block", "seed"))
    shown_by_path = {
        boards / "babylm-2026.parquet": babylm,
        tmp_path / "rest.csv": rest,
        boards / "mteb.csv": mteb,
        tmp_path / "unpaired.csv": unpaired,
    }
    for path, shown in shown_by_path.items():
        printed = {without_space(line) for line in glue_bench("compare", path).out.splitlines()}
        rows = {without_space(line) for line in shown.splitlines() if line.startswith("|")}
        assert len(rows) >= 5
        assert rows <= printed


def test_the_metric_serves_a_trainer(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_METRICS_CACHE", str(tmp_path))
    names: dict[str, Any] = {"glue_bench": glue_bench}
    exec(blocks("python", page("reference/library"))[1], names)
    compute_metrics = names["compute_metrics"]
    logits = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    given = SimpleNamespace(predictions=logits, label_ids=np.array([1, 0, 1]))
    assert compute_metrics(given) == {"matthews_correlation": 1.0}


@pytest.mark.usefixtures("small_demo")
def test_a_kept_model_is_read_as_shown(tiny, tmp_path):
    values = tiny(arms=["add"], tasks=["rte"], finetuning={"keep": "best"})
    summary = glue_bench.run(values, results=tmp_path)
    (kept,) = summary.folder.glob("cells/*/model")
    code = blocks("python", page("how-to/publish-results"))[0]
    names: dict[str, Any] = {}
    exec(re.sub(r'folder = ".*"', f"folder = {str(kept)!r}", code), names)
    tokenizer = names["tokenizer"]
    model = names["model"]
    read = tokenizer("a cat", "a dog", return_tensors="pt")
    assert model(**read).logits.shape == (1, 2)


@pytest.mark.usefixtures("small_demo")
def test_the_plugin_is_short_meets_the_contract_and_runs(tiny, write_plugin, tmp_path):
    (code,) = blocks("python", page("how-to/add-a-variant"))
    assert len(code.splitlines()) <= 25
    values = tiny(arms=["add", "kerple"], tasks=["cola"])
    summary = glue_bench.run(values, results=tmp_path, plugins=[write_plugin(code)])
    assert summary.failed == {}
    assert summary.finished == 2


@pytest.fixture(scope="module")
def notebook() -> list[dict[str, Any]]:
    """The cells of the tutorial's notebook."""
    content = (ROOT / "docs" / "tutorial" / "notebook.ipynb").read_bytes()
    return json.loads(content)["cells"]


def test_the_notebook_is_kept_without_what_a_run_left(notebook):
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook)


@pytest.mark.usefixtures("small_demo", "write_plugin")
def test_the_notebook_runs(notebook, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = "\n".join("".join(cell["source"]) for cell in notebook if cell["cell_type"] == "code")
    assert blocks("python", PAGES["README.md"])[0] in code
    sizes = {
        "steps": 3,
        "batch_tokens": 256,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "epochs": 1,
    }
    for key, size in sizes.items():
        code = re.sub(rf'"{key}": \d+', f'"{key}": {size}', code)
    exec(code, {})
    import_module("matplotlib.pyplot").close("all")
    leaderboard = glue_bench.leaderboard(tmp_path / "runs" / "notebook")
    assert {*leaderboard["arm"]} >= {"add", "scaled"}
