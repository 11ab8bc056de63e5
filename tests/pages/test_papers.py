"""Published tables: the printed scores, and our scores by the same conventions."""

import inspect
from dataclasses import replace
from itertools import chain

import pytest
from helpers.read_pages import read_markdown
from helpers.stored import history_of

from glue_bench.board.results import BANNER, read_results
from glue_bench.data.tasks import TASKS
from glue_bench.pages.papers import PAPER_LEGEND, named_page, paper_page
from glue_bench.pages.published import NOT_PRINTED, PAPERS, published_table
from glue_bench.pages.render import to_markdown

TOLERANCE = {
    "tupe-1": 0.005,
    "tupe-3-4": 0.005,
    "diet-2": 0.05,
    "bert-1": 0.05,
    "miniatures": 0.1,
    "neobert-3": 0.05,
}
"""Half of the last decimal; a whole one where the server averaged unprinted decimals."""


def rows_of_tables(with_column=None):
    """The printed rows of all tables, or of those that have a column, each with its table."""
    rows = []
    for name, published in PAPERS.items():
        if with_column is None or with_column in published.columns:
            for row in published.rows:
                rows.append(pytest.param(name, row, id=f"{name}-{row.label}"))
    return rows


@pytest.mark.parametrize(("name", "row"), rows_of_tables(with_column="average"))
def test_every_published_average_recomputes(name, row):
    """The average is computed from the other columns of the row by the paper's convention."""
    published = PAPERS[name]
    printed = {}
    for column, scores in published.singly.parts.items():
        printed |= dict.fromkeys(scores, float(row.printed[column]))
    means = []
    for part in published.average.parts.values():
        means.append(sum(printed[score] for score in part) / len(part))
    average = sum(means) / len(means)
    assert average == pytest.approx(float(row.printed["average"]), abs=TOLERANCE[name])


each_table = pytest.mark.parametrize("published", PAPERS.values(), ids=list(PAPERS))


@each_table
def test_a_table_says_how_its_numbers_came_about(published):
    assert published.split in ("dev", "test")
    assert published.statistic in ("mean", "median")


@each_table
def test_the_rows_of_a_table_have_names_of_their_own(published):
    labels = [row.label for row in published.rows]
    assert len(set(labels)) == len(labels)


@each_table
def test_the_columns_of_a_table_are_scores_of_ours_or_known_ones(published):
    assert set(published.columns) - set(published.singly.parts) <= {"average", "AX", "PAWS"}
    for task, split, metric in chain(*published.singly.parts.values()):
        assert split in TASKS[task].splits
        assert metric in TASKS[task].metrics


@pytest.mark.parametrize(("name", "row"), rows_of_tables())
def test_a_row_is_read_whole(name, row):
    assert tuple(row.printed) == PAPERS[name].columns
    scores = [float(score) for score in row.printed.values() if score != NOT_PRINTED]
    assert min(scores) >= 0
    assert max(scores) <= 100
    assert not row.variant or row.parameters > 1e6


def check_defaults(row, variant):
    """Check that the options of a row are defaults of its variant."""
    parameters = inspect.signature(variant.__init__).parameters
    for option, value in row.options.items():
        default = parameters[option].default
        assert value == (list(default) if isinstance(default, tuple) else default)


@each_table
def test_counterparts_are_variants_with_their_own_defaults(published):
    from glue_bench.model.variants import VARIANTS
    from glue_bench.model.variants.options import SEGMENT_PLACES

    for row in published.rows:
        if row.variant:
            check_defaults(row, VARIANTS[row.variant])
        assert row.segments in (None, *SEGMENT_PLACES)


TERMS = ["position-position", "word-word", "word-position", "position-word"]
SCORES = {"segments": "scores", "share": False}


@pytest.mark.parametrize(
    ("table", "label", "variant", "options", "is_taken"),
    [
        ("tupe-1", "BERT-A", "add", {"segments": "none"}, True),
        ("tupe-1", "TUPE-A", "untied", {"share": True}, True),
        ("tupe-1", "TUPE-A", "untied", {"share": False}, False),
        ("tupe-1", "TUPE-A", "untied-tie-cls", {}, False),
        ("tupe-1", "BERT-A-d", "four-term", {"terms": TERMS[1:]}, False),
        ("tupe-1", "BERT-A-d", "four-term", {"terms": TERMS}, True),
        ("diet-2", "DIET-REL, per-head, input", "diet-rel", {}, True),
        ("diet-2", "DIET-REL, per-head, input", "diet-rel", {"segments": "none"}, False),
        ("diet-2", "DIET-REL, per-head, per-head", "diet-rel", SCORES, True),
    ],
)
def test_an_arm_with_other_options_is_another_model(table, label, variant, options, is_taken):
    (row,) = [row for row in PAPERS[table].rows if row.label == label]
    assert row.takes(variant, options) is is_taken


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
    title="Made up",
    source="nowhere",
    split="dev",
    protocol="median of five seeds",
    statistic="median",
    seeds=5,
    rates=4,
    tokens=128,
)


