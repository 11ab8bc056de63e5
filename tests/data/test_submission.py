"""The eleven files: what is written is good, whatever is done to it is found, and no zip breaks the linter."""

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
from glue_bench.data.submission import FILES, MAJORITY, fill_file, lint, make_zip, write_file
from glue_bench.data.tasks import TASKS, TRAINABLE
from glue_bench.errors import UserError

GLUE = Path(__file__).resolve().parents[3] / "shared" / "glue"
THREE, TWO = (
    {name: name for name in names}
    for names in (("neutral", "contradiction", "entailment"), ("not_entailment", "entailment"))
)
SPELLINGS = {
    **{"cola": {"unacceptable": "0", "acceptable": "1"}, "sst2": {"negative": "0", "positive": "1"}},
    **{"mrpc": {"not_equivalent": "0", "equivalent": "1"}, "qqp": {"not_duplicate": "0", "duplicate": "1"}},
    **{"wnli": {"not_entailment": "0", "entailment": "1"}, "mnli": THREE, "ax": THREE},
    **{"qnli": TWO, "rte": TWO},
}
SMALL = {name: replace(file, rows=12) for name, file in FILES.items()}
GOOD = {name: fill_file(file) for name, file in SMALL.items()}
NAMES = list(FILES)


# What is written


def test_a_zip_of_predictions_or_of_majorities_has_no_finding(monkeypatch):
    monkeypatch.setattr(submission, "FILES", FILES)  # of the official sizes
    generator = np.random.default_rng(0)
    shapes = {name: (file.rows, TASKS[file.task].num_labels) for name, file in FILES.items()}
    files = {name: write_file(FILES[name], generator.normal(2, 3, shape)) for name, shape in shapes.items()}
    assert [file.rows for file in FILES.values()] == [1063, 1821, 1725, 1379, 390965, 9796, 9847, 5463, 3000, 146, 1104]
    assert lint(make_zip(files)) == []
    assert lint(make_zip({name: fill_file(file) for name, file in FILES.items()})) == []


@pytest.mark.parametrize("name", [name for name in FILES if name != "STS-B.tsv"])
def test_a_column_is_written_by_the_name_of_its_label(name):
    """Of every name in turn: the column that stands for it, found by its name, is the largest."""
    spelling, labels = SPELLINGS[FILES[name].task], TASKS[FILES[name].task].labels
    logits = np.array([[float(label == wanted) for label in labels] for wanted in spelling])
    header, *rows = write_file(FILES[name], logits).decode().splitlines()
    assert header == "index\tprediction"
    assert rows == [f"{index}\t{written}" for index, written in enumerate(spelling.values())]


def test_scores_are_clipped_and_have_three_decimals():
    logits = np.array([[-0.0004], [2.34567], [5.2], [-3.0], [4.9996]], dtype=np.float32)
    rows = write_file(FILES["STS-B.tsv"], logits).decode().splitlines()[1:]
    assert [row.split("\t")[1] for row in rows] == ["0.000", "2.346", "5.000", "0.000", "5.000"]


def test_a_zip_has_the_same_bytes_whatever_the_order_and_the_time(monkeypatch):
    first = make_zip(GOOD)
    monkeypatch.setattr("time.time", lambda: 2e9)
    assert make_zip(dict(reversed(GOOD.items()))) == first


@pytest.mark.skipif(not GLUE.is_dir(), reason="no GLUE folder here")
@pytest.mark.parametrize("task", TRAINABLE)
def test_majorities_are_those_of_the_training_files(task):
    labels, row = open_source(str(GLUE)).load(task).splits["train"]["label"], TASKS[task]
    assert MAJORITY[task] == (f"{labels.mean():.3f}" if row.is_regression else row.written[labels.mode()[0]])


# What is found


@pytest.fixture(scope="module", autouse=True)
def _twelve_rows():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(submission, "FILES", SMALL)
        yield


def said(files: dict[str, bytes]) -> list[str]:
    return [str(finding) for finding in lint(make_zip(files))]


def with_lines(name: str, change: Callable[[list[str]], list[str]]) -> dict[str, bytes]:
    lines = GOOD[name].decode().split("\n")[:-1]
    return GOOD | {name: ("\n".join(change(lines)) + "\n").encode()}


def edit(change: Callable[[str], str]) -> Callable[[list[str], int], list[str]]:
    return lambda lines, row: [*lines[:row], change(lines[row]), *lines[row + 1 :]]


def predict(text: str) -> Callable[[list[str], int], list[str]]:
    return edit(lambda line: line.split("\t")[0] + "\t" + text)


ROW_MUTATIONS: dict[str, Callable[[list[str], int], list[str]]] = {
    "drop": lambda lines, row: lines[:row] + lines[row + 1 :],
    "last one first": lambda lines, _: [lines[0], lines[-1], *lines[1:-1]],
    "wrong label": predict("maybe"),
    "out of range": predict("5.001"),
    "nan": predict("nan"),
    "underscore": predict("0_1"),
    "other digits": predict("\N{ARABIC-INDIC DIGIT ONE}"),
    "extra column": edit(lambda line: f"{line}\t0.9"),
    "trailing blank": edit(lambda line: f"{line} "),
    "carriage return": edit(lambda line: f"{line}\r"),
    "blank line": edit(lambda line: f"{line}\n"),
}
FILE_MUTATIONS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "header alone": lambda content: content.split(b"\n")[0] + b"\n",
    "other header": lambda content: content.replace(b"prediction", b"label"),
    "byte-order mark": lambda content: b"\xef\xbb\xbf" + content,
    "utf-16": lambda content: content.decode().encode("utf-16"),
    "latin-1": lambda content: content + "12\té\n".encode("latin-1"),
    "windows": lambda content: content.replace(b"\n", b"\r\n"),
    "cut short": lambda content: content[:60],
}


