"""A report: what is on it, and that it is made of the same numbers as the pages."""

import math
import re
import shutil
from itertools import product

import pytest
import yaml
from older_results import OLDER
from read_pages import parse_html, read_html
from reported import fill

from glue_bench.config import load_experiment, parse_experiment
from glue_bench.errors import UserError
from glue_bench.records.plan import Plan
from glue_bench.records.value import SCHEMA_VERSION
from glue_bench.reporting.export import find
from glue_bench.reporting.figures.save import FORMATS
from glue_bench.reporting.report.build import build_report, pretraining_part, steps_part
from glue_bench.reporting.report.drawings import steps_figures
from glue_bench.reporting.report.method import experiment_text, told_apart
from glue_bench.reporting.report.page import render_report, report
from glue_bench.tables.board import open_board, steps_frame


def test_the_parts_and_their_links(made, text):
    assert [part.title for part in made.parts] == [
        "Leaderboard", "Differences from the reference", "Protocol", "Data", "Environment", "Commands",
    ]  # fmt: skip
    read = parse_html(text)
    ids = {value for _, name, value in read.attributes if name == "id"}
    links = [value for tag, name, value in read.attributes if (tag, name) == ("a", "href") and value.startswith("#")]
    assert links == [f"#{part.anchor}" for part in made.parts]
    assert {link[1:] for link in links} <= ids
    assert read.texts["h1"] == ["Report: toy"]
    assert "none (-" in read.texts["p"][0]


def test_it_needs_nothing_but_itself(text):
    read = parse_html(text)
    fetched = [value for tag, name, value in read.attributes if name in ("src", "href") and tag != "a"]
    assert all(value.startswith("#") for value in fetched)
    assert not {"link", "img", "iframe", "object"} & set(read.texts)
    assert "default-src 'none'" in text
    assert not re.search(r"url\((?!#)|@import", text)
    assert len(text.encode()) < 2 * 2**20


def test_every_figure_says_what_it_shows(made, text):
    assert len(made.figures) == 3  # the average and two tasks
    assert all(figure.description for figure in made.figures)
    titles = parse_html(text).texts["title"]
    assert titles[1:] == [figure.title for figure in made.figures]
    worse = next(figure for figure in made.figures if figure.name == "difference-average")
    assert re.fullmatch(r"Worse: none \(-\d\d\.\d\d\)\.", worse.description)


def test_what_a_plan_holds_is_shown_and_never_run(bench):
    nasty = '</code><script>alert(1)</script><img src=x onerror="alert(1)">'
    bench.expect("rte", 1)
    text = render_report(build_report(bench.plan(config={"name": nasty}, data_source="demo")))
    read = parse_html(text)
    assert "img" not in read.texts
    assert len(read.texts["script"]) == 1
    assert any(nasty in listing for listing in read.texts["pre"])


def test_the_same_input_gives_the_same_bytes_and_figures_are_written(new_bench, tmp_path):
    folder = fill(new_bench("small"), {"add": 0.8, "none": 0.5}, ("rte",))
    first = report(folder, tmp_path / "a.html", tmp_path / "figures")
    assert report(folder) == folder / "report.html"
    assert (folder / "report.html").read_bytes() == first.read_bytes()
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {f"difference-rte.{s}" for s in FORMATS}


def test_several_experiments_stand_together_and_each_alone(new_bench):
    several = {name: new_bench(name) for name in ("toy", "other")}
    for name, bench in several.items():
        bench.finish("rte", arm="add", source="demo")
        bench.finish("rte", arm="untied" if name == "other" else "none", source="demo")
        bench.plan(experiment=name)
    made = build_report([bench.path for bench in several.values()])
    titles = [part.title for part in made.parts]
    assert titles[0] == "Leaderboard"
    assert {"toy: Leaderboard", "toy: Commands", "other: Leaderboard", "other: Commands"} <= set(titles)
    assert len(set(titles)) == len(titles)
    (together, *_) = read_html(render_report(made))
    assert {row[0][0] for row in together.rows} >= {"toy/add", "other/add", "untied"}


def test_an_experiment_without_records_has_a_report(bench):
    bench.expect("rte", 1)
    assert "0 of 1 planned fine-tuning runs are finished" in render_report(build_report(bench.plan(data_source="demo")))


def test_pretraining_and_what_it_cost_have_figures(tmp_path):
    folder = shutil.copytree(OLDER, tmp_path / "tiny")
    pretraining, cost = pretraining_part(find(folder))
    assert [figure.name for figure in pretraining.figures] == ["loss", "tokens-to-loss"]
    assert "untied-relative ends at 4.316 nats, add ends at 4.671 nats." in pretraining.figures[0].description
    assert [figure.name for figure in cost.figures] == ["cost-parameters", "cost-flops", "cost-seconds"]
    assert cost.figures[0].description.startswith("The least is that of add; add has the highest")


