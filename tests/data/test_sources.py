"""What a task is, which source a name opens, how its content is described, which rows a limit keeps, and the demo."""

import numpy as np
import pandas as pd
import pytest

from glue_bench.data import demo, hub
from glue_bench.data.demo import generate
from glue_bench.data.sources import DESCRIPTION, describe, open_source
from glue_bench.data.task_data import TaskData, known_labels, limited, split_digest
from glue_bench.data.tasks import COLUMNS, TASKS, TRAINABLE
from glue_bench.errors import UserError

SIZES = {
    **{
        "cola": (8551, 1043, 1063),
        "sst2": (67349, 872, 1821),
        "mrpc": (3668, 408, 1725),
        "stsb": (5749, 1500, 1379),
    },
    **{
        "qqp": (363846, 40430, 390965),
        "mnli": (392702, 9815, 9832, 9796, 9847),
        "qnli": (104743, 5463, 5463),
    },
    **{"rte": (2490, 277, 3000), "wnli": (635, 71, 146), "ax": (1104,)},
}
PAIR = "sentence1\tsentence2"
SMALL = {
    "RTE/train.tsv": f"{PAIR}\tlabel\na\tb\tentailment\nc\td\tnot_entailment\n",
    "RTE/test.tsv": f"{PAIR}\ne\tf\n",
}


def test_tasks_have_the_official_sizes_and_columns_keep_mnli_apart():
    """As in the table of the GLUE paper and on the dataset card."""
    assert {
        name: tuple(split.rows for split in task.splits.values()) for name, task in TASKS.items()
    } == SIZES
    assert tuple(SIZES)[:-1] == TRAINABLE
    assert list(COLUMNS) == [
        "cola",
        "sst2",
        "mrpc",
        "stsb",
        "qqp",
        "mnli_m",
        "mnli_mm",
        "qnli",
        "rte",
        "wnli",
    ]
    assert COLUMNS["mnli_mm"] == ("mnli", "validation_mismatched")


