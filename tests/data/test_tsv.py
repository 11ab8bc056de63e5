"""The classic TSV layout: the quirks of its files, and what is said about bad ones."""

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
QUIRKS = [
    # No header.
    (
        "cola",
        "train",
        "gj04\t1\t\tOne.\ngj04\t0\t*\tTwo \n",
        [["One.", 1], ["Two ", 0]],
        0,
    ),
    ("cola", "validation", "gj04\t1\t\tThree.", [["Three.", 1]], 0),
    ("cola", "test", "index\tsentence\n0\tFour.\n", [["Four.", -1]], 0),
    # A byte-order mark.
    (
        "mrpc",
        "train",
        f'\ufeff{MRPC}1\t7\t8\tHe said " a\tb\n',
        [['He said " a', "b", 1]],
        0,
    ),
    # Its Quality means nothing.
    (
        "mrpc",
        "test",
        f"index\t{MRPC}0\t1\t7\t8\tx\ty\n",
        [["x", "y", -1]],
        0,
    ),
    # Malformed rows.
    (
        "qqp",
        "train",
        f"{QQP}1\t2\t3\ta\tb\t1\n4\t5\n6\t7\t8\tc\td\t0\t\n",
        [["a", "b", 1]],
        2,
    ),
    ("mnli", "validation_matched", MNLI, [["a", "b", 2]], 1),  # a row without a gold label
    (
        "stsb",
        "validation",
        f"{PAIR}\tscore\na\tb\t3.800\nc\td\t5.000\n",
        [["a", "b", 3.8], ["c", "d", 5.0]],
        0,
    ),
    ("stsb", "test", f"{PAIR}\ne\tf\n", [["e", "f", -1.0]], 0),
    (
        "sst2",
        "train",
        "sentence\tlabel\r\na \u2028b\u0085c\x0bd \t1\r\n\r\n\n",
        [["a \u2028b\u0085c\x0bd ", 1]],
        0,
    ),
]


@pytest.mark.parametrize(("task", "split", "text", "rows", "skipped"), QUIRKS)
def test_files_are_read_as_they_are(task, split, text, rows, skipped, tmp_path):
    """Texts are kept, and lines end at line feeds only."""
    (tmp_path / "file.tsv").write_bytes(text.encode())
    frame, left_out = read_split(tmp_path / "file.tsv", TASKS[task], split)
    assert frame.to_numpy().tolist() == rows
    assert left_out == skipped
    assert frame["label"].dtype == (np.float64 if TASKS[task].is_regression else np.int64)


TEST_SPLITS = [(name, split) for name, task in TASKS.items() for split in task.test_splits]


@pytest.mark.parametrize(("task", "split"), TEST_SPLITS)
def test_a_test_split_keeps_every_row_and_has_no_malformed_one(task, split, tmp_path):
    """Rows without a gold label too: the site reads predictions by their line, and each would be
    off by one.
    """
    texts = TASKS[task].tsv_texts or TASKS[task].texts
    path = tmp_path / "test.tsv"
    header = "\t".join(["index", *texts, "gold_label"])
    row = "\t".join(["1", *texts, "-"])
    path.write_text(f"{header}\n{row}\n{row}\n")
    frame, skipped = read_split(path, TASKS[task], split)
    assert len(frame) == 2
    assert skipped == 0
    for bad, size in (("", 1), ("1", 1), ("1" + "\tx" * 9, 10)):
        path.write_text(f"{header}\n{row}\n{bad}\n{row}\n")
        with pytest.raises(
            UserError, match=rf"^{path}, line 3: {size} fields; expected {2 + len(texts)}; copy"
        ):
            read_split(path, TASKS[task], split)


FIELD = st.text(st.characters(exclude_characters="\t\n", exclude_categories=("Cs",)), max_size=12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(FIELD, FIELD, st.sampled_from(["0", "1"])), min_size=1, max_size=6),
    st.booleans(),
    st.integers(0, 3),
)
def test_any_text_survives(tmp_path: Path, content, crlf, blank):
    end = "\r\n" if crlf else "\n"
    path = tmp_path / "train.tsv"
    lines = ["question1\tquestion2\tis_duplicate", *("\t".join(row) for row in content)]
    path.write_bytes((end.join(lines) + end * blank).encode())
    frame, skipped = read_split(path, TASKS["qqp"], "train")
    assert frame.to_numpy().tolist() == [[a, b, int(label)] for a, b, label in content]
    assert skipped == 0


