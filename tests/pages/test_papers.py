"""Published tables: what is shipped is what the sources print, and ours stand beside it by their conventions."""

import inspect
from dataclasses import replace

import pytest
from helpers.read_pages import read_markdown
from helpers.stored import history_of

from glue_bench.board.results import BANNER, read_results
from glue_bench.data.tasks import TASKS
from glue_bench.pages.papers import LEGEND, named_page, paper_page
from glue_bench.pages.published import PAPERS, published_table
from glue_bench.pages.render import to_markdown

TOLERANCE = {"tupe-1": 0.005, "tupe-3-4": 0.005, "diet-2": 0.05, "bert-1": 0.05, "miniatures": 0.1}
"""Half of the last decimal; the server averaged more decimals than it printed, so that both roundings add up."""


averaged = [
    (name, row)
    for name, table in PAPERS.items()
    if "average" in table.columns
    for row in table.rows
]


@pytest.mark.parametrize(
    ("name", "row"), averaged, ids=[f"{name}-{row.label}" for name, row in averaged]
)
def test_every_published_average_recomputes(name, row):
    """By the paper's convention, from the row's other columns."""
    values = {
        score: float(row.printed[column]) for column, (score,) in PAPERS[name].singly.parts.items()
    }
    parts = [[values[entry] for entry in part] for part in PAPERS[name].average.parts.values()]
    average = sum(sum(part) / len(part) for part in parts) / len(parts)
    assert average == pytest.approx(float(row.printed["average"]), abs=TOLERANCE[name])


@pytest.mark.parametrize("published", PAPERS.values(), ids=list(PAPERS))
def test_a_table_is_read_whole(published):
    assert published.split in ("dev", "test")
    assert published.statistic in ("mean", "median")
    assert len({row.label for row in published.rows}) == len(published.rows)
    for row in published.rows:
        assert tuple(row.printed) == published.columns
        assert all(0 <= float(figure) <= 100 for figure in row.printed.values())
        assert not row.variant or row.parameters > 1e6
    assert set(published.columns) - set(published.singly.parts) <= {"average", "AX", "PAWS"}
    for ((task, split, metric),) in published.singly.parts.values():
        assert split in TASKS[task].splits
        assert metric in TASKS[task].metrics


def test_counterparts_are_variants_with_their_own_defaults():
    from glue_bench.model.variants import VARIANTS
    from glue_bench.model.variants.options import PLACES

    for row in (row for published in PAPERS.values() for row in published.rows if row.variant):
        parameters = inspect.signature(VARIANTS[row.variant].__init__).parameters
        defaults = {name: parameters[name].default for name in row.options}
        assert {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in defaults.items()
        } == row.options
        assert row.segments in (None, *PLACES)


TERMS = ["position-position", "word-word", "word-position", "position-word"]


@pytest.mark.parametrize(
    ("table", "label", "variant", "options", "taken"),
    [
        ("tupe-1", "BERT-A", "add", {"segments": "none"}, True),
        ("tupe-1", "TUPE-A", "untied", {"share": True}, True),
        ("tupe-1", "TUPE-A", "untied", {"share": False}, False),
        ("tupe-1", "TUPE-A", "untied-tie-cls", {}, False),
        ("tupe-1", "BERT-A-d", "four-term", {"terms": TERMS[1:]}, False),
        ("tupe-1", "BERT-A-d", "four-term", {"terms": TERMS}, True),
        ("diet-2", "DIET-REL, per-head, input", "diet-rel", {}, True),
        ("diet-2", "DIET-REL, per-head, input", "diet-rel", {"segments": "none"}, False),
        (
            "diet-2",
            "DIET-REL, per-head, per-head",
            "diet-rel",
            {"segments": "scores", "share": False},
            True,
        ),
    ],
)
def test_an_arm_with_other_options_is_another_model(table, label, variant, options, taken):
    (row,) = (row for row in PAPERS[table].rows if row.label == label)
    assert row.takes(variant, options) is taken


