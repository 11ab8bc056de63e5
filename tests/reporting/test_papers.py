"""The published tables: what is shipped is what the sources print, and their conventions hold."""

import inspect
from importlib.resources import files
from pathlib import Path

import pytest

from glue_bench.data.tasks import TASKS
from glue_bench.reporting.papers import TABLES
from glue_bench.reporting.papers.published import AVERAGE, Counterpart

SHIPPED = {published.file for published in TABLES.values()}
NOT_SHIPPED = {"tupe_figure5_digitised.csv", "tupe_table2_hparams.csv"}
"""Read off a figure, and no scores."""

TOLERANCE = {
    # Two decimals: the mean of nine rounded figures, rounded.
    "tupe-1": 0.005,
    "tupe-3-4": 0.005,
    # One decimal.
    "diet-2": 0.05,
    "bert-1": 0.05,
    # One decimal, and the server averaged more decimals than it printed: both roundings add up.
    "miniatures": 0.1,
}


def recomputed_average(published, row):
    """The average of a printed row by the paper's convention, from the row's other columns."""
    values = {score: float(row.printed[name]) for name, score in published.columns.items() if score}
    parts = [[values[entry] for entry in part] for part in published.average.parts.values()]
    return sum(sum(part) / len(part) for part in parts) / len(parts)


averaged = [(name, row) for name, table in TABLES.items() if table.has_average for row in table.rows]


@pytest.mark.parametrize(("name", "row"), averaged, ids=[f"{name}-{row.label}" for name, row in averaged])
def test_every_published_average_recomputes(name, row):
    assert recomputed_average(TABLES[name], row) == pytest.approx(float(row.printed[AVERAGE]), abs=TOLERANCE[name])


def test_tupe_publishes_fourteen_averages():
    assert sum(name.startswith("tupe") for name, _ in averaged) == 14
    assert set(TOLERANCE) == {name for name, _ in averaged}


@pytest.mark.parametrize("published", TABLES.values(), ids=list(TABLES))
def test_a_table_is_read_whole(published):
    assert published.split in ("dev", "test")
    assert published.statistic in ("mean", "median")
    assert set(published.counterparts) <= {row.label for row in published.rows}
    assert len({row.label for row in published.rows}) == len(published.rows)
    for row in published.rows:
        assert all(0 <= float(figure) <= 100 for figure in row.printed.values())
    for score in filter(None, published.columns.values()):
        assert score[1] in TASKS[score[0]].splits
        assert score[2] in TASKS[score[0]].metrics


def test_every_csv_belongs_to_a_table_and_is_installed_with_it():
    folder = files("glue_bench.reporting.papers")
    assert {entry.name for entry in folder.iterdir() if entry.name.endswith(".csv")} == SHIPPED


def test_nothing_unverified_is_shipped():
    folder = Path(inspect.getfile(Counterpart)).parent
    for path in folder.iterdir():
        if path.suffix in (".py", ".csv", ".yaml"):
            text = path.read_text(encoding="utf-8").lower()
            assert not any(mark in text for mark in ("unverified", "[2nd]", "[plot]")), path.name


def test_the_tables_are_those_checked_against_the_sources():
    facts = Path(__file__).resolve().parents[3] / "shared" / "facts" / "paper_tables"
    if not facts.is_dir():
        pytest.skip("no checked tables here")
    folder = files("glue_bench.reporting.papers")
    assert {path.name for path in facts.glob("*.csv")} == SHIPPED | NOT_SHIPPED
    for name in SHIPPED:
        assert (folder / name).read_bytes() == (facts / name).read_bytes(), name


def test_counterparts_are_variants_with_their_own_defaults():
    from glue_bench.model.variants import VARIANTS
    from glue_bench.model.variants.options import PLACES

    for published in TABLES.values():
        for counterpart in published.counterparts.values():
            parameters = inspect.signature(VARIANTS[counterpart.variant].__init__).parameters
            assert {name: parameters[name].default for name in counterpart.options} == dict(counterpart.options)
            assert counterpart.segments in (None, *PLACES)


@pytest.mark.parametrize(("layers", "width", "vocabulary"), [(2, 128, 30522), (4, 256, 30522), (4, 512, 30522),
                                                            (8, 512, 30522), (12, 768, 28996)])  # fmt: skip
def test_sizes_that_no_source_states_follow_from_the_shape(layers, width, vocabulary):
    tables = (vocabulary + 512 + 2) * width + 2 * width
    size = tables + layers * (12 * width**2 + 13 * width) + width**2 + width
    stated = [*TABLES["miniatures"].counterparts.values(), *TABLES["run-glue"].counterparts.values()]
    assert any(counterpart.parameters == pytest.approx(size, rel=0.005) for counterpart in stated)


@pytest.mark.parametrize(
    ("label", "variant", "options", "taken"),
    [
        ("BERT-A", "add", {}, True),
        ("BERT-A", "add", {"segments": "none"}, True),
        ("TUPE-A", "untied", {"share": True}, True),
        ("TUPE-A", "untied", {"share": False}, False),
        ("TUPE-A", "untied-tie-cls", {}, False),
        ("BERT-A-d", "four-term", {}, True),
        ("BERT-A-d", "four-term", {"terms": ["word-word"]}, False),
        ("BERT-A-d", "four-term",
         {"terms": ["position-position", "word-word", "word-position", "position-word"]}, True),
    ],
)  # fmt: skip
def test_an_arm_with_other_options_is_another_model(label, variant, options, taken):
    assert TABLES["tupe-1"].counterparts[label].takes(variant, options) is taken


def test_diet_tells_arms_apart_by_where_segments_enter():
    counterparts = TABLES["diet-2"].counterparts
    by_input, by_head = (counterparts[f"DIET-REL, per-head, {place}"] for place in ("input", "per-head"))
    assert (by_input.takes("diet-rel", {}), by_head.takes("diet-rel", {})) == (True, False)
    assert by_head.takes("diet-rel", {"segments": "scores", "share": False})
    assert not by_input.takes("diet-rel", {"segments": "none"})