def test_checkpoints_that_were_fine_tuned_are_shown_by_steps(bench):
    for steps in (100, 200):
        for arm in ("add", "none"):
            bench.finish("rte", arm=arm, value=steps / 400, rate=steps * 1e-6, source="demo")
            bench.cells[-1]["steps"] = steps
    (part,) = steps_part(find(bench.plan(data_source="demo")))
    assert [figure.name for figure in part.figures] == ["steps-rte"]
    assert [[cell.text for cell in row] for row in part.sections[0].grid.rows] == [
        ["add", "100", "25.00"], ["add", "200", "50.00"], ["none", "100", "25.00"], ["none", "200", "50.00"],
    ]  # fmt: skip


@pytest.mark.parametrize(("pretrainings", "seeds", "bands"), [(1, 3, 1), (1, 2, 0), (2, 3, 0)])
def test_a_band_is_of_three_independent_seeds_or_more(bench, pretrainings, seeds, bands):
    """Runs of several pretraining seeds are not independent of each other."""
    for steps, pretraining, seed in product((100, 200), range(pretrainings), range(seeds)):
        cell = bench.expect("rte", seed, rate=1e-6 * steps + 1e-9 * pretraining)
        cell |= {"steps": steps, "pretraining_seed": pretraining, "learning_rate": 2e-5}
        bench.record(cell, 0.5 + seed / 10 + pretraining / 20)
    findings = find(bench.plan())
    frame = steps_frame(open_board(bench.path))
    assert frame["rte_std"].notna().all()
    (figure,) = steps_figures(findings, frame)
    assert len(figure.drawn.axes[0].collections) == bands


def test_bars_of_cost_are_of_three_seeds_or_more(bench):
    for arm, seeds in (("add", 3), ("concat", 2)):
        bench.finish_predicted("rte", arm, 0.8, seeds=seeds, spread=0.05)
    deviations = find(bench.plan()).deviations("rte")
    assert deviations["add"] > 0
    assert math.isnan(deviations["concat"])


def test_what_all_rows_share_is_a_sentence_and_what_differs_a_table():
    (section,) = told_apart("Task", {"CoLA": {"epochs": 3, "batch_size": 32}, "RTE": {"epochs": 5, "batch_size": 32}})
    assert section.text == "The same for all: batch size 32."
    assert [[cell.text for cell in row] for row in section.grid.rows] == [["CoLA", "3"], ["RTE", "5"]]
    (alike,) = told_apart("Task", {"CoLA": {"epochs": 3}, "RTE": {"epochs": 3}})
    assert (alike.text, alike.grid) == ("The same for all: epochs 3.", None)
    (apart,) = told_apart("Task", {"CoLA": {"epochs": 3}, "RTE": {}})
    assert (apart.text, [row[1].text for row in apart.grid.rows]) == ("", ["3", "–"])  # noqa: RUF001
    assert told_apart("Task", {}) == ()
    off = {"dropout": 0.0, "warmup": 0, "amsgrad": False, "freeze": [], "seed": None}
    (zeros,) = told_apart("Task", {"CoLA": off})
    assert zeros.text == "The same for all: dropout 0.0, warmup 0."


@pytest.mark.parametrize("name", ["demo", "minilm", "study"])
def test_the_experiment_that_is_shown_is_the_one_that_was_run(name, pytestconfig):
    """It can be run again: with the places of data and text, which nobody else is to know, it is the same."""
    experiment = load_experiment(pytestconfig.rootpath / "configs" / f"{name}.yaml")
    config = experiment.model_dump(exclude={"data": True, "pretraining": {"corpus"}})
    shown = yaml.safe_load(experiment_text(Plan(schema_version=SCHEMA_VERSION, cells=(), config=config)))
    if shown.get("pretraining"):
        shown["pretraining"]["corpus"] = "demo"
    again = parse_experiment(shown | {"data": "demo"})
    assert again.model_dump(exclude={"data": True, "pretraining": {"corpus"}}) == config


def test_where_someone_keeps_a_checkpoint_is_not_shown():
    config = {"arms": [{"name": "add", "checkpoint": "/home/me/secret/bert"}]}
    text = experiment_text(Plan(schema_version=SCHEMA_VERSION, cells=(), config=config))
    assert "bert" in text
    assert "secret" not in text


def test_bad_input_is_refused(tmp_path):
    with pytest.raises(UserError, match="no experiment in"):
        report(tmp_path)
