"""Official rows are known by their digests, and everything else of the same size is marked with
what differs.
"""

from pathlib import Path

import pandas as pd
import pytest

from glue_bench.data.demo import generate
from glue_bench.data.official import OFFICIAL, difference, fingerprint_split
from glue_bench.data.sources import UNCHECKED, describe, open_source
from glue_bench.data.task_data import Source, TaskData
from glue_bench.data.tasks import TASKS, TRAINABLE

SHARED = Path(__file__).parents[3] / "shared" / "glue"
WITH_LABELS = [
    (name, split) for name in TRAINABLE for split in ("train", *TASKS[name].validation_splits)
]


def mapped(frame, change):
    return frame.assign(**{name: frame[name].map(change) for name in frame if name != "label"})


def in_quotes(text):
    """Return a text as csv.writer writes it where quotes are in it."""
    return '"{}"'.format(text.replace('"', '""')) if '"' in text else text


def with_quotes(frame):
    return mapped(frame, lambda text: text.replace("the", '"the"') + ' "end"')


CHANGES = {
    "the official rows in another order": lambda frame: frame.iloc[::-1],
    "other blanks in texts": lambda frame: mapped(frame, lambda text: f"{text} "),
    "CSV quotes around texts": lambda frame: mapped(frame, in_quotes),
    "other rows": lambda frame: mapped(frame, str.upper),
    "other labels": lambda frame: frame.assign(
        label=[*frame["label"][1:], 1 - frame["label"].iloc[0]]
    ),
}


@pytest.mark.parametrize("words", CHANGES)
@pytest.mark.parametrize(("task", "split"), WITH_LABELS)
def test_whatever_differs_from_the_official_rows_is_said(task, split, words):
    official = with_quotes(generate(task)[split])
    change = CHANGES[words]
    changed = change(official).reset_index(drop=True)
    assert difference(task, split, changed, fingerprint_split(split, official)) == words


@pytest.mark.parametrize(("task", "split"), WITH_LABELS)
def test_the_official_rows_do_not_differ(task, split):
    official = generate(task)[split]
    assert difference(task, split, official.copy(), fingerprint_split(split, official)) == ""


@pytest.mark.parametrize(("task", "split"), [pair for pair in WITH_LABELS if TASKS[pair[0]].labels])
def test_label_ids_in_another_order_are_named(task, split):
    official, count = generate(task)[split], TASKS[task].num_labels
    turned = official.assign(label=(official["label"] + 1) % count)
    words = difference(task, split, turned, fingerprint_split(split, official))
    assert words.startswith(
        f"label ids in another order: 0 is {TASKS[task].labels[-1]}, 1 is {TASKS[task].labels[0]}"
    )


def of_official_size(task, **facts):
    """Return data with the official number of rows that are all alike."""
    columns = ["text_a", "text_b"][: len(TASKS[task].texts)]
    splits = {}
    for name, split in TASKS[task].splits.items():
        splits[name] = pd.DataFrame(
            {column: ["a"] * split.rows for column in columns} | {"label": 0}
        )
    return TaskData(task, "tsv", splits, **facts)


class Given(Source):
    """A source of one task's data."""

    kind = "tsv"

    def __init__(self, data):
        self.data = data

    def tasks(self):
        return [self.data.task]

    def load(self, _task):
        return self.data


@pytest.mark.parametrize("task", [task for task in TASKS if OFFICIAL[task]])
def test_the_official_number_of_other_rows_is_not_complete(task):
    data = of_official_size(task)
    assert data.differences == dict.fromkeys(OFFICIAL[task], "other rows")
    assert data.partial
    table = describe(Given(data)).set_index(["task", "split"])
    assert {*table.loc[task, "status"]} == {"not the official rows"}
    assert {*table.loc[task, "difference"]} - {""} == {"other rows"}


def test_data_says_of_each_split_how_it_differs(glue_bench, write):
    pair = "sentence1\tsentence2"
    files = {"WNLI/test.tsv": f"{pair}\na\tb\n"}
    for name, rows in (("train", 635), ("dev", 71)):
        files[f"WNLI/{name}.tsv"] = f"{pair}\tlabel\n" + "a\tb\t0\n" * rows
    assert glue_bench("data", write(files)).out.splitlines()[-3:] == [
        "not the official rows: wnli",
        "wnli train: other rows",
        "wnli validation: other rows",
    ]


def test_what_cannot_be_compared_is_complete_by_count_alone():
    data = of_official_size("qqp")
    assert data.partial is False
    assert data.differences == {}
    assert data.unchecked == ("train", "validation", "test")
    assert {*describe(Given(data)).query("task == 'qqp'")["status"]} == {UNCHECKED}


def test_the_pinned_revision_of_the_hub_is_official_by_itself():
    data = of_official_size("rte", revision="r")
    assert data.partial is False
    assert data.differences == {}
    assert data.unchecked == ()


@pytest.mark.skipif(not SHARED.is_dir(), reason="no ../shared here")
@pytest.mark.parametrize("task", TASKS)
def test_digests_are_those_of_the_official_files(task):
    data = open_source(str(SHARED)).load(task)
    assert data.differences == {}
    for split, official in OFFICIAL[task].items():
        assert fingerprint_split(split, data.splits[split]) == official


@pytest.mark.parametrize("task", TASKS)
def test_only_splits_that_exist_have_digests(task):
    assert OFFICIAL[task].keys() <= TASKS[task].splits.keys()
