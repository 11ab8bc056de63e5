"""AX-b and AX-g: predicted by models of RTE-SG, scored by the metrics of SuperGLUE's paper."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, matthews_corrcoef

import glue_bench
from glue_bench.api import diagnostics_text
from glue_bench.board.board import open_board
from glue_bench.errors import UserError
from glue_bench.pages.entailment import entailment_frame, gender_parity, is_of_entailment
from glue_bench.records.store import open_store

LABELS = ("entailment", "not_entailment")


def lines(number: int, *, first: str, second: str) -> str:
    rows = []
    for row in range(number):
        label = LABELS[row * 7 % 3 % 2]
        rows.append({first: f"tom called anna {row}", second: f"anna {row % 3}", "label": label})
    return "\n".join(map(json.dumps, rows)) + "\n"


def write_archive(folder: Path) -> None:
    contents = {
        "RTE/train.jsonl": lines(24, first="premise", second="hypothesis"),
        "RTE/val.jsonl": lines(12, first="premise", second="hypothesis"),
        "AX-b/AX-b.jsonl": lines(10, first="sentence1", second="sentence2"),
        "AX-g/AX-g.jsonl": lines(8, first="premise", second="hypothesis"),
    }
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


@pytest.fixture(scope="module")
def place(tmp_path_factory, tiny) -> Path:
    """An archive of SuperGLUE, and beside it the results of a run on it."""
    folder = tmp_path_factory.mktemp("superglue")
    write_archive(folder / "data")
    experiment = tiny(
        data=str(folder / "data"),
        tasks=["rtesg"],
        seeds=[1, 2, 3],
        finetuning={"predict": ["validation", "test"], "learning_rates": [3e-2], "epochs": 3},
    )
    glue_bench.run(experiment, results=folder / "runs")
    return folder


def labels_of(place: Path, name: str) -> np.ndarray:
    rows = (place / f"data/{name}/{name}.jsonl").read_text().splitlines()
    return np.array([LABELS.index(json.loads(row)["label"]) for row in rows])


def predicted(place: Path, split: str) -> dict:
    store = open_store(place / "runs/tiny")
    plan = store.plan()
    records = store.finished(plan).records
    classes = {}
    for cell in plan.cells:
        logits = store.logits(records[cell.id], test=True)[split]
        classes.setdefault(cell.arm, []).append(logits.argmax(axis=1))
    return classes


def mean_of(place: Path, name: str, metric: str, arm: str) -> float:
    frame = entailment_frame(open_board(place / "runs/tiny"), str(place / "data"))
    return frame.set_index(["set", "metric", "arm"]).loc[(name, metric, arm), "mean"]


@pytest.mark.parametrize("arm", ["add", "none"])
def test_the_scores_equal_scikit_learns(place, arm):
    broad, gender = labels_of(place, "AX-b"), labels_of(place, "AX-g")
    matthews = [matthews_corrcoef(broad, run) for run in predicted(place, "test_axb")[arm]]
    accuracy = [accuracy_score(gender, run) for run in predicted(place, "test_axg")[arm]]
    assert mean_of(place, "AX-b", "Matthews correlation", arm) == pytest.approx(
        100 * np.mean(matthews)
    )
    assert mean_of(place, "AX-g", "Accuracy", arm) == pytest.approx(100 * np.mean(accuracy))


def test_parity_is_the_share_of_pairs_with_one_prediction(place):
    assert gender_parity(np.array([0, 0, 1, 0, 1, 1])) == pytest.approx(2 / 3)
    runs = [gender_parity(run) for run in predicted(place, "test_axg")["add"]]
    assert mean_of(place, "AX-g", "Gender parity", "add") == pytest.approx(100 * np.mean(runs))


def test_the_page_has_a_row_for_each_metric(place):
    page = diagnostics_text(place / "runs/tiny", place / "data", "markdown")
    text = re.sub(" +", " ", page)
    for words in (
        "| AX-b | Matthews correlation |",
        "| AX-g | Accuracy |",
        "| AX-g | Gender parity |",
    ):
        assert words in text


def test_other_rows_than_the_predicted_ones_are_refused(place, tmp_path):
    write_archive(tmp_path)
    (tmp_path / "AX-b/AX-b.jsonl").write_text(lines(9, first="sentence1", second="sentence2"))
    with pytest.raises(UserError, match="AX-b: 9 rows have labels, but 10 were predicted"):
        diagnostics_text(place / "runs/tiny", tmp_path, "markdown")


def test_rows_in_odd_numbers_are_no_pairs():
    with pytest.raises(UserError, match="AX-g has 3 rows; expected pairs"):
        gender_parity(np.zeros(3))


def test_changed_sentences_are_predicted_again(place, tiny, tmp_path):
    write_archive(tmp_path)
    changed = lines(6, first="premise", second="hypothesis")
    (tmp_path / "AX-g/AX-g.jsonl").write_text(changed)
    experiment = tiny(
        data=str(tmp_path),
        tasks=["rtesg"],
        seeds=[1, 2, 3],
        finetuning={"predict": ["validation", "test"], "learning_rates": [3e-2], "epochs": 3},
    )
    summary = glue_bench.run(experiment, results=place / "runs", dry_run=True)
    arms = {name.split("-")[0] for name in summary.waiting}
    assert arms == {"add", "none"}  # the runs that stand for the arms


def test_a_folder_of_glue_is_not_of_entailment(tmp_path):
    assert is_of_entailment(Path("hub"))
    assert not is_of_entailment(tmp_path)
