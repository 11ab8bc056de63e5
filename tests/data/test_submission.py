"""The eleven files: names, spelling, rows, and a zip that is the same every time."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from glue_bench.data.linter import lint
from glue_bench.data.sources import open_source
from glue_bench.data.submission import FILES, MAJORITY, fill_file, make_zip, write_file
from glue_bench.data.tasks import TASKS, TRAINABLE

GLUE = Path(__file__).resolve().parents[3] / "shared" / "glue"
ROWS = {
    "CoLA.tsv": 1063,
    "SST-2.tsv": 1821,
    "MRPC.tsv": 1725,
    "STS-B.tsv": 1379,
    "QQP.tsv": 390965,
    "MNLI-m.tsv": 9796,
    "MNLI-mm.tsv": 9847,
    "QNLI.tsv": 5463,
    "RTE.tsv": 3000,
    "WNLI.tsv": 146,
    "AX.tsv": 1104,
}
SPELLINGS = {
    "cola": {"unacceptable": "0", "acceptable": "1"},
    "sst2": {"negative": "0", "positive": "1"},
    "mrpc": {"not_equivalent": "0", "equivalent": "1"},
    "qqp": {"not_duplicate": "0", "duplicate": "1"},
    "mnli": {name: name for name in ("neutral", "contradiction", "entailment")},
    "qnli": {name: name for name in ("not_entailment", "entailment")},
    "rte": {name: name for name in ("not_entailment", "entailment")},
    "wnli": {"not_entailment": "0", "entailment": "1"},
    "ax": {name: name for name in ("neutral", "contradiction", "entailment")},
}


def predictions(content: bytes) -> list[str]:
    header, *rows = content.decode().removesuffix("\n").split("\n")
    assert header == "index\tprediction"
    indices, labels = zip(*(row.split("\t") for row in rows), strict=True)
    assert list(indices) == [str(index) for index in range(len(rows))]
    return list(labels)


def random_files(seed=0) -> dict[str, bytes]:
    generator = np.random.default_rng(seed)
    sizes = {name: (file.rows, TASKS[file.task].num_labels) for name, file in FILES.items()}
    return {name: write_file(FILES[name], generator.normal(2, 3, size)) for name, size in sizes.items()}


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return random_files()


def test_the_eleven_files_and_their_rows():
    assert {name: file.rows for name, file in FILES.items()} == ROWS


def test_only_the_diagnostic_set_is_predicted_by_another_tasks_model():
    assert [name for name, file in FILES.items() if file.model != file.task] == ["AX.tsv"]
    assert FILES["AX.tsv"].model == "mnli"


@pytest.mark.parametrize("name", [name for name in FILES if name != "STS-B.tsv"])
def test_a_column_is_written_by_the_name_of_its_label(name):
    """Of every name in turn: the column that stands for it, found by its name, is the largest."""
    file = FILES[name]
    spelling, labels = SPELLINGS[file.task], TASKS[file.task].labels
    logits = np.array([[float(label == wanted) for label in labels] for wanted in spelling])
    assert predictions(write_file(file, logits)) == list(spelling.values())


def test_scores_are_clipped_and_have_three_decimals():
    logits = np.array([[-0.0004], [2.34567], [5.2], [-3.0], [4.9996]], dtype=np.float32)
    assert predictions(write_file(FILES["STS-B.tsv"], logits)) == ["0.000", "2.346", "5.000", "0.000", "5.000"]


@pytest.mark.parametrize("logits", [np.zeros((3, 3)), np.full((3, 2), np.nan)])
def test_outputs_of_another_task_or_a_diverged_run_are_refused(logits):
    with pytest.raises(ValueError, match="rte: logits"):
        write_file(FILES["RTE.tsv"], logits)


def test_a_good_zip_has_no_finding(files):
    assert lint(make_zip(files)) == []


def test_a_filled_zip_has_no_finding():
    assert lint(make_zip({name: fill_file(file) for name, file in FILES.items()})) == []


def test_a_zip_has_the_same_bytes_whatever_the_order_and_the_time(files, monkeypatch):
    first = make_zip(files)
    monkeypatch.setattr("time.time", lambda: 2e9)
    assert make_zip(dict(reversed(files.items()))) == first
    assert make_zip(random_files(seed=1)) != first


def test_entries_are_plain_files_in_alphabetical_order(files):
    with zipfile.ZipFile(io.BytesIO(make_zip(files))) as archive:
        entries = archive.infolist()
        assert {name: archive.read(name) for name in archive.namelist()} == files
    assert [entry.filename for entry in entries] == sorted(files)
    assert {entry.external_attr >> 16 for entry in entries} == {0o100644}
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}


@pytest.mark.skipif(not GLUE.is_dir(), reason="no GLUE folder here")
@pytest.mark.parametrize("task", TRAINABLE)
def test_majorities_are_those_of_the_training_files(task):
    labels, row = open_source(str(GLUE)).load(task).splits["train"]["label"], TASKS[task]
    if row.is_regression:
        assert f"{labels.mean():.3f}" == MAJORITY[task]
    else:
        assert row.written[labels.mode()[0]] == MAJORITY[task]