def pretrained(*names, steps=100):
    """Return the facts in plan.json of arms that were pretrained here."""
    arms = [{"name": name, "options": {}, "checkpoint": "scratch"} for name in names]
    pretraining = {"steps": steps, "batch_tokens": 32, "length": 8}
    return {
        "arms": {name: {"parameters": 1_000_000} for name in names},
        "config": {"arms": arms, "pretraining": pretraining},
    }


def page_of(published, bench, **plan):
    """Return the page of a table beside the experiment of a bench."""
    return paper_page(published, read_results(bench.plan(**plan)))


def cells_of(published, bench, **plan):
    """Return the data of a page by model and column."""
    return page_of(published, bench, **plan).data.set_index(["model", "column"])


def pairs_of(published, bench, **plan):
    """Return the differences between theirs and ours, by model."""
    return page_of(published, bench, **plan).tables[1].frame.set_index("model")


@pytest.fixture
def two_arms(bench):
    """A run of two arms that were pretrained for 100 steps."""
    bench.finish("cola", seed=1, score=0.49)
    bench.finish("cola", seed=1, score=0.3, arm="untied")
    for cell in bench.cells:
        cell.setdefault("steps", 100)
    return bench


def test_rows_without_an_arm_say_why(two_arms):
    pairs = pairs_of(MADE_UP, two_arms, **pretrained("add"))
    expected = {
        "Sum": "",
        "Sum-mid": "no fine-tuned checkpoint after 30% of the steps",
        "Untied": "",
        "Oracle": "no variant of ours",
    }
    assert pairs["note"].to_dict() == expected


def test_the_page_has_ours_below_theirs(two_arms):
    table = page_of(MADE_UP, two_arms, **pretrained("add")).tables[0]
    texts = [[cell.text for cell in row[:3]] for row in table.rows]
    assert texts == [
        ["Sum", "50.0", "60.0"],
        ["ours: add", "49.00 (-1.00)", "–"],  # noqa: RUF001
        ["Untied", "70.0", "60.0"],
        ["ours: untied", "30.00 (-40.00)", "–"],  # noqa: RUF001
    ]


def test_the_page_compares_the_settings_of_theirs_and_ours(two_arms):
    table = page_of(MADE_UP, two_arms, **pretrained("add")).tables[1]
    expected = [
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
    assert [cell.text for cell in table.rows[0]] == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({}, 58), ({"statistic": "mean"}, 100 * (0.9 + 0.5 + 0.5) / 3), ({"epoch": "best"}, 70)],
)
def test_medians_at_the_rate_of_the_best_median(bench, changes, expected):
    """The mean would take the lower rate."""
    for seed, (low, high) in enumerate(((0.9, 0.60), (0.5, 0.58), (0.5, 0.56)), start=1):
        bench.finish("cola", seed=seed, score=low, rate=2e-5)
        history = history_of("validation", "matthews_correlation", 0.7, high)
        bench.record(bench.expect("cola", seed=seed, rate=3e-5), score=high, history=history)
    cells = cells_of(replace(MADE_UP, **changes), bench)
    assert cells.loc[("Sum", "cola"), "ours"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "model", "column", "expected"),
    [
        ("tupe-1", "BERT-A", "mrpc", 70.0),
        ("tupe-1", "BERT-A", "stsb", 10.0),
        ("bert-1", "BERT-Base", "mrpc_f1", 80.0),
        ("bert-1", "BERT-Base", "stsb_spearmanr", 20.0),
    ],
)
def test_the_metrics_are_the_papers(bench, name, model, column, expected):
    bench.finish("mrpc", seed=1, score={"accuracy": 0.7, "f1": 0.8})
    bench.finish("stsb", seed=1, score={"pearson": 0.1, "spearmanr": 0.2})
    cells = cells_of(PAPERS[name], bench)
    assert cells.loc[(model, column), "ours"] == expected


