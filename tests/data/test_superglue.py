"""SuperGLUE's tasks in the archive's layout and on the hub: equal rows, equal digests."""

import json
from pathlib import Path

import datasets
import pytest

from glue_bench.data.own import read_own
from glue_bench.data.superglue import OTHERS, SUPERGLUE_PINNED
from glue_bench.data.tasks import KNOWN, TASKS, find_task
from glue_bench.errors import UserError

LINES = {
    "boolq": [
        {"question": "is it so", "passage": "It is.", "idx": 0, "label": True},
        {"question": "is it not", "passage": "It is.", "idx": 1, "label": False},
    ],
    "cb": [
        {"premise": "a", "hypothesis": "b", "label": "neutral", "idx": 0},
        {"premise": "c", "hypothesis": "d", "label": "entailment", "idx": 1},
        {"premise": "e", "hypothesis": "f", "label": "contradiction", "idx": 2},
    ],
    "rtesg": [
        {"premise": "a", "hypothesis": "b", "label": "not_entailment", "idx": 0},
        {"premise": "c", "hypothesis": "d", "label": "entailment", "idx": 1},
    ],
    "wic": [
        {"word": "bed", "sentence1": "a bed", "sentence2": "sea bed", "label": False, "start1": 2},
        {"word": "run", "sentence1": "I run", "sentence2": "runs", "label": True, "start1": 2},
    ],
    "wsc": [
        {
            "text": "Tom saw that he fell.",
            "target": {"span1_text": "Tom", "span2_text": "he", "span1_index": 0, "span2_index": 3},
            "label": True,
        },
        {
            "text": "Tom saw it.",
            "target": {"span1_text": "Tom", "span2_text": "it", "span1_index": 0, "span2_index": 2},
            "label": False,
        },
    ],
}
"""Made rows as the archives have them, with all classes of a task."""
NAMES = {
    "boolq": ["False", "True"],
    "cb": ["entailment", "contradiction", "neutral"],
    "rtesg": ["entailment", "not_entailment"],
    "wic": ["False", "True"],
    "wsc": ["False", "True"],
}
"""The names of label ids on the hub."""


def write_archive(folder: Path, task: str) -> None:
    row = find_task(task)
    for split, facts in row.splits.items():
        lines = LINES[task]
        if split == "test":
            lines = [
                {key: value for key, value in line.items() if key != "label"} for line in lines
            ]
        path = folder / row.origin.folder / facts.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(map(json.dumps, lines)) + "\n")


@pytest.fixture
def archive(tmp_path) -> Path:
    for task in LINES:
        write_archive(tmp_path, task)
    return tmp_path


@pytest.fixture
def hub(monkeypatch) -> list:
    """Answer for the hub with the same rows, flat and with ids for labels; note what was asked."""
    asked = []

    def load_dataset(repository, config, **options):
        asked.append((repository, config, options))
        task = {"rte": "rtesg"}.get(config, config)
        rows = []
        for line in LINES[task]:
            flat = {key: value for key, value in line.items() if key != "target"}
            label = str(line["label"])
            rows.append(flat | line.get("target", {}) | {"label": NAMES[task].index(label)})
        train = datasets.Dataset.from_list(rows)
        train = train.cast_column("label", datasets.ClassLabel(names=NAMES[task]))
        return datasets.DatasetDict({"train": train, "validation": train, "test": train})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return asked


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("task", LINES)
def test_the_hub_and_the_archive_have_equal_digests(task, archive):
    from_hub = read_own(find_task(task))
    from_archive = read_own(find_task(task), str(archive))
    assert from_hub.digest == from_archive.digest


@pytest.mark.parametrize("task", LINES)
def test_the_hub_is_asked_for_the_pinned_revision(task, hub):
    assert read_own(find_task(task)).revision == SUPERGLUE_PINNED
    assert hub[0][2] == {"revision": SUPERGLUE_PINNED}


def test_the_word_stands_before_both_sentences(archive):
    frame = read_own(find_task("wic"), str(archive)).splits["train"]
    assert frame.loc[0, ["text_a", "text_b"]].tolist() == ["bed: a bed", "bed: sea bed"]


def test_the_pronoun_stands_before_the_text_and_the_noun_behind_it(archive):
    frame = read_own(find_task("wsc"), str(archive)).splits["train"]
    assert frame.loc[0, ["text_a", "text_b"]].tolist() == ["he: Tom saw that he fell.", "Tom"]


def test_fewer_rows_than_the_official_ones_are_partial(archive):
    assert read_own(find_task("cb"), str(archive)).partial


def test_a_folder_without_the_task_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"no BoolQ \(train, validation\) in .*BoolQ/train\.jsonl"):
        read_own(find_task("boolq"), str(tmp_path))


def test_the_demo_has_none_of_them():
    with pytest.raises(UserError, match="the demo has no WiC; set `data: hub`"):
        read_own(find_task("wic"), "demo")


def test_names_and_columns_are_none_of_glue():
    names = {task.name for task in OTHERS}
    assert not names & TASKS.keys()
    assert names < KNOWN.keys()


def test_the_main_metrics_are_those_of_the_paper():
    metrics = {task.name: task.metrics for task in OTHERS if task.benchmark == "SuperGLUE"}
    assert metrics.pop("cb") == ("accuracy", "macro_f1")
    assert metrics.pop("axb") == ("matthews_correlation",)
    assert set(metrics.values()) == {("accuracy",)}