BAD_FILES = [
    (
        "SST-2/train.tsv",
        "text\tlabel\na\t1\n",
        "line 1: 0 columns are called 'sentence', expected 1; found 'text'",
    ),
    (
        "RTE/train.tsv",
        '"sentence1"\t"sentence2"\t"label"\n"a"\t"b"\t"entailment"\n',
        "; save it without CSV quotes, as GLUE's files are",
    ),
    (
        "RTE/train.tsv",
        f"sentence1\t{PAIR}\tlabel\n",
        "line 1: 2 columns are called 'sentence1', expected 1; found",
    ),
    ("SST-2/dev.tsv", "sentence\tlabel\na\t1\nb\t2\n", "line 3: bad label '2'; expected 0 or 1"),
    ("CoLA/dev.tsv", "x\t1\t\ta\nx\tyes\t\tb\n", "line 2: bad label 'yes'"),
    (
        "MNLI/train.tsv",
        f"{PAIR}\tgold_label\na\tb\t-\nc\td\tmaybe\n",
        "line 3: bad label 'maybe'; expected entail",
    ),
    (
        "STS-B/dev.tsv",
        f"{PAIR}\tscore\na\tb\t5.5\n",
        "line 2: bad label '5.5'; expected a number from 0 to 5",
    ),
    ("STS-B/dev.tsv", f"{PAIR}\tscore\na\tb\tnan\n", "line 2: bad label 'nan'"),
    ("RTE/train.tsv", "\n\r\n", "the file is empty, line 1 is missing"),
    (
        "RTE/train.tsv",
        f"{PAIR}\tlabel\n",
        "no usable row; expected rows with sentence1, sentence2, label",
    ),
    (
        "SST-2/train.tsv",
        b"\xef\xbb\xbfsentence\tlabel\na\t1\nab\xff\t1\n",
        "line 3: invalid start byte; expected",
    ),
    ("CoLA/train.tsv", f"gj04\t1\t\t{'w' * 1_000_001}\n", "line 1: more than 1,000,000 characters"),
    ("RTE/train.tsv", f"{PAIR}\tlabel\na\tb\t{'y' * 900_000}\n", "line 2: bad label 'yyyy"),
]


@pytest.mark.parametrize(("name", "content", "message"), BAD_FILES, ids=range(len(BAD_FILES)))
def test_bad_file_is_named_with_its_line(name, content, message, write):
    """Of a long field a part is quoted."""
    folder = write({name: content})
    with pytest.raises(UserError) as caught:
        open_source(str(folder)).load(name.split("/")[0])
    assert str(caught.value).startswith(str(folder / name))
    assert message in str(caught.value)
    assert len(str(caught.value)) < 300


ROW = {
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
WRITTEN = {"mrpc": 1, "qqp": 1, "mnli": 1, "qnli": 1, "stsb": 2.5, "wnli": 1}


@pytest.mark.parametrize("task", ROW)
@pytest.mark.parametrize("turn", [0, 1, 2, -1])
def test_columns_are_found_by_their_names_in_whatever_order_they_stand(task, turn, tmp_path):
    names = list(ROW[task])
    names = names[::-1] if turn < 0 else names[turn:] + names[:turn]
    rows = ["\t".join(names), "\t".join(ROW[task][name] for name in names)]
    path = tmp_path / "train.tsv"
    path.write_text("\n".join(rows) + "\n")
    frame, _ = read_split(path, TASKS[task], "train")
    expected = [["first", "second", WRITTEN[task]]]
    assert frame.to_numpy().tolist() == expected


def test_every_row_without_a_gold_label_is_counted_and_every_line_ends_without_a_carriage_return(
    tmp_path,
):
    path = tmp_path / "dev_matched.tsv"
    rows = ["a\tb\t-", "c\td\tneutral", "e\tf\t-", "g\th\tentailment", "i\tj\t-"]
    path.write_bytes("\r\n".join(["sentence1\tsentence2\tgold_label", *rows, ""]).encode())
    frame, left_out = read_split(path, TASKS["mnli"], "validation_matched")
    expected = [["c", "d", 1], ["g", "h", 0]]
    assert frame.to_numpy().tolist() == expected
    assert left_out == 3


@pytest.mark.parametrize("score", ["5.1", "5.01", "-0.5", "6", "4,5", " 3"])
def test_a_score_out_of_range_or_spelled_otherwise_is_named_by_its_line(score, tmp_path):
    path = tmp_path / "dev.tsv"
    path.write_text(f"{PAIR}\tscore\na\tb\t5.00\nc\td\t{score}\n")
    with pytest.raises(UserError, match="line 3: bad label"):
        read_split(path, TASKS["stsb"], "validation")
