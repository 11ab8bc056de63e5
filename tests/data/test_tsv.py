"""The classic TSV layout: the quirks of its files, and what is said about bad ones."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glue_bench.data.sources import open_source
from glue_bench.data.task_data import TaskData
from glue_bench.data.tasks import TASKS
from glue_bench.data.tsv import read_split
from glue_bench.errors import UserError

Writer = Callable[[dict[str, str | bytes]], Path]


def load(folder: Path, task: str) -> TaskData:
    return open_source(str(folder)).load(task)


def rows(data: TaskData, split: str) -> list[list[object]]:
    return data.splits[split].to_numpy().tolist()


def test_cola_has_no_header_but_its_test_does(write: Writer) -> None:
    folder = write(
        {
            "CoLA/train.tsv": "gj04\t1\t\tOne.\ngj04\t0\t*\tTwo \n",
            "CoLA/dev.tsv": "gj04\t1\t\tThree.",
            "CoLA/test.tsv": "index\tsentence\n0\tFour.\n",
        }
    )
    data = load(folder, "cola")
    assert rows(data, "train") == [["One.", 1], ["Two ", 0]]
    assert rows(data, "validation") == [["Three.", 1]]
    assert rows(data, "test") == [["Four.", -1]]
    assert list(data.splits["train"].columns) == ["text_a", "label"]
    assert (data.source, data.partial) == ("tsv", True)


def test_mrpc_byte_order_mark_and_meaningless_test_column(write: Writer) -> None:
    header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    folder = write(
        {
            "MRPC/train.tsv": b"\xef\xbb\xbf" + f'{header}1\t7\t8\tHe said " a\tb\n'.encode(),
            "MRPC/test.tsv": f"index\t{header}0\t1\t7\t8\tx\ty\n",
        }
    )
    data = load(folder, "mrpc")
    assert rows(data, "train") == [['He said " a', "b", 1]]
    assert rows(data, "test") == [["x", "y", -1]]
    assert "validation" not in data.splits


def test_qqp_malformed_rows_are_skipped_and_counted(write: Writer) -> None:
    text = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\ta\tb\t1\n4\t5\n6\t7\t8\tc\td\t0\t\n"
    data = load(write({"QQP/train.tsv": text}), "qqp")
    assert rows(data, "train") == [["a", "b", 1]]
    assert data.skipped == {"train": 2}


HEADERS = {
    **{name: ("index", *(task.tsv_texts or task.texts)) for name, task in TASKS.items()},
    "mrpc": ("index", "Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"),
    "mnli": ("index", "sentence1", "sentence2", "gold_label"),
}
TEST_SPLITS = [(name, split) for name, task in TASKS.items() for split in task.test_splits]
BAD_ROWS = {"blank": "", "short": "1", "long": "1" + "\tx" * 9}


def write_test_file(folder: Path, task: str, split: str, *extra: str) -> Path:
    """A test file of three rows, with a dash in each field but the texts, and `extra` lines after the first row."""
    header = HEADERS[task]
    row = "\t".join("text" if name in (TASKS[task].tsv_texts or TASKS[task].texts) else "-" for name in header)
    path = folder / TASKS[task].splits[split].file
    path.write_text("\n".join(["\t".join(header), row, *extra, row, row]) + "\n")
    return path


@pytest.mark.parametrize(("task", "split"), TEST_SPLITS)
def test_a_test_split_keeps_every_row(task: str, split: str, tmp_path: Path) -> None:
    """MNLI's without a gold label too: the site reads predictions by their line."""
    frame, skipped = read_split(write_test_file(tmp_path, task, split), TASKS[task], split)
    assert (len(frame), skipped) == (3, 0)


@pytest.mark.parametrize("bad", BAD_ROWS)
@pytest.mark.parametrize(("task", "split"), TEST_SPLITS)
def test_a_malformed_row_of_a_test_split_is_refused(task: str, split: str, bad: str, tmp_path: Path) -> None:
    """Left out, it would shift every later prediction by one line."""
    path = write_test_file(tmp_path, task, split, BAD_ROWS[bad])
    size = "long" if bad == "long" else "short"
    with pytest.raises(UserError, match=rf"^{path}, line 3: row too {size}: \d+ fields; expected {len(HEADERS[task])}"):
        read_split(path, TASKS[task], split)


def test_mnli_gold_label_and_rows_without_one(write: Writer) -> None:
    header = "index\tsentence1_parse\tsentence1\tsentence2\tlabel1\tgold_label\n"
    text = f"{header}0\tp\ta\tb\tneutral\tcontradiction\n1\tp\tc\td\tneutral\t-\n"
    data = load(write({"MNLI/dev_matched.tsv": text}), "mnli")
    assert rows(data, "validation_matched") == [["a", "b", 2]]
    assert data.skipped == {"validation_matched": 1}


