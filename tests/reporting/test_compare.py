"""A published table beside an experiment."""

import csv
import json
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from glue_bench.errors import UserError
from glue_bench.reporting.formats import FORMATS
from glue_bench.reporting.notes import BANNER
from glue_bench.reporting.papers import TABLES
from glue_bench.reporting.papers.compare import set_beside
from glue_bench.reporting.papers.export import beside_named, render, render_list
from glue_bench.reporting.papers.page import MEDIANS, paper_page
from glue_bench.reporting.papers.published import Counterpart, Published
from glue_bench.reporting.terminal import show
from glue_bench.tables.results import read_results

FLOATS = ("ours", "difference")
MADE_UP = """\
model,steps,CoLA,RTE,avg_reported
Sum,1000,50.0,60.0,55.0
Sum-mid,300,40.0,50.0,45.0
Untied,1000,70.0,60.0,65.0
Oracle,1000,99.0,99.0,99.0
"""
GOLDEN = """\
# Made up; ours below

| Model        |           CoLA |            RTE |          Avg. |
| ------------ | -------------: | -------------: | ------------: |
| Sum          |           50.0 |           60.0 |          55.0 |
| ours: add    |  49.00 (-1.00) | 50.00 (-10.00) | 49.50 (-5.50) |
| Untied       |           70.0 |           60.0 |          65.0 |
| ours: untied | 30.00 (-40.00) |              – |             – |
"""  # noqa: RUF001
NOTES = """\
- Source: nowhere. The dev set; median of five seeds.
- Scores: Matthews correlation for CoLA, accuracy for the others. Average: mean of the 2 columns. Bold is the best value that the paper prints in any of its rows, those without an arm of ours included.
- Ours: experiment `toy`, validation set, and beside it ours minus theirs. Protocol: the median over seeds, after the last epoch, fine-tuned at the learning rate 2e-5. Medians, as the paper has them: a leaderboard has means, unless its experiment asks for medians. –: no score, because nothing was run or it is undefined, or an average that lacks a column.
- The differences were not tested, because ours is not like theirs: 1M parameters instead of 110M (add); 100 steps instead of 1,000 (3.2k tokens instead of 128k, with padding); 3 seeds instead of 5 (add); 1 rate instead of 4; grafted (untied); 1 seed instead of 5 (untied); and theirs are medians, which are never tested.
- Rows of the paper without an arm of ours: Sum-mid (no fine-tuned checkpoint after 30% of the steps); Oracle (no variant of ours).
- Arms of ours that this table has no row for: `none`.
"""  # noqa: E501, RUF001


@pytest.fixture
def made_up(tmp_path) -> Published:
    """A table with a mean of two columns, medians of five seeds, and a row that is no variant of ours."""
    (tmp_path / "made_up.csv").write_text(MADE_UP)
    return Published(
        title="Made up",
        source="nowhere",
        file=str(tmp_path / "made_up.csv"),
        split="dev",
        protocol="median of five seeds",
        statistic="median",
        seeds=5,
        rates=4,
        batch_tokens=128,
        counterparts={
            "Sum": Counterpart(variant="add", parameters=110e6),
            "Sum-mid": Counterpart(variant="add", parameters=110e6, share=0.3),
            "Untied": Counterpart(variant="untied", parameters=110e6),
        },
    )


@pytest.fixture
def beside(made_up, monkeypatch):
    """Render the made-up table beside an experiment."""
    monkeypatch.setitem(TABLES, "made-up", made_up)
    return lambda path=None, format="markdown": render("made-up", path, format)


def pretrained(*names, steps=100):
    """What plan.json says of arms pretrained here."""
    return {
        "arms": {name: {"parameters": 1_000_000} for name in names},
        "config": {
            "arms": [{"name": name, "options": {}, "checkpoint": "scratch"} for name in names],
            "pretraining": {"start": "scratch", "steps": steps, "batch_tokens": 32},
        },
    }


def after(bench, steps=100):
    for cell in bench.cells:
        cell.setdefault("steps", steps)


