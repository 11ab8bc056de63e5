"""What a task is, which source a name opens, how its content is described, which rows a limit
keeps, and the demo.
"""

import re

import numpy as np
import pandas as pd
import pytest

from glue_bench.data import demo, hub
from glue_bench.data.demo import generate
from glue_bench.data.sources import DESCRIPTION, describe, open_source
from glue_bench.data.task_data import (
    TaskData,
    cluster_numbers,
    known_labels,
    limit_rows,
    split_digest,
)
from glue_bench.data.tasks import COLUMNS, TASKS, TRAINABLE
from glue_bench.errors import UserError

SIZES = {
    "cola": (8551, 1043, 1063),
    "sst2": (67349, 872, 1821),
    "mrpc": (3668, 408, 1725),
    "stsb": (5749, 1500, 1379),
    "qqp": (363846, 40430, 390965),
    "mnli": (392702, 9815, 9832, 9796, 9847),
    "qnli": (104743, 5463, 5463),
    "rte": (2490, 277, 3000),
    "wnli": (635, 71, 146),
    "ax": (1104,),
}
PAIR = "sentence1\tsentence2"
SMALL = {
    "RTE/train.tsv": f"{PAIR}\tlabel\na\tb\tentailment\nc\td\tnot_entailment\n",
    "RTE/test.tsv": f"{PAIR}\ne\tf\n",
}


