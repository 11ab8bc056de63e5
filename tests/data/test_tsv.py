"""Files in GLUE's classic TSV layout are read with their quirks, and bad files are refused."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glue_bench.data.sources import open_source
from glue_bench.data.tasks import TASKS
from glue_bench.data.tsv import read_split
from glue_bench.errors import UserError

PAIR = "sentence1\tsentence2"
MRPC = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
MNLI = (
    "index\tsentence1\tsentence2\tlabel1\tgold_label\n"
    "0\ta\tb\tneutral\tcontradiction\n"
    "1\tc\td\tneutral\t-\n"
)
QQP = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
QUIRKS = {
    "no header": (
        "cola",
        "train",
        "gj04\t1\t\tOne.\ngj04\t0\t*\tTwo \n",
        [["One.", 1], ["Two ", 0]],
        0,
    ),
    "no line feed at the end": (
        "cola",
        "validation",
        "gj04\t1\t\tThree.",
        [["Three.", 1]],
        0,
    ),
    "test without labels": (
        "cola",
        "test",
        "index\tsentence\n0\tFour.\n",
        [["Four.", -1]],
        0,
    ),
    "byte-order mark, and a single quote": (
        "mrpc",
        "train",
        f'\ufeff{MRPC}1\t7\t8\tHe said " a\tb\n',
        [['He said " a', "b", 1]],
        0,
    ),
    "test with a Quality that means nothing": (
        "mrpc",
        "test",
        f"index\t{MRPC}0\t1\t7\t8\tx\ty\n",
        [["x", "y", -1]],
        0,
    ),
    "malformed rows": (
        "qqp",
        "train",
        f"{QQP}1\t2\t3\ta\tb\t1\n4\t5\n6\t7\t8\tc\td\t0\t\n",
        [["a", "b", 1]],
        2,
    ),
    "a row without a gold label": (
        "mnli",
        "validation_matched",
        MNLI,
        [["a", "b", 2]],
        1,
    ),
    "scores": (
        "stsb",
        "validation",
        f"{PAIR}\tscore\na\tb\t3.800\nc\td\t5.000\n",
        [["a", "b", 3.8], ["c", "d", 5.0]],
        0,
    ),
    "test without scores": (
        "stsb",
        "test",
        f"{PAIR}\ne\tf\n",
        [["e", "f", -1.0]],
        0,
    ),
    "line separators in a text, and blank lines": (
        "sst2",
        "train",
        "sentence\tlabel\r\na \u2028b\u0085c\x0bd \t1\r\n\r\n\n",
        [["a \u2028b\u0085c\x0bd ", 1]],
        0,
    ),
}
"""Task, split and content of a file; its rows, and how many rows are left out."""


@pytest.mark.parametrize(
    ("task", "split", "content", "rows", "skipped"), QUIRKS.values(), ids=QUIRKS
)
def test_texts_are_kept_as_they_are(task, split, content, rows, skipped, tmp_path):
    """Lines end at line feeds only."""
    (tmp_path / "file.tsv").write_bytes(content.encode())
    frame, left_out = read_split(tmp_path / "file.tsv", TASKS[task], split)
    assert frame.to_numpy().tolist() == rows
    assert left_out == skipped
    assert frame["label"].dtype == (np.float64 if TASKS[task].is_regression else np.int64)


# Test splits: the site reads predictions by their line, so that a row that is left out would shift
# all later predictions.


TEST_SPLITS = [(name, split) for name, task in TASKS.items() for split in task.test_splits]


def columns_of(task: str) -> list[str]:
    """Return the columns of texts in a task's test split."""
    return list(TASKS[task].tsv_texts or TASKS[task].texts)


def write_test_split(path: Path, task: str, *between: str) -> None:
    """Write a test split: two rows without a gold label, with lines between them."""
    header = "\t".join(["index", *columns_of(task), "gold_label"])
    row = "\t".join(["1", *columns_of(task), "-"])
    lines = [header, row, *between, row]
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(("task", "split"), TEST_SPLITS)
def test_a_test_split_keeps_rows_without_a_gold_label(task, split, tmp_path):
    path = tmp_path / "test.tsv"
    write_test_split(path, task)
    frame, skipped = read_split(path, TASKS[task], split)
    assert len(frame) == 2
    assert skipped == 0


