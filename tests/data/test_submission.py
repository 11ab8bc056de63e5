"""The eleven files: what is written is good, whatever is done to it is found, and no zip breaks the
linter.
"""

import io
import struct
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glue_bench.data import submission
from glue_bench.data.sources import open_source
from glue_bench.data.submission import FILES, MAJORITY_LABELS, fill_file, lint, make_zip, write_file
from glue_bench.data.tasks import TASKS, TRAINABLE
from glue_bench.errors import UserError

GLUE = Path(__file__).resolve().parents[3] / "shared" / "glue"
ZERO_AND_ONE = {
    "cola": ("unacceptable", "acceptable"),
    "sst2": ("negative", "positive"),
    "mrpc": ("not_equivalent", "equivalent"),
    "qqp": ("not_duplicate", "duplicate"),
    "wnli": ("not_entailment", "entailment"),
}
SMALL = {name: replace(file, rows=12) for name, file in FILES.items()}
GOOD = {name: fill_file(file) for name, file in SMALL.items()}
NAMES = list(FILES)


# What is written


def test_a_zip_of_predictions_or_of_majorities_has_no_finding(monkeypatch):
    monkeypatch.setattr(submission, "FILES", FILES)  # of the official sizes
    generator = np.random.default_rng(0)
    predictions = {}
    majorities = {}
    for name, file in FILES.items():
        logits = generator.normal(2, 3, (file.rows, TASKS[file.task].num_labels))
        predictions[name] = write_file(file, logits)
        majorities[name] = fill_file(file)
    assert len(FILES) == 11
    assert lint(make_zip(predictions)) == []
    assert lint(make_zip(majorities)) == []


@pytest.mark.parametrize("name", [name for name in FILES if name != "STS-B.tsv"])
def test_a_column_is_written_by_the_name_of_its_label(name):
    """Of every name in turn: the column that stands for it, found by its name, is the largest."""
    task = FILES[name].task
    labels = TASKS[task].labels
    spelling = {label: label for label in labels}
    if task in ZERO_AND_ONE:
        spelling = dict(zip(ZERO_AND_ONE[task], ("0", "1"), strict=True))
    logits = np.array([[float(label == meant) for label in labels] for meant in spelling])
    rows = [f"{index}\t{written}" for index, written in enumerate(spelling.values())]
    expected = ["index\tprediction", *rows]
    assert write_file(FILES[name], logits).decode().splitlines() == expected


def test_scores_are_clipped_and_have_three_decimals():
    logits = np.array([[-0.0004], [2.34567], [5.2], [-3.0], [4.9996]], dtype=np.float32)
    rows = write_file(FILES["STS-B.tsv"], logits).decode().splitlines()[1:]
    expected = ["0.000", "2.346", "5.000", "0.000", "5.000"]
    assert [row.split("\t")[1] for row in rows] == expected


def test_a_zip_has_the_same_bytes_whatever_the_order_and_the_time(monkeypatch):
    first = make_zip(GOOD)
    monkeypatch.setattr("time.time", lambda: 2e9)
    assert make_zip(dict(reversed(GOOD.items()))) == first


@pytest.mark.skipif(not GLUE.is_dir(), reason="no GLUE folder here")
@pytest.mark.parametrize("task", TRAINABLE)
def test_majorities_are_those_of_the_training_files(task):
    labels = open_source(str(GLUE)).load(task).splits["train"]["label"]
    if TASKS[task].is_regression:
        expected = f"{labels.mean():.3f}"
    else:
        expected = TASKS[task].written[labels.mode()[0]]
    assert MAJORITY_LABELS[task] == expected


# What is found


@pytest.fixture(scope="module", autouse=True)
def _twelve_rows():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(submission, "FILES", SMALL)
        yield


def findings_after(**changes: Callable[[bytes], bytes]) -> list[str]:
    """Lint the good files after changes of some; a change is named by its file without ending."""
    files = dict(GOOD)
    for name, change in changes.items():
        files[f"{name}.tsv"] = change(GOOD[f"{name}.tsv"])
    return lint(make_zip(files))


