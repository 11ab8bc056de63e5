"""The linter finds whatever is done to a good submission, and nothing in one that is untouched."""

import io
import struct
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glue_bench.data import linter
from glue_bench.data.linter import Finding, lint
from glue_bench.data.submission import FILES, fill_file, make_zip
from glue_bench.errors import UserError

SMALL = {name: replace(file, rows=12) for name, file in FILES.items()}
GOOD = {name: fill_file(file) for name, file in SMALL.items()}
NAMES = list(FILES)
STRINGS = [name for name, file in FILES.items() if file.labels and not file.labels[0].isdigit()]


@pytest.fixture(autouse=True, scope="module")
def _twelve_rows():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linter, "FILES", SMALL)
        yield


def said(files: dict[str, bytes]) -> list[str]:
    return [str(finding) for finding in lint(make_zip(files))]


def with_lines(name: str, change: Callable[[list[str]], list[str]]) -> dict[str, bytes]:
    lines = GOOD[name].decode().split("\n")[:-1]
    return GOOD | {name: ("\n".join(change(lines)) + "\n").encode()}


def with_bytes(name: str, change: Callable[[bytes], bytes]) -> dict[str, bytes]:
    return GOOD | {name: change(GOOD[name])}


def test_a_good_zip_has_no_finding():
    assert said(GOOD) == []


def test_a_last_line_without_its_end_is_no_mistake():
    assert said(with_bytes("RTE.tsv", lambda content: content[:-1])) == []


def test_a_score_may_be_written_in_any_way():
    for text in ("5", "0.1", "3.", ".5", "1e-3", "+2.5", "4.99999999"):
        assert said(with_lines("STS-B.tsv", lambda lines, t=text: [*lines[:3], f"2\t{t}", *lines[4:]])) == []


# Whatever is done to a good zip is found


def drop(lines: list[str], row: int) -> list[str]:
    return lines[:row] + lines[row + 1 :]


def twice(lines: list[str], row: int) -> list[str]:
    return [*lines[: row + 1], *lines[row:]]


def swap(lines: list[str], row: int) -> list[str]:
    other = 1 + row % 12
    lines = list(lines)
    lines[row], lines[other] = lines[other], lines[row]
    return lines


def edit(change: Callable[[str], str]) -> Callable[[list[str], int], list[str]]:
    return lambda lines, row: [*lines[:row], change(lines[row]), *lines[row + 1 :]]


def predict(text: str) -> Callable[[list[str], int], list[str]]:
    return edit(lambda line: line.split("\t")[0] + "\t" + text)


ROW_MUTATIONS: dict[str, Callable[[list[str], int], list[str]]] = {
    "drop": drop,
    "duplicate": twice,
    "swap": swap,
    "wrong label": predict("maybe"),
    "capital": predict("Entailment"),
    "negative": predict("-1"),
    "out of range": predict("5.001"),
    "nan": predict("nan"),
    "infinite": predict("-Infinity"),
    "huge": predict("1e999"),
    "underscore": predict("0_1"),
    "other digits": predict("\N{ARABIC-INDIC DIGIT ONE}"),
    "no prediction": predict(""),
    "extra column": edit(lambda line: f"{line}\t0.9"),
    "comma": edit(lambda line: line.replace("\t", ",")),
    "wrong index": edit(lambda line: f"1{line}"),
    "padded index": edit(lambda line: f"0{line}"),
    "trailing blank": edit(lambda line: f"{line} "),
    "trailing tab": edit(lambda line: f"{line}\t"),
    "carriage return": edit(lambda line: f"{line}\r"),
    "blank line": edit(lambda line: f"{line}\n"),
    "emptied line": edit(lambda _: ""),
    "quoted": edit(lambda line: line.replace("\t", '\t"') + '"'),
    "other line separator": edit(lambda line: f"{line}\N{LINE SEPARATOR}"),
}


@given(name=st.sampled_from(NAMES), kind=st.sampled_from(sorted(ROW_MUTATIONS)), row=st.integers(1, 12))
def test_a_mutated_row_is_found(name, kind, row):
    files = with_lines(name, lambda lines: ROW_MUTATIONS[kind](lines, row))
    findings = said(files)
    assert findings
    assert all(finding.startswith(name) for finding in findings)