def test_the_average_is_the_papers(bench):
    """If our scores are the published ones, our average is the published average."""
    bench.finish_published("miniatures", "BERT-Small (4/512)")
    cells = cells_of(PAPERS["miniatures"], bench)
    averages = cells[cells["arm"] == "add"].xs("average", level="column")
    assert averages["ours"].item() == pytest.approx(71.2, abs=0.1)


def test_an_arm_stands_beside_the_row_nearest_in_size_and_only_there(bench):
    bench.finish("rte", seed=1, arm="small", variant="add")
    bench.finish("rte", seed=1, arm="large", variant="add")
    arms = {"small": {"parameters": 5_000_000}, "large": {"parameters": 40_000_000}}
    pairs = pairs_of(PAPERS["miniatures"], bench, arms=arms)
    assert pairs["arm"].tolist() == ["small", "", "", "large"]
    checkpoint = "google/bert_uncased_L-4_H-512_A-8"
    assert pairs["note"]["BERT-Small (4/512)"] == f"no run of add or {checkpoint}"
    assert pairs["parameters"]["BERT-Medium (8/512)"] == "41.4M / 40M"


@pytest.fixture
def two_checkpoints(bench):
    """Runs after 30% and after all of the steps."""
    for steps, value, seed in ((300, 0.3, 1), (1000, 0.6, 1), (1000, 0.6, 2)):
        cell = bench.finish("cola", seed=seed, score=value, rate=steps * 1e-6)
        cell["steps"] = steps
    return bench


def test_a_row_of_an_earlier_checkpoint_takes_ours_after_the_same_share(two_checkpoints):
    cells = cells_of(MADE_UP, two_checkpoints, **pretrained("add", steps=1000))
    assert cells.loc[("Sum", "cola"), ["ours", "steps"]].tolist() == [60.0, 1000]
    assert cells.loc[("Sum-mid", "cola"), ["ours", "steps"]].tolist() == [30.0, 300]


def test_steps_and_seeds_belong_to_the_checkpoint(two_checkpoints):
    pairs = pairs_of(MADE_UP, two_checkpoints, **pretrained("add", steps=1000))
    assert pairs["steps"].tolist() == ["1,000 / 1,000", "300 / 300", "", ""]
    assert pairs["seeds"].tolist() == ["5 / 2", "5 / 1", "", ""]


def test_seeds_of_several_pretrainings_are_not_like_theirs(bench):
    """Seeds of papers share one pretraining."""
    for seed in range(1, 6):
        cell = bench.finish("rte", seed=seed)
        cell |= {"pretraining_seed": seed, "steps": 9}
    assert pairs_of(MADE_UP, bench)["seeds"]["Sum"] == "5 / 5, of 5 pretrainings"


def test_an_arm_that_was_converted_says_what_it_started_from(bench):
    bench.finish("cola", seed=1, arm="untied", origin="grafted")
    arms = [{"name": "untied", "options": {}, "checkpoint": "/some/where/bert"}]
    assert pairs_of(MADE_UP, bench, config={"arms": arms})["start"]["Untied"] == "bert, grafted"


OTHER_ROWS = {
    "source": "tsv",
    "digest": "d",
    "partial": True,
    "differences": {"validation": "other rows"},
}


def test_rows_that_are_not_the_official_ones_are_not_called_a_part_of_them(bench):
    bench.finish("cola", seed=1, partial=True)
    bench.record(bench.expect("rte"), data=OTHER_ROWS)
    page = page_of(MADE_UP, bench)
    facts = page.tables[-1].frame.set_index("fact")["value"]
    assert facts["Data"] == "tsv; a part of CoLA; other rows than the official ones of RTE"
    assert PAPER_LEGEND["differences"] in page.tables[0].legend


def test_a_part_of_the_rows_is_not_called_other_rows(bench):
    bench.finish("cola", seed=1, partial=True)
    assert PAPER_LEGEND["differences"] not in page_of(MADE_UP, bench).tables[0].legend


def test_partial_data_are_marked(bench):
    bench.finish("cola", seed=1, partial=True)
    bench.finish("rte", seed=1)
    table = page_of(MADE_UP, bench).tables[0]
    assert table.header == ["Model", "CoLA†", "RTE", "Avg.†"]
    assert any(line.startswith("†") for line in table.legend)