def row(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Return a change of a file in which only the row of index 5 is changed."""

    def change_content(content: bytes) -> bytes:
        lines = content.split(b"\n")
        place = next(place for place, line in enumerate(lines) if line[:2] == b"5\t")
        lines[place] = change(lines[place])
        return b"\n".join(lines)

    return change_content


def predicted(text: str) -> Callable[[bytes], bytes]:
    return row(lambda _: f"5\t{text}".encode())


def order(*lines: int) -> Callable[[bytes], bytes]:
    return lambda content: b"".join(content.splitlines(keepends=True)[line] for line in lines)


MUTATIONS: dict[str, Callable[[bytes], bytes]] = {
    **{text: predicted(text) for text in ("maybe", "5.001", "nan", "0_1", "\u0661")},
    "extra column": row(lambda line: line + b"\t0.9"),
    "blank after it": row(lambda line: line + b" "),
    "carriage return": row(lambda line: line + b"\r"),
    "empty row after it": row(lambda line: line + b"\n"),
    "no second row": order(0, 1, *range(3, 13)),
    "last row first": order(0, 12, *range(1, 12)),
    "header alone": order(0),
    "empty": lambda _: b"",
    "other header": lambda content: content.replace(b"prediction", b"label"),
    "byte-order mark": lambda content: b"\xef\xbb\xbf" + content,
    "utf-16": lambda content: content.decode().encode("utf-16"),
    "latin-1": lambda content: content + "12\té\n".encode("latin-1"),
    "windows": lambda content: content.replace(b"\n", b"\r\n"),
    "cut short": lambda content: content[:60],
}


@pytest.mark.parametrize("kind", MUTATIONS)
@pytest.mark.parametrize("name", ["CoLA", "STS-B", "AX"])
def test_a_mutated_row_or_file_is_found(name, kind):
    findings = findings_after(**{name: MUTATIONS[kind]})
    assert findings
    assert [finding for finding in findings if not finding.startswith(f"{name}.tsv")] == []


@given(
    content=st.binary(max_size=300),
    places=st.lists(st.integers(0, 10**6), max_size=4),
    flip=st.integers(1, 255),
)
def test_no_bytes_break_the_linter(content, places, flip):
    findings_after(**{"STS-B": lambda _: content})
    with pytest.raises(UserError, match="here is not a zip"):
        lint(content, "here")
    content = bytearray(make_zip(GOOD))
    for place in places:
        content[place % len(content)] ^= flip
    with suppress(UserError):  # it may be no zip any more
        lint(bytes(content))


@pytest.mark.parametrize("text", ["5", "0.1", "3.", ".5", "1e-3", "+2.5", "4.99999999"])
def test_a_score_may_be_written_in_any_way(text):
    assert findings_after(**{"STS-B": predicted(text)}) == []


def test_a_finding_says_file_line_problem_and_expectation():
    findings = findings_after(RTE=predicted("1"), **{"STS-B": predicted("5.2")})
    assert findings == [
        r"STS-B.tsv, line 7: '5\t5.2'; expected 5, a tab, and a number from 0 to 5",
        r"RTE.tsv, line 7: '5\t1'; expected 5, a tab, and entailment or not_entailment",
    ]


def test_files_that_are_unknown_or_missing_are_named():
    files = {name: GOOD[name] for name in NAMES[2:]}
    files["submission\\ax.tsv"] = files.pop("AX.tsv")
    files[".DS_Store"] = b""
    expected = [
        ".DS_Store: unknown file; expected only the eleven files at the top of the zip",
        "submission\\ax.tsv: unknown file; expected AX.tsv at the top of the zip",
        f"{NAMES[0]}: missing; expected 12 predictions",
        f"{NAMES[1]}: missing; expected 12 predictions",
        "AX.tsv: missing; expected 12 predictions",
    ]
    assert lint(make_zip(files)) == expected


def test_the_files_of_a_zip_with_very_many_are_not_looked_at():
    files = {f"{number}.tsv": b"" for number in range(1001)}
    findings = lint(make_zip(files), "many.zip")
    assert findings == ["many.zip: 1001 entries; expected the eleven files"]


def test_the_first_three_wrong_rows_of_a_file_are_shown():
    findings = findings_after(AX=lambda content: content.replace(b"entailment", b"0"))
    places = [finding.split(":")[0] for finding in findings[:3]]
    assert places == ["AX.tsv, line 2", "AX.tsv, line 3", "AX.tsv, line 4"]
    assert findings[3:] == ["AX.tsv: 9 more rows like these"]


def test_of_a_file_with_too_many_rows_no_more_are_read_than_belong_there():
    findings = findings_after(RTE=lambda _: b"index\tprediction\n" * 3_000)
    assert findings[0] == "RTE.tsv: 2999 rows; expected 12"
    assert findings[-1] == "RTE.tsv: 9 more rows like these"


def test_zips_as_others_make_them():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in GOOD.items():
            archive.writestr(name, content)
    assert lint(buffer.getvalue()) == []
    with zipfile.ZipFile(buffer, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("RTE.tsv", GOOD["RTE.tsv"])
    assert lint(buffer.getvalue()) == ["RTE.tsv: 2 times in the zip; expected once"]


def test_an_encrypted_file_is_named():
    """Only the flag is set: nothing is read."""
    content = bytearray(make_zip({"AX.tsv": GOOD["AX.tsv"]}))
    place_of_flag = content.index(b"PK\x01\x02") + 8
    struct.pack_into("<H", content, place_of_flag, 1)
    assert "AX.tsv: encrypted; expected a zip without a password" in lint(bytes(content))


def test_a_file_that_is_damaged_is_named():
    damaged = make_zip(GOOD).replace(b"3\tentailment", b"3\tEntailment", 1)
    assert "cannot be unpacked (Bad CRC-32" in lint(damaged)[0]


def test_sizes_are_bounded_whatever_a_head_says(monkeypatch):
    content = make_zip(GOOD | {"AX.tsv": GOOD["AX.tsv"] * 1000})
    name_place = content.index(b"AX.tsv", content.index(b"PK\x01\x02"))
    size_place = name_place - 46 + 24  # in the central directory
    lied = content[:size_place] + struct.pack("<I", 10) + content[size_place + 4 :]
    assert any(finding.startswith("AX.tsv: cannot be unpacked") for finding in lint(lied))
    monkeypatch.setattr("glue_bench.data.submission.MAX_ENTRY_BYTES", 100)
    assert any("bytes when unpacked" in finding for finding in lint(make_zip(GOOD)))
    monkeypatch.setattr("glue_bench.data.submission.MAX_ZIP_BYTES", 100)
    with pytest.raises(UserError, match=r"it has [0-9]+ bytes, at most 100 are read"):
        lint(make_zip(GOOD))
