"""A report: its content, that it is made from the pages, and that it needs no other file."""

import base64
import re

import pytest
import yaml
from helpers.read_pages import check_texts, parse_html, read_html, read_markdown
from helpers.stored import LONG, Bench, fill

from glue_bench import report
from glue_bench.board.compare import open_comparison
from glue_bench.board.leaderboard import make_leaderboard
from glue_bench.board.results import BANNER
from glue_bench.config import load_experiment
from glue_bench.pages.contrasts import statistics_page
from glue_bench.pages.figure_files import NO_DATES
from glue_bench.pages.leaderboard import leaderboard_page
from glue_bench.pages.method import experiment_text
from glue_bench.pages.render import to_html, to_markdown
from glue_bench.pages.report import make_report

TITLES = ["Leaderboard", "Differences", "Published tables", "How it was made"]


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report") / "toy"
    return open_comparison(fill(Bench(folder), source="tsv"))


@pytest.fixture(scope="module")
def full_report(comparison):
    return make_report(comparison)


@pytest.fixture(scope="module")
def html(full_report):
    return to_html(full_report)


@pytest.fixture(scope="module")
def document(html):
    return parse_html(html)


def attributes_of(document, tag, name):
    """Return the values of an attribute of all elements with a tag."""
    values = []
    for element, attribute, value in document.attributes:
        if (element, attribute) == (tag, name):
            values.append(value)
    return values


def part_of(made_report, title):
    """Return the part with this title."""
    (part,) = [part for part in made_report.parts if part.title == title]
    return part


def test_the_parts_have_titles_and_links(full_report, document):
    assert [part.title for part in full_report.parts] == TITLES
    assert document.texts["h1"] == ["Report: toy"]
    assert document.texts["h2"] == TITLES
    addresses = [title.lower().replace(" ", "-") for title in TITLES]
    links = [link for link in attributes_of(document, "a", "href") if link.startswith("#")]
    assert links == [f"#{address}" for address in addresses]
    assert set(addresses) <= set(attributes_of(document, "section", "id"))


def test_the_first_line_of_the_leaderboard_stands_below_the_title(comparison, document):
    caption = leaderboard_page(make_leaderboard(comparison)).tables[0].caption
    assert document.texts["p"][0] == caption.replace("`", "")


@pytest.fixture(params=["statistics", "leaderboard"])
def page(comparison, request):
    """A page of the same experiment."""
    if request.param == "statistics":
        return statistics_page(comparison)
    return leaderboard_page(make_leaderboard(comparison))


def test_the_tables_equal_the_tables_of_the_pages(page, html):
    tables = [(table.header, table.rows) for table in read_html(html)]
    for table in read_markdown(to_markdown(page)):
        assert (table.header, table.rows) in tables


def test_what_explains_is_folded(comparison, document):
    page = leaderboard_page(make_leaderboard(comparison))
    legend = page.tables[0].legend
    setup = page.tables[-2]
    assert document.texts["summary"][:3] == [
        f"What columns and marks mean ({len(legend)} lines)",
        f"Setup ({len(setup.rows)} rows)",
        "Arms (3 rows)",
    ]
    assert "<details>" not in to_html(page)


def test_the_time_of_its_runs_has_a_unit_that_fits(document):
    (line,) = [text for text in document.texts["p"] if text.startswith("The runs took")]
    assert re.fullmatch(r"The runs took [\d.]+ (s|min), added up over processes.", line)


def test_it_needs_nothing_but_itself(html, document):
    assert attributes_of(document, "link", "href") == []
    elements = set(document.texts)
    assert elements.isdisjoint({"link", "iframe", "object"})
    assert "default-src 'none'" in html
    assert not re.search(r"url\((?!#)|@import", html)
    assert len(html.encode()) < 2 * 2**20


def test_its_figures_are_in_the_file_and_have_titles(full_report, document):
    sources = [value for _, name, value in document.attributes if name == "src"]
    assert len(sources) == 2
    for source in sources:
        content = base64.b64decode(source.removeprefix("data:image/svg+xml;base64,"))
        assert content.startswith(b"<?xml")
    figures = []
    for part in full_report.parts:
        figures += part.figures
    assert [figure.name for figure in figures] == ["contrasts", "differences"]
    assert attributes_of(document, "img", "alt") == [figure.title for figure in figures]
    words = {"none - add", f"{LONG[:9]}…{LONG[-8:]} - add", "worse"}
    assert words <= set(check_texts(figures[0].figure))