def test_made_up_data_have_a_banner_and_no_mark(bench):
    bench.finish("cola", seed=1, source="demo", partial=True)
    page = page_of(MADE_UP, bench)
    assert page.banner == BANNER
    assert page.tables[0].header[1] == "CoLA"


def test_a_row_that_two_sources_print_has_the_same_scores():
    """ModernBERT's table takes DeBERTa-V3-Large from the paper; its repository has it, too.

    QQP is left out, where they differ: 93.3 and 93.0.
    """
    (paper,) = [row for row in PAPERS["modernbert-5"].rows if row.label == "DeBERTaV3 (large)"]
    (repository,) = [row for row in PAPERS["deberta"].rows if row.label == "DeBERTa-V3-Large"]
    for column in ("mnli_m", "sst2", "qnli", "cola", "rte", "mrpc", "stsb"):
        assert paper.printed[column] == repository.printed[column], column


def native_arm(bench, checkpoint, *tasks):
    """Finish a cell of a native arm on each task; the metrics of MRPC differ."""
    for task in tasks:
        value = {"accuracy": 0.8, "f1": 0.9} if task == "mrpc" else 0.7
        bench.finish(task, seed=1, score=value, arm="mine", variant="native", origin="as published")
    return {"config": {"arms": [{"name": "mine", "checkpoint": checkpoint, "variant": "native"}]}}


@pytest.mark.parametrize(
    "checkpoint", ["chandar-lab/NeoBERT", "./NeoBERT", "NeoBERT"], ids=["hub", "folder", "name"]
)
def test_a_native_arm_stands_beside_its_checkpoint(bench, checkpoint):
    plan = native_arm(bench, checkpoint, "rte")
    pairs = pairs_of(PAPERS["neobert-3"], bench, **plan)
    assert pairs["arm"].to_dict() == {"NeoBERT-1024": "", "NeoBERT-4096": "mine"}


def test_a_native_arm_of_another_owner_is_another_model(bench):
    plan = native_arm(bench, "somebody/NeoBERT", "rte")
    pairs = pairs_of(PAPERS["neobert-3"], bench, **plan)
    assert pairs["note"]["NeoBERT-4096"] == "no run of chandar-lab/NeoBERT"


def test_a_native_arm_stands_beside_every_row_of_its_checkpoint(bench):
    plan = native_arm(bench, "microsoft/deberta-large", "rte")
    cells = cells_of(PAPERS["deberta"], bench, **plan)
    ours = cells[cells["arm"] == "mine"].xs("rte", level="column")["difference"]
    expected = {
        "DeBERTa-Large, several seeds": pytest.approx(-16.6),
        "DeBERTa-Large, from MNLI": pytest.approx(-21.0),
    }
    assert ours.to_dict() == expected


def test_a_column_of_two_metrics_has_their_mean(bench):
    plan = native_arm(bench, "chandar-lab/NeoBERT", "mrpc")
    cells = cells_of(PAPERS["neobert-3"], bench, **plan)
    assert cells.loc[("NeoBERT-4096", "mrpc_mean"), "ours"].item() == pytest.approx(85.0)


def test_beside_a_score_that_is_not_printed_there_is_no_difference(bench):
    plan = native_arm(bench, "microsoft/deberta-v3-base", "mnli", "rte")
    page = page_of(PAPERS["deberta"], bench, **plan)
    texts = [cell.text for cell in page.tables[0].rows[1][:4]]
    assert texts == ["ours: mine", "70.00 (-20.60)", "70.00 (-20.70)", "–"]  # noqa: RUF001


def test_beside_an_experiment_without_an_arm_of_the_table_all_rows_are_shown(bench):
    page = page_of(PAPERS["neobert-3"], bench, **native_arm(bench, "org/other", "rte"))
    assert [row[0].text for row in page.tables[0].rows] == ["NeoBERT-1024", "NeoBERT-4096"]


@pytest.fixture(scope="module")
def tupe():
    """The rows of a table alone, as Markdown has them."""
    return read_markdown(to_markdown(named_page("tupe-1")))[0].rows


def test_a_table_alone_has_all_rows(tupe):
    labels = [row.label for row in PAPERS["tupe-1"].rows]
    assert [row[0][0] for row in tupe] == labels


def test_bold_is_the_best_printed_value(tupe):
    averages = []
    for row in tupe:
        text, is_bold = row[-1]
        if is_bold:
            averages.append(text)
    assert averages == ["85.04"]
