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


@pytest.fixture
def source(request, write):
    """The source `hub`, `demo`, or a folder with RTE."""
    return open_source(str(write(SMALL)) if request.param == "folder" else request.param)


@pytest.mark.parametrize(
    ("source", "kind", "revision"),
    [("folder", "tsv", None), ("hub", "hub", hub.PINNED), ("demo", "demo", None)],
    indirect=["source"],
)
def test_a_source_has_a_kind_and_a_revision(source, kind, revision):
    assert source.kind == kind
    assert source.revision == revision


@pytest.mark.parametrize(
    ("source", "tasks"),
    [("folder", ["rte"]), ("hub", list(TASKS)), ("demo", list(TASKS))],
    indirect=["source"],
    ids=["folder", "hub", "demo"],
)
def test_a_source_has_tasks(source, tasks):
    assert source.tasks() == tasks


@pytest.mark.parametrize("source", ["folder", "hub", "demo"], indirect=True)
def test_an_unknown_task_is_refused(source):
    with pytest.raises(UserError, match="unknown task 'mnl'; did you mean 'mnli'"):
        source.load("mnl")


@pytest.mark.parametrize("source", ["folder"], indirect=True)
def test_a_task_that_a_folder_does_not_have_is_refused(source):
    message = r"no MRPC data in .*; looked for MRPC/train\.tsv .* and its"
    with pytest.raises(UserError, match=message):
        source.load("mrpc")


@pytest.fixture
def described(write) -> dict[str, pd.DataFrame]:
    """The descriptions of a folder's tasks: RTE and STS-B in part, WNLI with other rows."""
    files = SMALL | {
        "WNLI/train.tsv": f"{PAIR}\tlabel\n" + "a\tb\t0\n" * 635,
        "WNLI/dev.tsv": f"{PAIR}\tlabel\n" + "a\tb\t0\n" * 71,
        "WNLI/test.tsv": f"{PAIR}\n" + "a\tb\n" * 146,
        "STS-B/dev.tsv": f"{PAIR}\tscore\na\tb\t0.0\nc\td\t5.0\n",
        "QQP/dev.tsv": "question1\tquestion2\tis_duplicate\na\tb\t1\nc\n",
    }
    table = describe(open_source(str(write(files))))
    return dict(list(table.groupby("task")))


def test_a_description_has_the_rows_and_labels_of_each_split(described):
    columns = ["rows", "official_rows", "status", "labels"]
    assert list(described["rte"].columns) == DESCRIPTION
    assert described["rte"][columns].to_numpy().tolist() == [
        [2, 2490, "partial", "entailment 50% / not_entailment 50%"],
        [0, 277, "partial", ""],
        [1, 3000, "partial", "unlabelled"],
    ]


def test_a_description_has_the_digests_of_the_splits_that_are_there(described):
    assert described["rte"]["digest"].map(len).tolist() == [12, 0, 12]


def test_a_description_has_the_range_and_the_mean_of_scores(described):
    assert "0.0-5.0 mean 2.5" in described["stsb"]["labels"].tolist()


def test_a_description_has_a_row_for_a_task_that_is_missing(described):
    columns = ["rows", "status", "split"]
    assert described["mnli"][columns].to_numpy().tolist() == [[0, "missing", ""]]


def test_a_description_counts_the_rows_that_are_left_out(described):
    assert described["qqp"]["skipped"].tolist() == [0, 1, 0]


def test_a_description_says_that_rows_are_not_the_official_ones(described):
    assert described["wnli"]["status"].tolist() == ["not the official rows"] * 3
    assert described["wnli"]["difference"].tolist() == ["other rows"] * 3


def rows_of(data: TaskData, split: str) -> list[tuple]:
    """Return the rows of a split as tuples."""
    return list(data.splits[split].itertuples(index=False, name=None))


@pytest.fixture(scope="module")
def rte_data() -> TaskData:
    """RTE of the demo."""
    return TaskData("rte", "tsv", generate("rte"))


@pytest.mark.parametrize("split", ["train", "validation"])
def test_fewer_rows_are_among_more_and_in_their_order(rte_data, split):
    five = rows_of(limit_rows(rte_data, 5), split)
    nine = rows_of(limit_rows(rte_data, 9), split)
    assert len(five) == 5
    assert len(nine) == 9
    assert set(five) < set(nine)
    assert five == [row for row in rows_of(rte_data, split) if row in five]


def test_a_limit_leaves_the_test_split_whole(rte_data):
    assert limit_rows(rte_data, 5).splits["test"] is rte_data.splits["test"]


def test_a_limit_of_train_leaves_the_validation_split_whole(rte_data):
    limited = limit_rows(rte_data, 5, train_alone=True)
    assert limited.splits["train"].equals(limit_rows(rte_data, 5).splits["train"])
    assert limited.splits["validation"] is rte_data.splits["validation"]


def test_limited_data_say_their_limit_and_have_a_digest_of_their_own(rte_data):
    five = limit_rows(rte_data, 5)
    nine = limit_rows(rte_data, 9)
    five_of_train = limit_rows(rte_data, 5, train_alone=True)
    assert five.partial
    assert five.source == "tsv, limited to 5 rows"
    assert five_of_train.source == "tsv, limited to 5 rows of train"
    digests = [data.digest for data in (rte_data, five, nine, five_of_train)]
    assert len(set(digests)) == 4


def test_a_limit_above_the_number_of_rows_changes_nothing(rte_data):
    assert limit_rows(rte_data, 10_000) is rte_data


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
