"""Which output of a classifier is which class of a task: by their names, never by their order."""

import re
from collections.abc import Sequence

CLASS_SPELLINGS = {
    "entailment": ("entail", "entails", "entailed"),
    "not_entailment": ("non_entailment", "no_entailment", "notentailment", "nonentailment"),
    "neutral": ("neither",),
    "contradiction": ("contradict", "contradicts", "contradictory"),
    "equivalent": ("paraphrase", "is_paraphrase"),
    "not_equivalent": ("not_paraphrase", "no_paraphrase", "non_paraphrase", "nonequivalent"),
    "duplicate": ("is_duplicate", "duplicates"),
    "not_duplicate": ("non_duplicate", "no_duplicate", "not_duplicates"),
    "acceptable": ("grammatical",),
    "unacceptable": ("not_acceptable", "ungrammatical"),
    "positive": ("pos",),
    "negative": ("neg",),
}
"""Other words for GLUE's classes in published checkpoints, as `class_name` writes them."""
IS_NUMBERED = re.compile(r"(label|class)?_?\d+").fullmatch


def class_name(name: str) -> str:
    """Return the class that a name means, in small letters with underscores."""
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    for label, spellings in CLASS_SPELLINGS.items():
        if plain in spellings:
            return label
    return plain


def are_numbered(names: Sequence[str]) -> bool:
    """Whether names of outputs are numbers alone (LABEL_0), which say nothing of the classes."""
    return all(map(IS_NUMBERED, map(class_name, names)))


def places_of_classes(names: Sequence[str], labels: Sequence[str]) -> tuple[int, ...] | None:
    """Find the output of each class.

    Args:
        names: The names of a classifier's outputs, in their order.
        labels: The classes of a task, in the order of their ids.

    Returns:
        The place of each class among the outputs; None unless each class has exactly one output.
    """
    classes = list(map(class_name, names))
    classes_of_task = list(map(class_name, labels))
    if sorted(classes) != sorted(classes_of_task) or len(set(classes)) < len(classes):
        return None
    return tuple(map(classes.index, classes_of_task))


def labels_of_task(given: Sequence[str], labels: Sequence[str]) -> list[str]:
    """Return those of the given names that are classes of a task, in the order given."""
    classes_of_task = set(map(class_name, labels))
    return [name for name in given if class_name(name) in classes_of_task]