@pytest.mark.parametrize(
    ("line", "fields"),
    [("", 1), ("1", 1), ("\t".join("1xxxxxxxxx"), 10)],
    ids=["a blank line", "too few fields", "too many fields"],
)
@pytest.mark.parametrize(("task", "split"), TEST_SPLITS)
def test_a_malformed_row_of_a_test_split_is_refused(task, split, line, fields, tmp_path):
    path = tmp_path / "test.tsv"
    write_test_split(path, task, line)
    expected = 2 + len(columns_of(task))
    message = rf"^{path}, line 3: {fields} fields; expected {expected}; copy"
    with pytest.raises(UserError, match=message):
        read_split(path, TASKS[task], split)


# Any text


FIELD = st.text(st.characters(exclude_characters="\t\n", exclude_categories=("Cs",)), max_size=12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.tuples(FIELD, FIELD, st.sampled_from(["0", "1"])), min_size=1, max_size=6),
    line_end=st.sampled_from(["\n", "\r\n"]),
    blank_lines=st.integers(0, 3),
)
def test_any_text_survives(tmp_path: Path, rows, line_end, blank_lines):
    path = tmp_path / "train.tsv"
    lines = ["question1\tquestion2\tis_duplicate"]
    for row in rows:
        lines.append("\t".join(row))
    text = line_end.join(lines) + line_end * blank_lines
    path.write_bytes(text.encode())
    frame, skipped = read_split(path, TASKS["qqp"], "train")
    assert frame.to_numpy().tolist() == [[a, b, int(label)] for a, b, label in rows]
    assert skipped == 0


# Bad files


BAD_FILES = {
    "a column is missing": (
        "SST-2/train.tsv",
        "text\tlabel\na\t1\n",
        "line 1: 0 columns are called 'sentence', expected 1; found 'text'",
    ),
    "CSV quotes": (
        "RTE/train.tsv",
        '"sentence1"\t"sentence2"\t"label"\n"a"\t"b"\t"entailment"\n',
        "; save it without CSV quotes, as GLUE's files are",
    ),
    "a column is there twice": (
        "RTE/train.tsv",
        f"sentence1\t{PAIR}\tlabel\n",
        "line 1: 2 columns are called 'sentence1', expected 1; found",
    ),
    "an unknown class": (
        "SST-2/dev.tsv",
        "sentence\tlabel\na\t1\nb\t2\n",
        "line 3: bad label '2'; expected 0 or 1",
    ),
    "a word for a number": (
        "CoLA/dev.tsv",
        "x\t1\t\ta\nx\tyes\t\tb\n",
        "line 2: bad label 'yes'",
    ),
    "an unknown class behind a row that is left out": (
        "MNLI/train.tsv",
        f"{PAIR}\tgold_label\na\tb\t-\nc\td\tmaybe\n",
        "line 3: bad label 'maybe'; expected entail",
    ),
    "a score out of range": (
        "STS-B/dev.tsv",
        f"{PAIR}\tscore\na\tb\t5.5\n",
        "line 2: bad label '5.5'; expected a number from 0 to 5",
    ),
    "NaN": (
        "STS-B/dev.tsv",
        f"{PAIR}\tscore\na\tb\tnan\n",
        "line 2: bad label 'nan'",
    ),
    "blank lines": (
        "RTE/train.tsv",
        "\n\r\n",
        "the file is empty, line 1 is missing",
    ),
    "a header alone": (
        "RTE/train.tsv",
        f"{PAIR}\tlabel\n",
        "no usable row; expected rows with sentence1, sentence2, label",
    ),
    "no UTF-8": (
        "SST-2/train.tsv",
        b"\xef\xbb\xbfsentence\tlabel\na\t1\nab\xff\t1\n",
        "line 3: invalid start byte; expected",
    ),
    "a long line": (
        "CoLA/train.tsv",
        f"gj04\t1\t\t{'w' * 1_000_001}\n",
        "line 1: more than 1,000,000 characters",
    ),
    "a long label": (
        "RTE/train.tsv",
        f"{PAIR}\tlabel\na\tb\t{'y' * 900_000}\n",
        "line 2: bad label 'yyyy",
    ),
}
"""Name and content of a file, and what its refusal says."""