def cells_of(published, bench):
    frame = set_beside(published, read_results(bench.path)).cells
    return frame.set_index(["model", "column"])


def test_the_layout(bench, beside):
    for seed, cola in ((1, 0.49), (2, 0.53), (3, 0.46)):
        bench.finish("cola", seed, cola)
        bench.finish("rte", seed, 0.5)
    bench.expect("cola", 1, arm="again", variant="add")
    bench.finish("cola", 1, 0.3, arm="untied", origin="grafted")
    bench.expect("rte", 1, arm="untied", origin="grafted")
    bench.finish("cola", 1, 0.3, arm="none")
    after(bench)
    table, notes = beside(bench.plan(**pretrained("add", "none"))).split("\n\n## Notes\n\n")
    assert (table + "\n", notes) == (GOLDEN, NOTES)


def test_medians_at_the_rate_of_the_best_median(bench, made_up):
    """The mean would take the lower rate."""
    for seed, (low, high) in enumerate(((0.9, 0.60), (0.5, 0.58), (0.5, 0.56)), start=1):
        bench.finish("cola", seed, low, rate=2e-5)
        bench.finish("cola", seed, high, rate=3e-5)
    bench.plan()
    assert cells_of(made_up, bench).loc[("Sum", "CoLA"), "ours"] == pytest.approx(58)
    by_mean = cells_of(replace(made_up, statistic="mean"), bench)
    assert by_mean.loc[("Sum", "CoLA"), "ours"] == pytest.approx(100 * (0.9 + 0.5 + 0.5) / 3)


def test_the_metrics_are_the_papers(bench):
    bench.finish("mrpc", 1, {"accuracy": 0.7, "f1": 0.8})
    bench.finish("stsb", 1, {"pearson": 0.1, "spearmanr": 0.2})
    bench.plan()
    tupe, bert = cells_of(TABLES["tupe-1"], bench), cells_of(TABLES["bert-1"], bench)
    assert (tupe.loc[("BERT-A", "MRPC"), "ours"], tupe.loc[("BERT-A", "STSB"), "ours"]) == (70.0, 10.0)
    assert (bert.loc[("BERT-Base", "MRPC_f1"), "ours"], bert.loc[("BERT-Base", "STSB_spearman"), "ours"]) == (
        80.0,
        20.0,
    )
    assert bert.loc[("BERT-Base", "MRPC_f1"), "unlike"].startswith(
        "dev instead of test set; 1 parameters instead of 110M"
    )


def test_the_average_is_by_the_papers_convention(bench):
    """Ours are the published figures: so must be the average, by each table's own rule."""
    bench.finish_published("miniatures", "BERT-Small (4/512)")
    bench.plan()
    cells = cells_of(TABLES["miniatures"], bench)
    row = cells[cells["arm"] == "add"].xs("average", level="column")
    assert row["ours"].item() == pytest.approx(71.2, abs=0.1)


def test_an_arm_stands_beside_the_row_nearest_in_size_and_only_there(bench):
    bench.finish("rte", 1, arm="small", variant="add")
    bench.finish("rte", 1, arm="large", variant="add")
    bench.plan(arms={"small": {"parameters": 5_000_000}, "large": {"parameters": 40_000_000}})
    cells = set_beside(TABLES["miniatures"], read_results(bench.path)).cells
    by_model = cells[cells["column"] == "RTE"].set_index("model")
    assert by_model["arm"].tolist() == ["small", "", "", "large"]
    assert by_model["unlike"]["BERT-Small (4/512)"] == "no run of add near 28.8M parameters"
    assert "parameters instead of 41.4M" not in by_model["unlike"]["BERT-Medium (8/512)"]