def test_tasks_have_the_official_sizes_and_columns_keep_mnli_apart():
    """As in the table of the GLUE paper and on the dataset card."""
    sizes = {}
    for name, task in TASKS.items():
        sizes[name] = tuple(split.rows for split in task.splits.values())
    assert sizes == SIZES
    assert tuple(SIZES)[:-1] == TRAINABLE
    expected = [
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
    assert list(COLUMNS) == expected
    assert COLUMNS["mnli_mm"] == ("mnli", "validation_mismatched")


UNKNOWN = {
    "Demo": "unknown data source 'Demo'; did you mean 'demo'?",
    "zzz": "known: hub, demo (or give the path of a folder)",
    "nyu-mll/glue": "folder nyu-mll/glue does not exist; give hub, demo or the path of a folder",
    "EMPTY": "it has file; looked for the classic TSV layout (such as CoLA/train.tsv), Parquet "
    "files as in a clone",
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
    folder_source = open_source(str(write(SMALL)))
    hub_source = open_source("hub")
    demo_source = open_source("demo")
    assert folder_source.kind == "tsv"
    assert folder_source.revision is None
    assert hub_source.kind == "hub"
    assert hub_source.revision == hub.PINNED
    assert demo_source.kind == "demo"
    assert demo_source.revision is None
    assert folder_source.tasks() == ["rte"]
    assert hub_source.tasks() == demo_source.tasks() == list(TASKS)
    for source in (folder_source, hub_source, demo_source):
        with pytest.raises(UserError, match="unknown task 'mnl'; did you mean 'mnli'"):
            source.load("mnl")
    with pytest.raises(
        UserError, match=r"no MRPC data in .*; looked for MRPC/train\.tsv .* and its"
    ):
        folder_source.load("mrpc")


def test_describe(write):
    files = SMALL | {
        "WNLI/train.tsv": f"{PAIR}\tlabel\n" + "a\tb\t0\n" * 635,
        "WNLI/dev.tsv": f"{PAIR}\tlabel\n" + "a\tb\t0\n" * 71,
        "WNLI/test.tsv": f"{PAIR}\n" + "a\tb\n" * 146,
        "STS-B/dev.tsv": f"{PAIR}\tscore\na\tb\t0.0\nc\td\t5.0\n",
        "QQP/dev.tsv": "question1\tquestion2\tis_duplicate\na\tb\t1\nc\n",
    }

    table = describe(open_source(str(write(files))))
    assert list(table.columns) == DESCRIPTION
    tables = dict(list(table.groupby("task")))

    rte = tables["rte"]
    assert rte[["rows", "official_rows", "status", "labels"]].to_numpy().tolist() == [
        [2, 2490, "partial", "entailment 50% / not_entailment 50%"],
        [0, 277, "partial", ""],
        [1, 3000, "partial", "unlabelled"],
    ]
    assert rte["digest"].map(len).tolist() == [12, 0, 12]
    assert "0.0-5.0 mean 2.5" in tables["stsb"]["labels"].tolist()

    mnli = tables["mnli"][["rows", "status", "split"]]
    expected = [[0, "missing", ""]]
    assert mnli.to_numpy().tolist() == expected
    assert tables["qqp"]["skipped"].tolist() == [0, 1, 0]

    assert tables["wnli"]["status"].tolist() == ["not the official rows"] * 3
    assert tables["wnli"]["difference"].tolist() == ["other rows"] * 3


def rows_of(data: TaskData, split: str) -> list[tuple]:
    """Return the rows of a split as tuples."""
    return list(data.splits[split].itertuples(index=False, name=None))


def test_fewer_rows_are_among_more_in_their_order_and_tests_stay_whole():
    data = TaskData("rte", "tsv", generate("rte"))
    five = limit_rows(data, 5)
    nine = limit_rows(data, 9)
    five_of_train = limit_rows(data, 5, train_alone=True)
    for name in ("train", "validation"):
        five_rows = rows_of(five, name)
        nine_rows = rows_of(nine, name)
        assert len(five_rows) == 5
        assert len(nine_rows) == 9
        assert set(five_rows) < set(nine_rows)
        assert five_rows == [row for row in rows_of(data, name) if row in five_rows]
    assert five.splits["test"] is data.splits["test"]
    assert five_of_train.splits["train"].equals(five.splits["train"])
    assert five_of_train.splits["validation"] is data.splits["validation"]
    assert five.source == "tsv, limited to 5 rows"
    assert five_of_train.source == "tsv, limited to 5 rows of train"
    assert len({data.digest, five.digest, nine.digest, five_of_train.digest}) == 4
    assert five.partial
    assert limit_rows(data, 10_000) is data


CLASSES = {"the": "t"}
"""The letter of each word of CoLA."""
for letter, class_words in (
    ("a", demo.ADJECTIVES),
    ("n", demo.ANIMALS + demo.SEA_ANIMALS),
    ("v", demo.VERB_WORDS),
    ("d", demo.ADVERBS),
):
    CLASSES |= dict.fromkeys(class_words, letter)


def words(text):
    return text.replace("?", "").replace(".", "").split()


def is_acceptable(text):
    letters = "".join(CLASSES[word] for word in words(text))
    return re.fullmatch("ta?nvta?nd", letters) is not None


def deciding_clause(text):
    """Return the clause of SST-2 that `but` or `although` makes the main one."""
    if " although " in text:
        return text.split(" although ")[0]
    return text.split(" was ")[-1]


def person_acts(text, verb):
    """Return whether in the clause with this verb it is a person who acts."""
    if passive := re.search(rf"was {verb} by (\w+)", text):
        return passive[1] in demo.PEOPLE
    return re.search(rf"(\w+) {verb}\b", text)[1] in demo.PEOPLE


def asks_the_same(_, second):
    after = words(second.split(" that ")[1])
    if after[0] == "was":
        return after[3] in demo.PEOPLE
    return after[0] in demo.PEOPLE


def is_paraphrase(first, second):
    [verb] = set(words(second)) & set(demo.VERB_WORDS)
    return person_acts(first, verb) == person_acts(second, verb)


READERS = {
    "cola": lambda text, _: is_acceptable(text),
    "sst2": lambda text, _: any(word in demo.GOOD for word in words(deciding_clause(text))),
    "mrpc": is_paraphrase,
    "stsb": lambda _, second: len(words(second)) - words(second).index("no") - 1,
    "qqp": asks_the_same,
    "mnli": lambda _, second: {"indeed": 0, "never": 2, "nobody": 2}.get(words(second)[0], 1),
    "qnli": lambda question, sentence: person_acts(sentence, words(question)[-1]),
    "rte": lambda premise, second: not person_acts(premise, words(second)[2]),
    "wnli": lambda _, second: words(second)[0] in demo.HE,
}


@pytest.mark.parametrize("task", TRAINABLE)
def test_labels_follow_from_the_text(task):
    read = READERS[task]
    for split, frame in generate(task).items():
        if split.startswith("test"):
            continue
        second_texts = frame["text_b"] if "text_b" in frame else [None] * len(frame)
        pairs = zip(frame["text_a"], second_texts, strict=True)
        labels = [float(read(first, second)) for first, second in pairs]
        assert labels == frame["label"].tolist()


@pytest.mark.parametrize("task", TASKS)
def test_splits_are_those_of_the_task_and_never_repeat_a_text(task):
    frames = generate(task)
    assert list(frames) == list(TASKS[task].splits)
    texts = []
    for name, frame in frames.items():
        texts += [tuple(row) for row in frame.filter(like="text").to_numpy()]
        if name.startswith("test"):
            assert (frame["label"] == -1).all()
    assert len(set(texts)) == len(texts)


def official(task: str, **changes: int) -> TaskData:
    """Return data with as many rows as the official one has, but for the splits in `changes`."""
    sizes = {name: split.rows for name, split in TASKS[task].splits.items()} | changes
    frames = {}
    for name, rows in sizes.items():
        frames[name] = pd.DataFrame({"text_a": "a", "label": np.zeros(rows, int)})
    # Rows of a revision of the hub are not compared.
    return TaskData(task, "tsv", frames, revision="a" * 40)


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
    expected = {"train": 2, "validation": 1, "test": 0}
    assert table["skipped"].to_dict() == expected
    assert table["labels"]["train"] == "not_duplicate 25% / duplicate 75%"


def test_the_rows_of_every_split_are_drawn_from_all_of_it():
    data = TaskData("mnli", "tsv", generate("mnli"))
    twenty = limit_rows(data, 20)
    for name in ("train", "validation_matched", "validation_mismatched"):
        rows = rows_of(data, name)
        places = [rows.index(row) for row in rows_of(twenty, name)]
        assert len(places) == 20, name
        assert max(places) > len(rows) / 2, name


def test_examples_of_one_text_have_the_number_of_one_cluster():
    """QNLI names its question, and a task that names no text has no clusters."""
    frame = pd.DataFrame(
        {"text_a": ["who", "when", "who"], "text_b": ["a", "b", "a"], "label": [0, 1, 0]}
    )
    clusters = {}
    for task in ("qnli", "rte"):
        clusters[task] = cluster_numbers(TaskData(task, "tsv", {"validation": frame}))
    assert clusters["qnli"]["validation"].tolist() == [0, 1, 0]
    assert clusters["rte"] == {}