UNKNOWN = {
    "Demo": "unknown data source 'Demo'; did you mean 'demo'?",
    "zzz": "known: hub, demo (or give the path of a folder)",
    "nyu-mll/glue": "folder nyu-mll/glue does not exist; give hub, demo or the path of a folder",
    "EMPTY": "it has file; looked for the classic TSV layout (such as CoLA/train.tsv), Parquet files as in a clone",
    "EMPTY/file": "is a file; expected a folder",
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_source(name, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "file").touch()
    with pytest.raises(UserError) as caught:
        open_source(name.replace("EMPTY", str(tmp_path / "empty")))
    assert UNKNOWN[name] in str(caught.value)


def test_kinds_revisions_and_tasks_that_are_not_there(write):
    folder, *others = (open_source(name) for name in (str(write(SMALL)), "hub", "demo"))
    assert (folder.kind, folder.revision, folder.tasks()) == ("tsv", None, ["rte"])
    assert [(each.kind, each.revision) for each in others] == [("hub", hub.PINNED), ("demo", None)]
    assert all(each.tasks() == list(TASKS) for each in others)
    for source in (folder, *others):
        with pytest.raises(UserError, match="unknown task 'mnl'; did you mean 'mnli'"):
            source.load("mnl")
    with pytest.raises(
        UserError, match=r"no MRPC data in .*; looked for MRPC/train\.tsv .* and its"
    ):
        folder.load("mrpc")


def test_describe(write):
    sizes = {"train": 635, "dev": 71}
    files = {
        f"WNLI/{name}.tsv": f"{PAIR}\tlabel\n" + "a\tb\t0\n" * rows for name, rows in sizes.items()
    }
    files |= {
        "WNLI/test.tsv": f"{PAIR}\n" + "a\tb\n" * 146,
        "STS-B/dev.tsv": f"{PAIR}\tscore\na\tb\t0.0\nc\td\t5.0\n",
    }
    files["QQP/dev.tsv"] = "question1\tquestion2\tis_duplicate\na\tb\t1\nc\n"
    table = describe(open_source(str(write({**SMALL, **files}))))
    assert list(table.columns) == DESCRIPTION
    of = dict(list(table.groupby("task")))
    assert of["rte"][["rows", "official_rows", "status", "labels"]].to_numpy().tolist() == [
        [2, 2490, "partial", "entailment 50% / not_entailment 50%"],
        [0, 277, "partial", ""],
        [1, 3000, "partial", "unlabelled"],
    ]
    assert of["rte"]["digest"].map(len).tolist() == [12, 0, 12]
    assert "0.0-5.0 mean 2.5" in of["stsb"]["labels"].tolist()
    assert of["mnli"][["rows", "status", "split"]].to_numpy().tolist() == [[0, "missing", ""]]
    assert of["qqp"]["skipped"].tolist() == [0, 1, 0]
    assert of["wnli"]["status"].tolist() == ["not the official rows"] * 3
    assert of["wnli"]["difference"].tolist() == ["other rows"] * 3


def test_fewer_rows_are_among_more_in_their_order_and_tests_stay_whole():
    data = TaskData("rte", "tsv", generate("rte"))
    some, more, part = limited(data, 5), limited(data, 9), limited(data, 5, train_alone=True)
    for name in ("train", "validation"):
        few, many, every = (
            [*each.splits[name].itertuples(index=False, name=None)] for each in (some, more, data)
        )
        assert (len(few), len(many), set(few) - set(many)) == (5, 9, set())
        assert few == [row for row in every if row in few]
    assert some.splits["test"] is data.splits["test"]
    assert part.splits["train"].equals(some.splits["train"])
    assert part.splits["validation"] is data.splits["validation"]
    assert [each.source for each in (some, part)] == [
        "tsv, limited to 5 rows",
        "tsv, limited to 5 rows of train",
    ]
    assert len({each.digest for each in (data, some, more, part)}) == 4
    assert some.partial
    assert limited(data, 10_000) is data


NOUNS = demo.ANIMALS + demo.SEA_ANIMALS
ACCEPTABLE = (
    ("the",),
    demo.ADJECTIVES,
    NOUNS,
    demo.VERBS,
    ("the",),
    demo.ADJECTIVES,
    NOUNS,
    demo.ADVERBS,
)


def words(text):
    return text.replace("?", "").replace(".", "").split()


READERS = {
    "cola": lambda text, _: all(
        word in fit for word, fit in zip(words(text), ACCEPTABLE, strict=True)
    ),
    "sst2": lambda text, _: any(word in demo.GOOD for word in words(text.split(" but ")[1])),
    "mrpc": lambda first, second: words(first)[0] == words(second)[-1],
    "stsb": lambda _, second: words(second).index("but"),
    "qqp": lambda _, second: second.split("that ")[1].split()[0] in demo.PEOPLE,
    "mnli": lambda _, second: {"indeed": 0, "never": 2, "nobody": 2}.get(words(second)[0], 1),
    "qnli": lambda question, sentence: words(sentence)[1:3] != words(question)[3:5],
    "rte": lambda premise, _: words(premise)[0] not in demo.PEOPLE,
    "wnli": lambda _, second: words(second)[0] in demo.HE,
}


@pytest.mark.parametrize("task", TRAINABLE)
def test_labels_follow_from_the_text(task):
    for frame in (frame for split, frame in generate(task).items() if not split.startswith("test")):
        second = frame["text_b"] if "text_b" in frame else [None] * len(frame)
        read = [READERS[task](a, b) for a, b in zip(frame["text_a"], second, strict=True)]
        assert [float(label) for label in read] == frame["label"].tolist()


@pytest.mark.parametrize("task", TASKS)
def test_splits_are_those_of_the_task_and_never_repeat_a_text(task):
    frames = generate(task)
    assert list(frames) == list(TASKS[task].splits)
    texts = [
        tuple(row) for frame in frames.values() for row in frame.filter(like="text").to_numpy()
    ]
    assert len(set(texts)) == len(texts)
    assert all(
        (frame["label"] == -1).all() for name, frame in frames.items() if name.startswith("test")
    )


def official(task: str, **changes: int) -> TaskData:
    """Data with as many rows as the official one has, but for the splits in `changes`."""
    sizes = {name: split.rows for name, split in TASKS[task].splits.items()} | changes
    frames = {
        name: pd.DataFrame({"text_a": "a", "label": np.zeros(rows, int)})
        for name, rows in sizes.items()
    }
    return TaskData(
        task, "tsv", frames, revision="a" * 40
    )  # rows of a revision of the hub are not compared


def test_data_are_partial_if_any_split_is():
    assert not official("wnli").partial
    for split in TASKS["wnli"].splits:
        assert official("wnli", **{split: TASKS["wnli"].splits[split].rows - 1}).partial, split


def test_the_labels_of_every_scored_split_that_is_public_are_known():
    data = official(
        "mnli",
        train=3,
        validation_matched=4,
        validation_mismatched=5,
        test_matched=2,
        test_mismatched=2,
    )
    labels = known_labels(data)
    assert {split: len(values) for split, values in labels.items()} == {
        "validation_matched": 4,
        "validation_mismatched": 5,
    }
    data.splits["validation_matched"].loc[2, "label"] = -1
    assert list(known_labels(data)) == ["validation_mismatched"]


def test_equal_rows_of_another_split_have_another_digest():
    frame = generate("rte")["validation"]
    assert split_digest("train", frame) != split_digest("validation", frame)
    reordered = frame.iloc[[1, 0, *range(2, len(frame))]]
    assert split_digest("train", frame) != split_digest("train", reordered)


def test_the_shares_of_both_labels_and_the_rows_left_out_of_each_split_are_described(write):
    head = "question1\tquestion2\tis_duplicate\n"
    files = {
        "QQP/train.tsv": head + "a\tb\t1\nc\nd\n" + "e\tf\t1\n" * 2 + "g\th\t0\n",
        "QQP/dev.tsv": head + "a\tb\t0\nc\n",
    }
    table = describe(open_source(str(write(files)))).query("task == 'qqp'").set_index("split")
    assert table["skipped"].to_dict() == {"train": 2, "validation": 1, "test": 0}
    assert table["labels"]["train"] == "not_duplicate 25% / duplicate 75%"


def test_the_rows_of_every_split_are_drawn_from_all_of_it():
    data = TaskData("mnli", "tsv", generate("mnli"))
    some = limited(data, 20)
    for name in ("train", "validation_matched", "validation_mismatched"):
        whole = [*data.splits[name].itertuples(index=False, name=None)]
        places = [whole.index(row) for row in some.splits[name].itertuples(index=False, name=None)]
        assert len(places) == 20, name
        assert max(places) > len(whole) / 2, name
