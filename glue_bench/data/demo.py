"""The embedded demo: a made-up mini-GLUE whose labels follow from the text. Never a benchmark.

Seven of the tasks turn on word order alone (ORDER_SENSITIVE): all classes hold the same words, so a model
that sees a bag of words cannot beat chance on them. The other two can be solved without order.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from zlib import crc32

import numpy as np
import pandas as pd

from glue_bench.data.task_data import Source, TaskData
from glue_bench.data.tasks import TASKS, find_task
from glue_bench.data.tsv import unlabelled

SEED = 20210
ROWS = {"train": 1200, "validation": 240, "test": 120}
ORDER_SENSITIVE = ("cola", "sst2", "mrpc", "stsb", "qqp", "qnli", "rte")

HE = ("tom", "peter", "david", "oscar", "henry", "felix")
SHE = ("anna", "maria", "lucy", "emma", "clara", "nora")
PEOPLE = HE + SHE
VERBS = ("helped", "chased", "called", "thanked", "followed", "watched", "visited", "teased")
ADJECTIVES = ("old", "young", "tall", "quiet", "clever", "lazy")
ANIMALS = ("cat", "dog", "horse", "fox", "goose", "rabbit")
SEA_ANIMALS = ("whale", "seal", "crab", "shark", "gull", "otter")
ADVERBS = ("today", "twice", "again", "quickly", "here")
PARTS = ("plot", "music", "cast", "ending", "dialogue", "pace", "acting", "camera")
GOOD = ("lovely", "great", "funny", "moving", "superb", "fresh")
BAD = ("dull", "awful", "silly", "stale", "clumsy", "bland")
THINGS = ("apples", "books", "candles", "drums", "eggs", "flutes",
          "gloves", "hats", "inks", "jars", "kites", "lamps")  # fmt: skip
NEGATIONS = ("never", "nobody")

Example = tuple[str, str | None, float]
Maker = Callable[[np.random.Generator, float], Example]


class DemoSource(Source):
    """Demo data. Scores on it mean nothing."""

    kind = "demo"

    def load(self, task: str) -> TaskData:
        name = find_task(task).name
        return TaskData(name, self.kind, generate(name))


@cache
def generate(task: str) -> dict[str, pd.DataFrame]:
    """Every split of a task, as `TaskData.splits`. Texts never repeat, and are the same on every machine."""
    row, generator = TASKS[task], np.random.default_rng([SEED, crc32(task.encode())])
    seen, frames = set[tuple[str, str | None]](), dict[str, pd.DataFrame]()
    for name in row.splits:
        # Half of the animals of the mismatched genre are not in the train split of MNLI; CoLA's has them, each a word.
        mismatched = partial(_nli, animals=ANIMALS[:3] + SEA_ANIMALS[:3])
        maker, rows = mismatched if name.endswith("_mismatched") else MAKERS[task], list[Example]()
        # Balanced labels in random order; for STS-B the scores 0 to 5.
        classes = 6 if row.is_regression else row.num_labels
        for label in generator.permutation(np.arange(ROWS[name.split("_")[0]]) % classes):
            while (made := maker(generator, label))[:2] in seen:
                pass
            seen.add(made[:2])
            rows.append(made)
        frame = pd.DataFrame(rows, columns=["text_a", "text_b", "label"])
        frame["label"] = frame["label"].astype("float64" if row.is_regression else "int64")
        if name.startswith("test"):
            frame["label"] = unlabelled(row, len(frame))
        frames[name] = frame if len(row.texts) == 2 else frame.drop(columns="text_b")
    return frames


def _pick(generator: np.random.Generator, words: Sequence[str], count: int = 1) -> list[str]:
    """`count` different words."""
    return [words[index] for index in generator.choice(len(words), size=count, replace=False)]


def _person_animal_verb(generator: np.random.Generator) -> tuple[str, str, str]:
    """A name, an animal with an adjective, and a verb: 3,456 scenes, more than any task has rows."""
    person, adjective, animal, verb = (
        _pick(generator, words)[0] for words in (PEOPLE, ADJECTIVES, ANIMALS, VERBS)
    )
    return person, f"{adjective} {animal}", verb


def _cola(generator: np.random.Generator, label: float) -> Example:
    """Acceptable: a sentence of the grammar. Unacceptable: its words so that no `the` starts a noun phrase."""
    subject, object_ = _pick(generator, ANIMALS + SEA_ANIMALS, 2)
    first, second = _pick(generator, ADJECTIVES, 2)
    verb, adverb = _pick(generator, VERBS)[0], _pick(generator, ADVERBS)[0]
    words = order = ["the", first, subject, verb, "the", second, object_, adverb]
    while not label:
        order = [words[index] for index in generator.permutation(len(words))]
        phrases = zip(order, order[1:], order[2:], strict=False)
        if not any(
            a == "the" and b in ADJECTIVES and c in ANIMALS + SEA_ANIMALS for a, b, c in phrases
        ):
            break
    return " ".join(order) + " .", None, label


def _sst2(generator: np.random.Generator, label: float) -> Example:
    """One clause praises, one blames; what follows `but` decides."""
    first, second = _pick(generator, PARTS, 2)
    good, bad = _pick(generator, GOOD)[0], _pick(generator, BAD)[0]
    before, after = (bad, good) if label else (good, bad)
    return f"the {first} was {before} but the {second} was {after} .", None, label


def _mrpc(generator: np.random.Generator, label: float) -> Example:
    """Paraphrase: the passive keeps who did it to whom. No paraphrase: it swaps them."""
    person, animal, verb = _person_animal_verb(generator)
    agent, patient = (person, f"the {animal}") if label else (f"the {animal}", person)
    return f"{person} {verb} the {animal} .", f"{patient} was {verb} by {agent} .", label


def _stsb(generator: np.random.Generator, label: float) -> Example:
    """The label is the number of things that both sentences name."""
    things, shared = _pick(generator, THINGS, 5), int(label)
    second = [*things[:shared], "but", "no", *things[shared:]]
    return " ".join(things) + " .", " ".join(second) + " .", label


def _qqp(generator: np.random.Generator, label: float) -> Example:
    """Duplicates ask who did it to the animal; otherwise the second asks what the animal did."""
    person, animal, verb = _person_animal_verb(generator)
    clause = f"{person} {verb}" if label else f"{verb} {person}"
    return (
        f"is it true that {person} {verb} the {animal} ?",
        f"was it the {animal} that {clause} ?",
        label,
    )


def _nli(generator: np.random.Generator, label: float, animals: Sequence[str] = ANIMALS) -> Example:
    """Entailment restates, contradiction negates, neutral adds when or how; told apart by words alone."""
    subject, object_ = _pick(generator, animals, 2)
    verb, adjective = _pick(generator, VERBS)[0], _pick(generator, ADJECTIVES)[0]
    extra = ("indeed", _pick(generator, ADVERBS)[0], _pick(generator, NEGATIONS)[0])[int(label)]
    premise = f"the {adjective} {subject} {verb} the {object_} ."
    return premise, f"{extra} the {subject} {verb} the {object_} .", label


def _qnli(generator: np.random.Generator, label: float) -> Example:
    """The sentence answers `whom ... the X ?` if X is the one who did it. Label 0 is entailment."""
    person, animal, verb = _person_animal_verb(generator)
    sentence = f"{person} {verb} the {animal} ." if label else f"the {animal} {verb} {person} ."
    return f"whom has the {animal} {verb} ?", sentence, label


def _rte(generator: np.random.Generator, label: float) -> Example:
    """Entailed: it was the person who did it, not the animal. Label 0 is entailment."""
    person, animal, verb = _person_animal_verb(generator)
    adverb = _pick(generator, ADVERBS)[0]
    premise = (
        f"the {animal} {verb} {person} {adverb} ."
        if label
        else f"{person} {verb} the {animal} {adverb} ."
    )
    return premise, f"a person {verb} an animal .", label


def _wnli(generator: np.random.Generator, label: float) -> Example:
    """The pronoun is the one whose name fits it: here always the man."""
    he, she = _pick(generator, HE)[0], _pick(generator, SHE)[0]
    verb, adjective = _pick(generator, VERBS)[0], _pick(generator, ADJECTIVES)[0]
    return (
        f"{he} {verb} {she} because he was {adjective} .",
        f"{he if label else she} was {adjective} .",
        label,
    )


_MADE = (_cola, _sst2, _mrpc, _stsb, _qqp, _nli, _qnli, _rte, _wnli, _nli)
MAKERS: dict[str, Maker] = dict(zip(TASKS, _MADE, strict=True))