FILE_MUTATIONS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "blank": lambda _: b"\n \n\xc2\xa0\n",
    "header alone": lambda content: content.split(b"\n")[0] + b"\n",
    "no header": lambda content: content.split(b"\n", 1)[1],
    "other header": lambda content: content.replace(b"prediction", b"label"),
    "header with spaces": lambda content: content.replace(b"index\t", b"index "),
    "capital header": lambda content: content.replace(b"index", b"Index"),
    "byte-order mark": lambda content: b"\xef\xbb\xbf" + content,
    "mark alone": lambda _: b"\xef\xbb\xbf",
    "utf-16": lambda content: content.decode().encode("utf-16"),
    "latin-1": lambda content: content + "12\té\n".encode("latin-1"),
    "windows": lambda content: content.replace(b"\n", b"\r\n"),
    "old mac": lambda content: content.replace(b"\n", b"\r"),
    "blank line first": lambda content: b"\n" + content,
    "blank lines last": lambda content: content + b"\n\n",
    "cut short": lambda content: content[:60],
    "other task": lambda content: content.replace(b"\t", b"\tx"),
}


@given(name=st.sampled_from(NAMES), kind=st.sampled_from(sorted(FILE_MUTATIONS)))
def test_a_mutated_file_is_found(name, kind):
    findings = said(with_bytes(name, FILE_MUTATIONS[kind]))
    assert findings
    assert all(finding.startswith(name) for finding in findings)


@given(dropped=st.sets(st.sampled_from(NAMES), min_size=1))
def test_every_missing_file_is_named(dropped):
    kept = {name: content for name, content in GOOD.items() if name not in dropped}
    expected = [f"{name}: missing; expected 12 predictions" for name in NAMES if name in dropped]
    assert said(kept) == expected


@given(name=st.sampled_from(NAMES), other=st.text("abcTSV-2.", min_size=1).filter(lambda text: text not in NAMES))
def test_a_renamed_file_is_found(name, other):
    kept = {key: content for key, content in GOOD.items() if key != name}
    findings = said(kept | {other: GOOD[name]})
    assert any(finding.startswith(f"{name}: missing") for finding in findings)
    assert any(finding.startswith(f"{other}: unknown file") for finding in findings)


@given(content=st.binary(max_size=200))
def test_no_file_breaks_the_linter(content):
    assert all(isinstance(finding, Finding) for finding in lint(make_zip(GOOD | {"STS-B.tsv": content})))


@given(content=st.binary(max_size=300))
def test_what_is_no_zip_is_refused(content):
    with pytest.raises(UserError, match="here is not a zip"):
        lint(content, "here")


@given(data=st.data())
def test_no_damaged_zip_breaks_the_linter(data):
    whole = bytearray(make_zip(GOOD))
    for place in data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=4)):
        whole[place] ^= data.draw(st.integers(1, 255))
    with suppress(UserError):  # it may be no zip any more
        lint(bytes(whole))


# What is said


def test_the_end_of_the_last_line_is_no_line():
    content = b"index\tprediction\n" * 3_000
    assert said(GOOD | {"RTE.tsv": content}) == ["RTE.tsv: 3000 lines; expected 13"]
    assert said(GOOD | {"RTE.tsv": content[:-1]}) == ["RTE.tsv: 3000 lines; expected 13"]


def test_a_finding_says_file_line_problem_and_expectation():
    assert said(with_lines("RTE.tsv", lambda lines: predict("1")(lines, 3))) == [
        "RTE.tsv, line 4: label '1' (a class's number, where its name is wanted); expected entailment or not_entailment"
    ]
    assert said(with_lines("CoLA.tsv", lambda lines: predict("acceptable")(lines, 3))) == [
        "CoLA.tsv, line 4: label 'acceptable' (a name, where the class's number is wanted); expected 0 or 1"
    ]
    assert said(with_lines("STS-B.tsv", lambda lines: predict("5.2")(lines, 12))) == [
        "STS-B.tsv, line 13: score 5.2 is out of range; expected a number from 0 to 5"
    ]
    assert said(with_lines("QNLI.tsv", lambda lines: predict("NOT_entailment")(lines, 1))) == [
        "QNLI.tsv, line 2: label 'NOT_entailment' (labels are in small letters); expected entailment or not_entailment"
    ]


@pytest.mark.parametrize("end", [b"\r\n", b"\r"])
def test_carriage_returns_are_one_finding(end):
    """Only they are wrong: the rows are looked at as if lines ended well."""
    assert said(with_bytes("RTE.tsv", lambda content: content.replace(b"\n", end))) == [
        "RTE.tsv, line 1: carriage returns, 13 of them; expected lines that end in a line feed"
    ]