def test_stsb_scores_and_unlabelled_test(write: Writer) -> None:
    header = "index\tsentence1\tsentence2"
    folder = write(
        {
            "STS-B/dev.tsv": f"{header}\tscore\n0\ta\tb\t3.800\n1\tc\td\t5.000\n",
            "STS-B/test.tsv": f"{header}\n0\te\tf\n",
        }
    )
    data = load(folder, "stsb")
    assert rows(data, "validation") == [["a", "b", 3.8], ["c", "d", 5.0]]
    assert rows(data, "test") == [["e", "f", -1.0]]
    assert data.splits["test"]["label"].dtype == np.float64


def test_texts_are_kept_and_lines_end_at_line_feeds_only(write: Writer) -> None:
    text = "sentence\tlabel\r\na \u2028b\u0085c\x0bd \t1\r\n\r\n\n"
    data = load(write({"SST-2/train.tsv": text}), "sst2")
    assert rows(data, "train") == [["a \u2028b\u0085c\x0bd ", 1]]


FIELD = st.text(st.characters(exclude_characters="\t\n", exclude_categories=("Cs",)), max_size=12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(FIELD, FIELD, st.sampled_from(["0", "1"])), min_size=1, max_size=6),
    st.booleans(),
    st.integers(0, 3),
)
def test_any_text_survives(tmp_path: Path, content: list[tuple[str, str, str]], crlf: bool, blank: int) -> None:
    end = "\r\n" if crlf else "\n"
    lines = ["question1\tquestion2\tis_duplicate", *("\t".join(row) for row in content)]
    path = tmp_path / "train.tsv"
    path.write_bytes((end.join(lines) + end * blank).encode())
    frame, skipped = read_split(path, TASKS["qqp"], "train")
    assert frame.to_numpy().tolist() == [[a, b, int(label)] for a, b, label in content]
    assert skipped == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "train.tsv"
    path.write_bytes(content)
    message = "train.tsv, line "
    try:
        read_split(path, TASKS["cola"], "train")
    except UserError as error:
        message = str(error)
    assert "train.tsv, line " in message or "line 1 is missing" in message


# Errors of the classic layout

PAIR = "sentence1\tsentence2"
BAD_FILES = [
    ("SST-2/train.tsv", "text\tlabel\na\t1\n", "line 1: no column 'sentence'; found 'text', 'label'"),
    ("SST-2/train.tsv", "sentence\tlabel\na\t1\nb\n", "line 3: row too short: 1 fields; expected 2"),
    ("SST-2/dev.tsv", "sentence\tlabel\na\t1\t2\n", "line 2: row too long: 3 fields; expected 2"),
    ("SST-2/dev.tsv", "sentence\tlabel\n\na\t1\n", "line 2: row too short: 1 fields; expected 2"),
    ("SST-2/dev.tsv", "sentence\tlabel\na\t1\nb\t2\n", "line 3: bad label '2'; expected 0 or 1"),
    ("CoLA/dev.tsv", "x\t1\t\ta\nx\tyes\t\tb\n", "line 2: bad label 'yes'"),
    (
        "MNLI/train.tsv",
        f"{PAIR}\tgold_label\na\tb\t-\nc\td\tmaybe\n",
        "line 3: bad label 'maybe'; expected entail",
    ),
    ("STS-B/dev.tsv", f"{PAIR}\tscore\na\tb\t5.5\n", "line 2: bad label '5.5'; expected a number from 0 to 5"),
    ("STS-B/dev.tsv", f"{PAIR}\tscore\na\tb\tnan\n", "line 2: bad label 'nan'"),
    ("RTE/train.tsv", "\n\r\n", "the file is empty, line 1 is missing"),
    ("RTE/train.tsv", f"{PAIR}\tlabel\n", "line 2: no usable row; expected rows with sentence1, sentence2, label"),
    ("RTE/train.tsv", f"sentence1\t{PAIR}\tlabel\n", "line 1: 2 columns are called 'sentence1'; expected one"),
    (
        "SST-2/train.tsv",
        b"\xef\xbb\xbfsentence\tlabel\na\t1\nab\xff\t1\n",
        "line 3: byte 3 of the line (0xff) is",
    ),
    ("CoLA/train.tsv", f"gj04\t1\t\t{'w' * 1_000_001}\n", "line 1: more than 1,000,000 characters"),
]


@pytest.mark.parametrize(("name", "content", "message"), BAD_FILES, ids=range(len(BAD_FILES)))
def test_bad_file_is_named_with_its_line(name: str, content: str | bytes, message: str, write: Writer) -> None:
    folder = write({name: content})
    task = next(task for task in TASKS.values() if task.title == name.split("/")[0])
    with pytest.raises(UserError) as caught:
        load(folder, task.name)
    assert str(caught.value).startswith(str(folder / name))
    assert message in str(caught.value)


@pytest.mark.parametrize("row", ["0\ta\tb\t{}", "0\t{}\tb\tx"], ids=["label", "text"])
def test_an_error_quotes_a_part_of_a_long_field(write: Writer, row: str) -> None:
    text = "index\tsentence1\tsentence2\tlabel\n" + row.format("y" * 900_000) + "\n"
    with pytest.raises(UserError) as caught:
        load(write({"RTE/train.tsv": text}), "rte")
    assert "line 2: bad label '" in str(caught.value)
    assert len(str(caught.value)) < 300
