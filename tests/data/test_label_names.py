"""Outputs of classifiers are found by what their names mean."""

from itertools import permutations

import pytest

from glue_bench.data.label_names import CLASS_SPELLINGS, class_name, places_of_classes
from glue_bench.data.tasks import TASKS

CLASSIFIED = [task for task in TASKS.values() if task.labels]


@pytest.mark.parametrize("task", CLASSIFIED, ids=lambda task: task.name)
def test_every_order_of_names_is_found(task):
    for order in permutations(range(len(task.labels))):
        names = [task.labels[place] for place in order]
        places = places_of_classes(names, task.labels)
        assert [names[place] for place in places] == list(task.labels)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ENTAILMENT", "entailment"),
        ("not entailment", "not_entailment"),
        ("Non-Entailment", "not_entailment"),
        ("entails", "entailment"),
        ("POS", "positive"),
        ("Not_Duplicate", "not_duplicate"),
    ],
)
def test_spellings_of_published_checkpoints_mean_a_class(name, expected):
    assert class_name(name) == expected


def test_no_spelling_means_two_classes():
    words = [word for words in CLASS_SPELLINGS.values() for word in words]
    assert len(set(words)) == len(words)
    assert not set(words) & CLASS_SPELLINGS.keys()


def test_every_class_of_glue_has_spellings():
    classes = {label for task in CLASSIFIED for label in task.labels}
    assert classes == CLASS_SPELLINGS.keys()


@pytest.mark.parametrize(
    "names", [["LABEL_0", "LABEL_1"], ["entailment", "entailed"], ["entailment"]]
)
def test_names_that_say_nothing_or_say_it_twice_are_no_order(names):
    assert places_of_classes(names, ["entailment", "not_entailment"]) is None