def test_findings_of_a_kind_are_three_and_a_count():
    findings = said(with_bytes("AX.tsv", lambda content: content.replace(b"entailment", b"0")))
    assert len(findings) == 4
    assert findings[-1] == "AX.tsv: 9 more like this"


def test_findings_of_several_files_are_all_listed():
    ruined = {name: content.replace(b"entailment", b"0") for name, content in GOOD.items()}
    assert {finding.partition(",")[0] for finding in said(ruined) if "line 2:" in finding} == set(STRINGS)


def test_folders_and_what_a_mac_adds_are_found():
    folder = {f"submission/{name}": content for name, content in GOOD.items()}
    findings = said(folder | {"submission/": b"", "__MACOSX/._RTE.tsv": b"x", ".DS_Store": b"x"})
    assert any(finding.startswith("submission/AX.tsv: inside a folder; expected AX.tsv") for finding in findings)
    assert any("8 more files like this" in finding for finding in findings)
    assert any(finding.startswith("submission/: a folder") for finding in findings)
    assert sum("left by an operating system" in finding for finding in findings) == 2
    assert not any("missing" in finding for finding in findings)


def test_a_file_inside_a_folder_is_looked_into():
    findings = said({f"x\\{name}": content for name, content in GOOD.items()} | {"x\\AX.tsv": b"nonsense\n"})
    assert any(finding.startswith("AX.tsv, line 1: header 'nonsense'") for finding in findings)


def test_a_file_that_is_there_twice_is_found():
    buffer = io.BytesIO(make_zip(GOOD))
    with zipfile.ZipFile(buffer, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("RTE.tsv", GOOD["RTE.tsv"])
    assert [str(finding) for finding in lint(buffer.getvalue())] == ["RTE.tsv: 2 times in the zip; expected once"]


def test_an_unknown_file_is_named_with_the_one_that_it_may_be():
    assert said(GOOD | {"notes.txt": b"x"}) == ["notes.txt: unknown file; expected only the eleven files"]
    assert "MNLI_m.tsv: unknown file; expected MNLI-m.tsv" in said(GOOD | {"MNLI_m.tsv": b"x"})


def test_an_encrypted_file_is_found():
    """Only the flag is set: what matters is that nothing is read."""
    whole = bytearray(make_zip({"AX.tsv": GOOD["AX.tsv"]}))
    struct.pack_into("<H", whole, whole.index(b"PK\x01\x02") + 8, 1)
    findings = [str(finding) for finding in lint(bytes(whole))]
    assert "AX.tsv: encrypted; expected a zip without a password" in findings


def test_a_file_of_absurd_size_is_not_unpacked(monkeypatch):
    monkeypatch.setattr("glue_bench.data.archive.LARGEST", 100)
    assert any("bytes when unpacked" in finding for finding in said(GOOD | {"AX.tsv": b"x" * 101}))


def test_a_damaged_file_is_found():
    whole = make_zip(GOOD).replace(b"3\tentailment", b"3\tEntailment", 1)
    findings = [str(finding) for finding in lint(whole)]
    assert len(findings) == 1
    assert "cannot be unpacked (Bad CRC-32" in findings[0]


def test_a_compressed_zip_is_as_good():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in GOOD.items():
            archive.writestr(name, content)
    assert lint(buffer.getvalue()) == []


def test_what_a_head_says_of_its_size_is_not_believed():
    content = make_zip(GOOD | {"AX.tsv": GOOD["AX.tsv"] * 1000})
    at = content.index(b"AX.tsv", content.index(b"PK\x01\x02")) - 46 + 24  # the size, in the central directory
    lied = content[:at] + struct.pack("<I", 10) + content[at + 4 :]
    assert any(str(finding).startswith("AX.tsv: cannot be unpacked") for finding in lint(lied))


def test_a_zip_of_thousands_of_entries_is_told_in_one_line():
    content = make_zip({f"{number}.tsv": b"" for number in range(1001)})
    assert [str(finding) for finding in lint(content, "many.zip")] == [
        "many.zip: 1001 entries; expected the eleven files"
    ]


def test_a_zip_that_is_too_large_is_not_read(monkeypatch):
    monkeypatch.setattr("glue_bench.data.archive.LARGEST_ZIP", 100)
    with pytest.raises(UserError, match=r"it has [0-9]+ bytes, at most 100 are read"):
        lint(make_zip(GOOD))