@pytest.mark.parametrize(("name", "content", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_is_named_with_its_line(name, content, message, write):
    folder = write({name: content})
    with pytest.raises(UserError) as caught:
        open_source(str(folder)).load(name.split("/")[0])
    refusal = str(caught.value)
    assert refusal.startswith(str(folder / name))
    assert message in refusal
    assert len(refusal) < 300  # only the beginning of a long field is quoted


# The order of columns


ROWS = {
    "mrpc": {
        "Quality": "1",
        "#1 ID": "7",
        "#2 ID": "8",
        "#1 String": "first",
        "#2 String": "second",
    },
    "qqp": {"id": "1", "question1": "first", "question2": "second", "is_duplicate": "1"},
    "mnli": {
        "gold_label": "neutral",
        "sentence1": "first",
        "sentence2": "second",
        "label1": "entailment",
    },
    "qnli": {"index": "1", "question": "first", "sentence": "second", "label": "not_entailment"},
    "stsb": {"genre": "x", "sentence1": "first", "sentence2": "second", "score": "2.5"},
    "wnli": {"index": "1", "sentence1": "first", "sentence2": "second", "label": "1"},
}
LABELS_OF_ROWS = {"mrpc": 1, "qqp": 1, "mnli": 1, "qnli": 1, "stsb": 2.5, "wnli": 1}
ORDERS: dict[str, Callable[[list[str]], list[str]]] = {
    "as it is": lambda names: names,
    "the first is last": lambda names: names[1:] + names[:1],
    "the first two are last": lambda names: names[2:] + names[:2],
    "reversed": lambda names: names[::-1],
}


@pytest.mark.parametrize("task", ROWS)
@pytest.mark.parametrize("order", ORDERS)
def test_columns_are_found_by_their_names_in_any_order(task, order, tmp_path):
    names = ORDERS[order](list(ROWS[task]))
    fields = [ROWS[task][name] for name in names]
    path = tmp_path / "train.tsv"
    path.write_text("\t".join(names) + "\n" + "\t".join(fields) + "\n")
    frame, _ = read_split(path, TASKS[task], "train")
    assert frame.to_numpy().tolist() == [["first", "second", LABELS_OF_ROWS[task]]]


# Lines


def test_rows_without_a_gold_label_are_counted(tmp_path):
    path = tmp_path / "dev_matched.tsv"
    rows = ["a\tb\t-", "c\td\tneutral", "e\tf\t-", "g\th\tentailment", "i\tj\t-"]
    path.write_text("\n".join(["sentence1\tsentence2\tgold_label", *rows, ""]))
    frame, left_out = read_split(path, TASKS["mnli"], "validation_matched")
    assert frame.to_numpy().tolist() == [["c", "d", 1], ["g", "h", 0]]
    assert left_out == 3


def test_a_carriage_return_at_the_end_of_a_line_is_no_part_of_its_last_field(tmp_path):
    path = tmp_path / "dev_matched.tsv"
    path.write_bytes(b"sentence1\tsentence2\tgold_label\r\nc\td\tneutral\r\n")
    frame, _ = read_split(path, TASKS["mnli"], "validation_matched")
    assert frame.to_numpy().tolist() == [["c", "d", 1]]


@pytest.mark.parametrize("score", ["5.1", "5.01", "-0.5", "6", "4,5", " 3"])
def test_a_score_out_of_range_or_in_another_spelling_is_refused_with_its_line(score, tmp_path):
    path = tmp_path / "dev.tsv"
    path.write_text(f"{PAIR}\tscore\na\tb\t5.00\nc\td\t{score}\n")
    with pytest.raises(UserError, match="line 3: bad label"):
        read_split(path, TASKS["stsb"], "validation")