SUM = {"variant": "add", "parameters": 110e6}
MADE_UP = published_table(
    columns="cola rte average",
    rows={
        "Sum": {"scores": "50.0 60.0 55.0", **SUM, "steps": 1000},
        "Sum-mid": {"scores": "40.0 50.0 45.0", **SUM, "steps": 300, "share": 0.3},
        "Untied": {
            "scores": "70.0 60.0 65.0",
            "variant": "untied",
            "parameters": 110e6,
            "steps": 1000,
        },
        "Oracle": {"scores": "99.0 99.0 99.0"},
    },
    **{"title": "Made up", "source": "nowhere", "split": "dev", "protocol": "median of five seeds"},
    **{"statistic": "median", "seeds": 5, "rates": 4, "tokens": 128},
)


def pretrained(*names, steps=100):
    """What plan.json says of arms pretrained here."""
    arms = [{"name": name, "options": {}, "checkpoint": "scratch"} for name in names]
    config = {"arms": arms, "pretraining": {"steps": steps, "batch_tokens": 32, "length": 8}}
    return {"arms": {name: {"parameters": 1_000_000} for name in names}, "config": config}


def beside(published, bench, **plan):
    """The page; its cells by model and column; and in what the two differ, by model."""
    page = paper_page(published, read_results(bench.plan(**plan)))
    return page, page.data.set_index(["model", "column"]), page.tables[1].frame.set_index("model")


def test_rows_without_an_arm_say_why_and_the_page_has_ours_below_theirs(bench):
    bench.finish("cola", 1, 0.49)
    bench.finish("cola", 1, 0.3, arm="untied")
    for cell in bench.cells:
        cell.setdefault("steps", 100)
    page, _, differences = beside(MADE_UP, bench, **pretrained("add"))
    assert differences["note"].to_dict() == {
        **{"Sum": "", "Sum-mid": "no fine-tuned checkpoint after 30% of the steps", "Untied": ""},
        "Oracle": "no variant of ours",
    }
    table, pairs, _ = page.tables
    assert [[cell.text for cell in row[:3]] for row in table.rows] == [
        ["Sum", "50.0", "60.0"], ["ours: add", "49.00 (-1.00)", "–"],  # noqa: RUF001
        ["Untied", "70.0", "60.0"], ["ours: untied", "30.00 (-40.00)", "–"],  # noqa: RUF001
    ]  # fmt: skip
    first = [cell.text for cell in pairs.rows[0]]
    assert first == [
        "Sum",
        "add",
        "110M / 1M",
        "1,000 / 100",
        "128k / 3.2k",
        "5 / 1",
        "4 / 1",
        "fresh weights",
        "",
    ]


def test_medians_at_the_rate_of_the_best_median(bench):
    """The mean would take the lower rate."""
    for seed, (low, high) in enumerate(((0.9, 0.60), (0.5, 0.58), (0.5, 0.56)), start=1):
        bench.finish("cola", seed, low, rate=2e-5)
        history = history_of("validation", "matthews_correlation", 0.7, high)
        bench.record(bench.expect("cola", seed, rate=3e-5), high, history=history)
    for changes, ours in (
        ({}, 58),
        ({"statistic": "mean"}, 100 * (0.9 + 0.5 + 0.5) / 3),
        ({"epoch": "best"}, 70),
    ):
        _, cells, _ = beside(replace(MADE_UP, **changes), bench)
        assert cells.loc[("Sum", "cola"), "ours"] == pytest.approx(ours)


def test_the_metrics_and_the_average_are_the_papers(bench, new_bench):
    bench.finish("mrpc", 1, {"accuracy": 0.7, "f1": 0.8})
    bench.finish("stsb", 1, {"pearson": 0.1, "spearmanr": 0.2})
    tupe, bert = (beside(PAPERS[name], bench)[1]["ours"] for name in ("tupe-1", "bert-1"))
    assert (tupe["BERT-A", "mrpc"], tupe["BERT-A", "stsb"]) == (70.0, 10.0)
    assert (bert["BERT-Base", "mrpc_f1"], bert["BERT-Base", "stsb_spearmanr"]) == (80.0, 20.0)
    published_bench = new_bench("whole")  # ours are the published figures: so must be the average
    published_bench.finish_published("miniatures", "BERT-Small (4/512)")
    _, cells, _ = beside(PAPERS["miniatures"], published_bench)
    assert cells[cells["arm"] == "add"].xs("average", level="column")[
        "ours"
    ].item() == pytest.approx(71.2, abs=0.1)


