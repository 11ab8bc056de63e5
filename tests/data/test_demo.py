"""The embedded demo: labels follow from the text, and no text repeats."""

import pytest

from glue_bench.data import demo
from glue_bench.data.tasks import TASKS, TRAINABLE

NOUNS = demo.ANIMALS + demo.SEA_ANIMALS
ACCEPTABLE = (("the",), demo.ADJECTIVES, NOUNS, demo.VERBS, ("the",), demo.ADJECTIVES, NOUNS, demo.ADVERBS)


def words(text):
    return text.replace("?", "").replace(".", "").split()


READERS = {
    "cola": lambda text, _: all(word in fit for word, fit in zip(words(text), ACCEPTABLE, strict=True)),
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
    for frame in (frame for split, frame in demo.generate(task).items() if not split.startswith("test")):
        second = frame["text_b"] if "text_b" in frame else [None] * len(frame)
        read = [READERS[task](a, b) for a, b in zip(frame["text_a"], second, strict=True)]
        assert [float(label) for label in read] == frame["label"].tolist()


@pytest.mark.parametrize("task", TASKS)
def test_splits_are_those_of_the_task_and_never_repeat_a_text(task):
    frames = demo.generate(task)
    assert list(frames) == list(TASKS[task].splits)
    texts = [tuple(row) for frame in frames.values() for row in frame.filter(like="text").to_numpy()]
    assert len(set(texts)) == len(texts)
    assert all((frame["label"] == -1).all() for name, frame in frames.items() if name.startswith("test"))
