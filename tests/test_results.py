"""The committed results: their tables are those of their records, and nothing else is in them."""

import shutil
from pathlib import Path

import pytest

from glue_bench.benchmark.metrics import score_logits
from glue_bench.leaderboard.export import write_tables
from glue_bench.store import Store

RESULTS = Path(__file__).resolve().parents[1] / "results"
EXPERIMENTS = sorted(path.parent for path in RESULTS.glob("*/plan.json"))
each = pytest.mark.parametrize("folder", EXPERIMENTS, ids=lambda folder: folder.name)


def test_there_are_results():
    assert EXPERIMENTS


@each
def test_tables_are_those_of_the_records(folder, tmp_path):
    again = shutil.copytree(folder, tmp_path / folder.name)
    for path in write_tables(again):
        assert path.read_bytes() == (folder / path.name).read_bytes(), path.name


@each
def test_every_planned_cell_has_its_record_and_predictions(folder):
    store = Store(folder)
    assert {state for _, state in store.states()} == {"done"}
    for record in store.read_records():
        assert store.read_predictions(record["cell_id"])
        assert record["environment"]["git_commit"]
        assert "+changes" not in record["environment"]["git_commit"]


@each
def test_scores_follow_from_the_stored_predictions(folder):
    """Where the real data is at hand: what a record claims is what its logits score."""
    glue = RESULTS.parents[1] / "shared" / "glue"
    if not glue.is_dir():
        pytest.skip("no GLUE folder here")
    from glue_bench.benchmark.sources import open_source

    source, store = open_source(str(glue)), Store(folder)
    for record in store.read_records():
        data, logits = source.load(record["cell"]["task"]), store.read_predictions(record["cell_id"])
        assert record["data"]["digest"] == data.digest
        for split, scores in record["scores"].items():
            labels = data.splits[split]["label"].to_numpy()
            assert score_logits(record["cell"]["task"], logits[split], labels) == pytest.approx(scores)