NASTY = '</code><script>alert(1)</script><img src=x onerror="alert(1)">'


def test_what_a_plan_holds_is_shown_and_never_run(bench):
    bench.expect("rte", seed=1)
    pretraining = {"corpus": "demo", "steps": 1, "tokenizer": NASTY}
    path = bench.plan(config={"pretraining": pretraining}, data_source="demo")
    document = parse_html(to_html(make_report(open_comparison(path))))
    assert "img" not in document.texts
    assert len(document.texts["script"]) == 1
    assert any(NASTY in listing for listing in document.texts["pre"])


def test_a_report_of_made_up_data_says_so_and_has_no_published_tables(bench):
    bench.expect("rte", seed=1)
    demo_report = make_report(open_comparison(bench.plan(data_source="demo")))
    assert demo_report.banner == BANNER
    assert "0 of 1 planned" in to_html(demo_report)
    assert "Published tables" not in [part.title for part in demo_report.parts]


def test_a_report_lies_in_the_folder_and_its_figures_where_they_are_asked_for(new_bench, tmp_path):
    folder = fill(new_bench("small"), {"add": 0.8, "none": 0.5}, ("rte",))
    figures = tmp_path / "figures"
    assert report(folder, figures=figures) == folder / "report.html"
    names = {path.name for path in figures.iterdir()}
    assert names == {f"contrasts.{format}" for format in NO_DATES}


def test_the_published_table_with_most_of_our_arms_is_open(full_report):
    part = part_of(full_report, "Published tables")
    models = [row[0].text for row in part.tables[0].rows]
    assert "ours: none" in models  # only the table nopos has such a row
    assert len(part.folded) == 6


def test_a_published_table_without_an_arm_of_ours_is_not_there(bench):
    for seed in (1, 2):
        bench.finish("rte", seed=seed, arm="none")
    small_report = make_report(open_comparison(bench.plan()))
    assert part_of(small_report, "Published tables").folded == ()


def test_environments_are_columns_with_their_counts(bench):
    for seed, device in ((1, "cpu"), (2, "cpu"), (3, "cuda")):
        environment = {"device": device, "packages": {"torch": "9.9"}}
        bench.record(bench.expect("rte", seed=seed), score=0.5, environment=environment)
    demo_report = make_report(open_comparison(bench.plan(data_source="demo")))
    frame = demo_report.parts[-1].tables[0].frame.set_index("fact")
    assert list(frame) == ["Fine-tuning 1", "Fine-tuning 2"]
    expected = {
        "runs": ["2", "1"],
        "device": ["cpu", "cuda"],
        "torch": ["9.9", "9.9"],
    }
    assert frame.T.to_dict("list") == expected


@pytest.mark.parametrize("name", ["demo", "minilm", "study"])
def test_the_experiment_that_is_shown_is_the_one_that_was_run(name, pytestconfig):
    """The places of data and text are private. With them added, the experiment can be run again."""
    experiment = load_experiment(pytestconfig.rootpath / "configs" / f"{name}.yaml")
    document = yaml.safe_load(experiment_text(experiment))
    document["data"] = "demo"
    if document.get("pretraining"):
        document["pretraining"]["corpus"] = "demo"
    loaded = load_experiment(document)
    places = {"data": True, "pretraining": {"corpus"}}
    assert loaded.model_dump(exclude=places) == experiment.model_dump(exclude=places)


@pytest.mark.parametrize("folder", ["/home/me/secret", "~/secret", "/home/me/se'cret: x"])
def test_where_someone_keeps_a_checkpoint_is_not_shown(folder):
    arms = [{"variant": "add", "checkpoint": f"{folder}/bert"}]
    experiment = load_experiment({"name": "x", "data": "demo", "arms": arms})
    document = yaml.safe_load(experiment_text(experiment))
    assert document["arms"][0]["checkpoint"] == "bert"
