"""The embedded demo: labels that follow from the text, and order that a bag of words cannot see."""

import pytest

from glue_bench.data import demo
from glue_bench.data.tasks import TASKS, TRAINABLE

PAIRS = [(task, split) for task in TRAINABLE for split in TASKS[task].splits if not split.startswith("test")]


def words(text):
    return text.replace("?", "").replace(".", "").split()


def cola(text, _):
    noun = demo.ANIMALS + demo.SEA_ANIMALS
    pattern = ["the", demo.ADJECTIVES, noun, demo.VERBS, "the", demo.ADJECTIVES, noun, demo.ADVERBS]
    return all(word == fit or word in fit for word, fit in zip(words(text), pattern, strict=True))


def sst2(text, _):
    return any(word in demo.GOOD for word in words(text.split(" but ")[1]))


def mrpc(first, second):
    return words(first)[0] == words(second)[-1]


def stsb(_, second):
    return words(second).index("but")


def qqp(_, second):
    told = words(second)
    return told[told.index("that") + 1] in demo.PEOPLE


def mnli(_, hypothesis):
    first = words(hypothesis)[0]
    return 0 if first == "indeed" else 2 if first in demo.NEGATIONS else 1


def qnli(question, sentence):
    asked = words(question)[3:5]
    return int(words(sentence)[1:3] != asked)


def rte(premise, _):
    return int(words(premise)[0] not in demo.PEOPLE)


def wnli(_, hypothesis):
    return words(hypothesis)[0] in demo.HE


READERS = {f.__name__: f for f in (cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli)}


@pytest.mark.parametrize(("task", "split"), PAIRS)
def test_labels_follow_from_the_text(task, split):
    frame = demo.generate(task)[split]
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


@pytest.mark.parametrize("task", demo.ORDER_SENSITIVE)
def test_both_classes_use_the_same_words_where_order_decides(task):
    train = demo.generate(task)["train"]
    texts = train["text_a"] if "text_b" not in train else train["text_a"] + " " + train["text_b"]
    vocabularies = [set(" ".join(texts[train["label"] == label]).split()) for label in train["label"].unique()]
    assert all(vocabulary == vocabularies[0] for vocabulary in vocabularies)