@pytest.mark.parametrize("kind", [*ROW_MUTATIONS, *FILE_MUTATIONS])
@pytest.mark.parametrize(("name", "row"), [("CoLA.tsv", 1), ("STS-B.tsv", 12), ("AX.tsv", 5)])
def test_a_mutated_row_or_file_is_found(name, kind, row):
    if kind in ROW_MUTATIONS:
        files = with_lines(name, lambda lines: ROW_MUTATIONS[kind](lines, row))
    else:
        files = GOOD | {name: FILE_MUTATIONS[kind](GOOD[name])}
    findings = said(files)
    assert findings
    assert all(finding.startswith(name) for finding in findings)


@given(content=st.binary(max_size=300), places=st.lists(st.integers(0, 10**6), max_size=4), flip=st.integers(1, 255))
def test_no_bytes_break_the_linter(content, places, flip):
    said(GOOD | {"STS-B.tsv": content})
    with pytest.raises(UserError, match="here is not a zip"):
        lint(content, "here")
    whole = bytearray(make_zip(GOOD))
    for place in places:
        whole[place % len(whole)] ^= flip
    with suppress(UserError):  # it may be no zip any more
        lint(bytes(whole))


@pytest.mark.parametrize("text", ["5", "0.1", "3.", ".5", "1e-3", "+2.5", "4.99999999"])
def test_a_score_may_be_written_in_any_way(text):
    assert said(with_lines("STS-B.tsv", lambda lines: [*lines[:3], f"2\t{text}", *lines[4:]])) == []


def test_a_finding_says_file_line_problem_and_expectation():
    (finding,) = said(with_lines("RTE.tsv", lambda lines: predict("1")(lines, 3)))
    assert finding == r"RTE.tsv, line 4: '2\t1'; expected 2, a tab, and entailment or not_entailment"
    (finding,) = said(with_lines("STS-B.tsv", lambda lines: predict("5.2")(lines, 12)))
    assert finding == r"STS-B.tsv, line 13: '11\t5.2'; expected 11, a tab, and a number from 0 to 5"


def test_findings_of_a_kind_are_three_and_a_count():
    ruined = {name: content.replace(b"entailment", b"0") for name, content in GOOD.items()}
    findings = said(ruined)
    assert len([finding for finding in findings if finding.startswith("AX.tsv")]) == 4
    assert "AX.tsv: 9 more like this" in findings
    assert said(GOOD | {"RTE.tsv": b"index\tprediction\n" * 3_000}) == ["RTE.tsv: 2999 rows; expected 12"]


def test_missing_files_folders_doubles_and_unknown_files_are_found():
    kept = {name: GOOD[name] for name in NAMES[2:-1]}
    assert said(kept) == [f"{name}: missing; expected 12 predictions" for name in (*NAMES[:2], NAMES[-1])]
    folder = {f"submission\\{name}": content for name, content in GOOD.items()} | {"submission/": b""}
    findings = said(folder | {"__MACOSX/._RTE.tsv": b"x"})
    assert "submission\\AX.tsv: unknown file; expected AX.tsv at the top of the zip" in findings
    assert sum("unknown file" in finding for finding in findings) == 3
    assert any("10 more files like this" in finding for finding in findings)
    assert sum("missing" in finding for finding in findings) == len(FILES)
    (finding,) = said(GOOD | {".DS_Store": b"x"})
    assert finding == ".DS_Store: unknown file; expected only the eleven files at the top of the zip"


def test_zips_as_others_make_them():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in GOOD.items():
            archive.writestr(name, content)
    assert lint(buffer.getvalue()) == []
    with zipfile.ZipFile(buffer, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("RTE.tsv", GOOD["RTE.tsv"])
    assert [str(finding) for finding in lint(buffer.getvalue())] == ["RTE.tsv: 2 times in the zip; expected once"]
    encrypted = bytearray(make_zip({"AX.tsv": GOOD["AX.tsv"]}))  # only the flag is set: nothing is read
    struct.pack_into("<H", encrypted, encrypted.index(b"PK\x01\x02") + 8, 1)
    findings = [str(finding) for finding in lint(bytes(encrypted))]
    assert "AX.tsv: encrypted; expected a zip without a password" in findings
    damaged = make_zip(GOOD).replace(b"3\tentailment", b"3\tEntailment", 1)
    assert "cannot be unpacked (Bad CRC-32" in str(lint(damaged)[0])
    many = lint(make_zip({f"{number}.tsv": b"" for number in range(1001)}), "many.zip")
    assert [str(finding) for finding in many] == ["many.zip: 1001 entries; expected the eleven files"]


def test_sizes_are_bounded_whatever_a_head_says(monkeypatch):
    content = make_zip(GOOD | {"AX.tsv": GOOD["AX.tsv"] * 1000})
    at = content.index(b"AX.tsv", content.index(b"PK\x01\x02")) - 46 + 24  # the size, in the central directory
    lied = content[:at] + struct.pack("<I", 10) + content[at + 4 :]
    assert any(str(finding).startswith("AX.tsv: cannot be unpacked") for finding in lint(lied))
    monkeypatch.setattr("glue_bench.data.submission.LARGEST_ENTRY", 100)
    assert any("bytes when unpacked" in str(finding) for finding in lint(make_zip(GOOD)))
    monkeypatch.setattr("glue_bench.data.submission.LARGEST_ZIP", 100)
    with pytest.raises(UserError, match=r"it has [0-9]+ bytes, at most 100 are read"):
        lint(make_zip(GOOD))