def test_a_row_of_an_earlier_checkpoint_takes_ours_after_the_same_share(bench, made_up):
    for steps, value in ((300, 0.3), (1000, 0.6)):
        bench.finish("cola", 1, value, rate=steps * 1e-6)
        bench.cells[-1]["steps"] = steps
    bench.plan(**pretrained("add", steps=1000))
    cells = cells_of(replace(made_up, batch_tokens=32), bench)
    assert cells.loc[("Sum", "CoLA"), ["ours", "steps"]].tolist() == [60.0, 1000]
    assert cells.loc[("Sum-mid", "CoLA"), ["ours", "steps"]].tolist() == [30.0, 300]
    assert "steps" not in cells.loc[("Sum", "CoLA"), "unlike"]


def test_a_published_median_is_said_not_to_be_tested(bench, made_up, beside, monkeypatch):
    """One run has collapsed: the median is theirs, and the mean is far below it."""
    for seed, value in enumerate((0.75, 0.75, 0.30, 0.76, 0.75), start=1):
        bench.finish("rte", seed, value)
    bench.arms["add"]["parameters"] = 110_000_000
    path = bench.plan(config={"arms": [{"name": "add", "options": {}, "checkpoint": "scratch"}]})
    same = replace(made_up, rates=None, batch_tokens=None)
    same.__dict__["_lines"] = [{"model": "Sum", "CoLA": "50.0", "RTE": "99.0"}]
    monkeypatch.setitem(TABLES, "made-up", same)
    row = cells_of(same, bench).loc[("Sum", "RTE")]
    assert (row["unlike"], row["ours"], row["seeds"]) == ("", 75.0, 5)
    assert f"{MEDIANS} (`add`)." in beside(path)


@pytest.mark.parametrize(
    ("steps", "theirs", "unlike"),
    [
        (1000, 32, ""),
        (1000, 128, "1,000 steps (32k tokens instead of 128k, with padding)"),
        (1000, None, ""),
        (4000, 128, "4,000 steps instead of 1,000 (128k tokens instead of 128k, with padding)"),
    ],
)
def test_as_many_steps_of_fewer_tokens_are_not_alike(bench, made_up, steps, theirs, unlike):
    bench.finish("cola")
    after(bench, steps)
    bench.plan(**pretrained("add", steps=steps))
    said = cells_of(replace(made_up, batch_tokens=theirs), bench).loc[("Sum", "CoLA"), "unlike"]
    assert [phrase for phrase in said.split("; ") if "steps" in phrase] == ([unlike] if unlike else [])


def test_what_is_not_alike_is_in_the_table(bench, made_up, beside, new_bench):
    bench.finish("cola", 1, partial=True, origin="adapted")
    bench.finish("rte", 1, arm="untied", origin="scratch")
    bench.plan(config={"arms": [{"name": "add", "options": {}, "checkpoint": "some/where/bert"}]})
    cells = cells_of(made_up, bench)
    assert cells.loc[("Sum", "CoLA"), "unlike"] == (
        "adapted; partial data: CoLA; 1 parameters instead of 110M; from bert, pretrained elsewhere; "
        "1 seed instead of 5; 1 rate instead of 4"
    )
    assert "not pretrained" in cells.loc[("Untied", "CoLA"), "unlike"]
    text = beside(bench.path)
    header = text.splitlines()[2]
    assert [name.strip() for name in header.strip("|").split("|")] == ["Model", "CoLA†", "RTE", "Avg.†"]
    assert "like theirs: adapted (add); partial data: CoLA; 1 parameters instead of 110M;" in text
    demo = new_bench("demo")
    demo.finish("cola", 1, source="demo", partial=True)
    text = beside(demo.plan())
    assert BANNER in text
    assert "like theirs: demo data; 1 parameters instead of 110M" in text
    assert "†" not in text


