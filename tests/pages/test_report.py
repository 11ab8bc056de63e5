"""A report: what is on it, that it is made of the pages, and that it needs nothing but itself."""

import base64
import re

import pytest
import yaml
from helpers.read_pages import parse_html, read_html, read_markdown, texts_of
from helpers.stored import LONG, Bench, fill

from glue_bench import report
from glue_bench.board.compare import open_comparison
from glue_bench.board.results import BANNER
from glue_bench.config import load_experiment
from glue_bench.pages.contrasts import statistics_page
from glue_bench.pages.figure_files import NO_DATES
from glue_bench.pages.leaderboard import leaderboard_page
from glue_bench.pages.method import experiment_text
from glue_bench.pages.render import to_html, to_markdown
from glue_bench.pages.report import make_report


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    return open_comparison(fill(Bench(tmp_path_factory.mktemp("told") / "toy"), source="tsv"))


@pytest.fixture(scope="module")
def made(told):
    return make_report(told)


def test_the_parts_and_their_links_and_tables_are_those_of_the_pages_and_what_explains_is_folded(
    told, made
):
    titles, text = (
        ["Leaderboard", "Differences", "Published tables", "How it was made"],
        to_html(made),
    )
    assert [part.title for part in made.parts] == titles
    read, page = parse_html(text), leaderboard_page(told)
    ids = {value for _, name, value in read.attributes if name == "id"}
    links = [
        value
        for tag, name, value in read.attributes
        if (tag, name) == ("a", "href") and value.startswith("#")
    ]
    assert links == [f"#{title.lower().replace(' ', '-')}" for title in titles]
    assert {link[1:] for link in links} <= ids
    assert (read.texts["h1"], read.texts["h2"]) == (["Report: toy"], titles)
    assert read.texts["p"][0] == page.tables[0].caption.replace("`", "")
    shown = [(table.header, table.rows) for table in read_html(text)]
    for each in (statistics_page(told), page):
        assert all(
            (table.header, table.rows) in shown for table in read_markdown(to_markdown(each))
        )
    assert read.texts["summary"][:3] == [
        f"What columns and marks mean ({len(page.tables[0].legend)} lines)",
        f"Setup ({len(page.tables[-2].rows)} rows)",
        "Arms (3 rows)",
    ]
    assert "<details>" not in to_html(page)


def test_it_needs_nothing_but_itself_and_its_figures_are_drawn_and_named(made):
    read = parse_html(text := to_html(made))
    fetched = [
        value for tag, name, value in read.attributes if name in ("src", "href") and tag != "a"
    ]
    contents = [
        base64.b64decode(value.removeprefix("data:image/svg+xml;base64,")) for value in fetched
    ]
    assert [content[:5] for content in contents] == [b"<?xml"] * 2
    figures = [figure for part in made.parts for figure in part.figures]
    assert [figure.name for figure in figures] == ["contrasts", "differences"]
    assert {"none - add", f"{LONG[:9]}…{LONG[-8:]} - add", "worse"} <= {
        *texts_of(figures[0].figure)
    }
    assert [value for tag, name, value in read.attributes if (tag, name) == ("img", "alt")] == [
        figure.title for figure in figures
    ]
    assert not {"link", "iframe", "object"} & set(read.texts)
    assert "default-src 'none'" in text
    assert not re.search(r"url\((?!#)|@import", text)
    assert len(text.encode()) < 2 * 2**20


def test_what_a_plan_holds_is_shown_and_never_run(bench):
    nasty = '</code><script>alert(1)</script><img src=x onerror="alert(1)">'
    bench.expect("rte", 1)
    pretraining = {"corpus": "demo", "steps": 1, "tokenizer": nasty}
    made = make_report(
        open_comparison(bench.plan(config={"pretraining": pretraining}, data_source="demo"))
    )
    read = parse_html(to_html(made))
    assert "0 of 1 planned" in to_html(made)
    assert made.banner == BANNER
    assert "Published tables" not in [part.title for part in made.parts]
    assert "img" not in read.texts
    assert len(read.texts["script"]) == 1
    assert any(nasty in listing for listing in read.texts["pre"])


def test_a_report_lies_in_the_folder_and_its_figures_where_they_are_asked_for(new_bench, tmp_path):
    folder = fill(new_bench("small"), {"add": 0.8, "none": 0.5}, ("rte",))
    assert report(folder, figures=tmp_path / "figures") == folder / "report.html"
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        f"contrasts.{format}" for format in NO_DATES
    }


def test_the_published_table_with_most_of_our_arms_is_open_and_one_with_none_is_not_there(
    made, bench
):
    (part,) = (part for part in made.parts if part.title == "Published tables")
    assert "ours: none" in [
        row[0].text for row in part.tables[0].rows
    ]  # of all tables nopos alone has such a row
    assert len(part.folded) == 6
    for seed in (1, 2):
        bench.finish("rte", seed, arm="none")
    (alone,) = (
        part
        for part in make_report(open_comparison(bench.plan())).parts
        if part.title == "Published tables"
    )
    assert alone.folded == ()


def test_environments_are_columns_with_their_counts(bench):
    for seed, device in ((1, "cpu"), (2, "cpu"), (3, "cuda")):
        bench.record(
            bench.expect("rte", seed),
            0.5,
            environment={"device": device, "packages": {"torch": "9.9"}},
        )
    frame = (
        make_report(open_comparison(bench.plan(data_source="demo")))
        .parts[-1]
        .tables[0]
        .frame.set_index("fact")
    )
    assert frame.T.to_dict("list") == {
        "runs": ["2", "1"],
        "device": ["cpu", "cuda"],
        "torch": ["9.9", "9.9"],
    }
    assert list(frame) == ["Fine-tuning 1", "Fine-tuning 2"]


@pytest.mark.parametrize("name", ["demo", "minilm", "study"])
def test_the_experiment_that_is_shown_is_the_one_that_was_run(name, pytestconfig):
    """It can be run again: with the places of data and text, which nobody else is to know, it is the same."""
    experiment = load_experiment(pytestconfig.rootpath / "configs" / f"{name}.yaml")
    shown = yaml.safe_load(experiment_text(experiment))
    if shown.get("pretraining"):
        shown["pretraining"]["corpus"] = "demo"
    again, places = (
        load_experiment(shown | {"data": "demo"}),
        {"data": True, "pretraining": {"corpus"}},
    )
    assert again.model_dump(exclude=places) == experiment.model_dump(exclude=places)


@pytest.mark.parametrize("folder", ["/home/me/secret", "~/secret", "/home/me/se'cret: x"])
def test_where_someone_keeps_a_checkpoint_is_not_shown(folder):
    given = {
        "name": "x",
        "data": "demo",
        "arms": [{"variant": "add", "checkpoint": f"{folder}/bert"}],
    }
    shown = yaml.safe_load(experiment_text(load_experiment(given)))
    assert shown["arms"][0]["checkpoint"] == "bert"