def test_an_arm_stands_beside_the_row_nearest_in_size_and_only_there(bench):
    bench.finish("rte", 1, arm="small", variant="add")
    bench.finish("rte", 1, arm="large", variant="add")
    arms = {"small": {"parameters": 5_000_000}, "large": {"parameters": 40_000_000}}
    _, _, pairs = beside(PAPERS["miniatures"], bench, arms=arms)
    assert pairs["arm"].tolist() == ["small", "", "", "large"]
    assert pairs["note"]["BERT-Small (4/512)"] == "no run of add"
    assert pairs["parameters"]["BERT-Medium (8/512)"] == "41.4M / 40M"


def test_a_row_of_an_earlier_checkpoint_takes_ours_after_the_same_share(bench):
    for steps, value, seed in ((300, 0.3, 1), (1000, 0.6, 1), (1000, 0.6, 2)):
        bench.finish("cola", seed, value, rate=steps * 1e-6)
        bench.cells[-1]["steps"] = steps
    _, cells, pairs = beside(MADE_UP, bench, **pretrained("add", steps=1000))
    assert cells.loc[("Sum", "cola"), ["ours", "steps"]].tolist() == [60.0, 1000]
    assert cells.loc[("Sum-mid", "cola"), ["ours", "steps"]].tolist() == [30.0, 300]
    assert pairs["steps"].tolist() == ["1,000 / 1,000", "300 / 300", "", ""]
    assert pairs["seeds"].tolist() == ["5 / 2", "5 / 1", "", ""]


def test_seeds_of_several_pretrainings_and_what_ours_start_from(bench):
    """Those of papers share one pretraining, so that as many runs of ours are not like theirs."""
    bench.finish("cola", 1, arm="untied", origin="grafted")
    for seed in range(1, 6):
        bench.finish("rte", seed)
        bench.cells[-1]["pretraining_seed"] = seed
    for cell in bench.cells:
        cell["steps"] = 9
    arms = [{"name": "untied", "options": {}, "checkpoint": "/some/where/bert"}]
    _, _, pairs = beside(MADE_UP, bench, config={"arms": arms})
    assert (pairs["seeds"]["Sum"], pairs["start"]["Untied"]) == (
        "5 / 5, of 5 pretrainings",
        "bert, grafted",
    )


def test_rows_that_are_not_the_official_ones_are_not_called_a_part_of_them(bench):
    bench.finish("cola", 1, partial=True)
    other_rows = {
        "source": "tsv",
        "digest": "d",
        "partial": True,
        "differences": {"validation": "other rows"},
    }
    bench.record(bench.expect("rte"), data=other_rows)
    page, *_ = beside(MADE_UP, bench)
    texts = dict([cell.text for cell in row] for row in page.tables[-1].rows)
    assert texts["Data"] == "tsv; a part of CoLA; other rows than the official ones of RTE"
    assert LEGEND["differences"] in page.tables[0].legend


def test_a_part_of_the_rows_is_not_called_other_rows(bench):
    bench.finish("cola", 1, partial=True)
    page, *_ = beside(MADE_UP, bench)
    assert LEGEND["differences"] not in page.tables[0].legend


def test_partial_data_are_marked_and_made_up_data_have_a_banner(bench, new_bench):
    bench.finish("cola", 1, partial=True)
    bench.finish("rte", 1)
    table = beside(MADE_UP, bench)[0].tables[0]
    assert table.header == ["Model", "CoLA†", "RTE", "Avg.†"]
    assert any(line.startswith("†") for line in table.legend)
    demo = new_bench("demo")
    demo.finish("cola", 1, source="demo", partial=True)
    page, _, _ = beside(MADE_UP, demo)
    assert (page.banner, page.tables[0].header[1]) == (BANNER, "CoLA")


def test_a_table_alone_has_all_rows_and_bold_is_the_best_printed_value():
    read = read_markdown(to_markdown(named_page("tupe-1")))[0]
    assert [row[0][0] for row in read.rows] == [row.label for row in PAPERS["tupe-1"].rows]
    assert [text for row in read.rows for text, bold in row if bold][-1] == "85.04"
    assert [row[0][0] for row in read.rows if row[8][1]] == ["TUPE-R"]