def test_json_and_csv_have_the_same_rows(bench, beside):
    for seed, value in ((1, 0.511), (2, 0.533), (3, 0.52)):
        bench.finish("cola", seed, value)
        bench.finish("rte", seed, 1 - value)
    path = bench.plan()
    rows = json.loads(beside(path, "json"))["rows"]
    flat = list(csv.DictReader(StringIO(beside(path, "csv"))))
    assert [
        {name: "" if value is None else str(value) for name, value in row.items() if name not in FLOATS} for row in rows
    ] == [{name: value for name, value in row.items() if name not in FLOATS} for row in flat]
    assert [row[name] and float(row[name]) for row in flat for name in FLOATS] == [
        "" if row[name] is None else row[name] for row in rows for name in FLOATS
    ]
    assert {row["model"]: row["unlike"] for row in rows if not row["arm"]} == {
        "Sum-mid": "no fine-tuned checkpoint after 30% of the steps",
        "Untied": "no run of untied",
        "Oracle": "no variant of ours",
    }


def test_a_table_alone_is_the_papers(beside):
    lines = [line for line in beside().splitlines() if line.startswith("|")]
    assert lines[2] == "| Sum     |     50.0 |     60.0 |     55.0 |"
    assert len(lines) == 2 + 4
    assert [row["published"] for row in json.loads(beside(format="json"))["rows"]][-3:] == ["99.0", "99.0", "99.0"]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", list(TABLES))
def test_every_table_bears_an_experiment_without_records(bench, name, format):
    bench.expect("rte", 1)
    bench.expect("rte", 1, arm="concat")
    assert "concat" in render(name, bench.plan(), format) or format == "csv"


@pytest.mark.usefixtures("beside")
def test_a_terminal_shows_every_value(bench):
    bench.finish("cola", 1, 0.512)
    bench.finish("rte", 1, 0.5)
    console = Console(width=60, record=True, file=StringIO(), force_terminal=True)
    show(paper_page(beside_named("made-up", bench.plan())), console)
    text = console.export_text()
    assert all(figure in text for figure in ("51.20", "+1.20", "no variant of ours", "instead of 4", "nowhere"))
    assert max(map(len, text.splitlines())) <= 60


def test_names_and_folders_that_do_not_exist(tmp_path):
    with pytest.raises(UserError, match="unknown table 'tupe1'; did you mean 'tupe-1'"):
        render("tupe1", tmp_path)
    with pytest.raises(UserError, match="no experiment in"):
        render("tupe-1", tmp_path / "nowhere")


def test_the_command_line(glue_bench, refused, bench, tmp_path):
    bench.finish("rte", 1)
    bench.plan()
    listed = glue_bench("table").out.splitlines()[4:]
    assert [line.split()[1] for line in listed] == list(TABLES)
    assert glue_bench("table", "tupe-1", bench.path).out == render("tupe-1", bench.path)
    assert glue_bench("table", "tupe-1").out == render("tupe-1")
    file = tmp_path / "table.csv"
    assert glue_bench("table", "diet-2", bench.path, "--format", "csv", "-o", file) == (0, "", "")
    assert file.read_text() == render("diet-2", bench.path, "csv")
    for suffix, format in (("tex", "latex"), ("html", "html"), ("json", "json"), ("txt", "markdown")):
        file = tmp_path / f"table.{suffix}"
        assert glue_bench("table", "diet-2", bench.path, "-o", file) == (0, "", "")
        assert file.read_text() == render("diet-2", bench.path, format)
    assert glue_bench("table", "--format", "latex").out == render_list("latex")
    assert refused("table", "--format", "xml").startswith("unknown format 'xml'")
    assert refused("table", "tup-1", bench.path).startswith("unknown table 'tup-1'; did you mean 'tupe-1'?")
    assert "no experiment in" in refused("table", "tupe-1", tmp_path / "nowhere")
    assert "cannot write" in refused("table", "tupe-1", bench.path, "-o", tmp_path / "no" / "table.md")


@pytest.mark.usefixtures("made_up")
def test_runs_of_several_pretrainings_are_no_seeds_of_one(bench, beside):
    """Those of papers share one pretraining, so that as many runs of ours are not like theirs."""
    for seed in range(1, 6):
        cell = bench.expect("rte", seed)
        cell["pretraining_seed"] = seed
        bench.record(cell)
    assert "5 runs from 5 pretrainings instead of 5 from one" in beside(bench.plan())
