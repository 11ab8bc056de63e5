"""The embedded demo: a made-up mini-GLUE whose labels follow from the text. Never a benchmark.

Seven of the tasks turn on word order alone (ORDER_SENSITIVE): all classes hold the same words, so a
model that sees a bag of words cannot beat chance on them. The remaining two can be solved without
order.
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
THINGS = (
    "apples",
    "books",
    "candles",
    "drums",
    "eggs",
    "flutes",
    "gloves",
    "hats",
    "inks",
    "jars",
    "kites",
    "lamps",
)
NEGATIONS = ("never", "nobody")

Example = tuple[str, str | None, float]
"""First text, second text if there is one, label."""
Maker = Callable[[np.random.Generator, float], Example]


class DemoSource(Source):
    """Demo data. Scores on it mean nothing."""

    kind = "demo"

    def load(self, task: str) -> TaskData:
        name = find_task(task).name
        return TaskData(name, self.kind, generate(name))


@cache
def generate(task: str) -> dict[str, pd.DataFrame]:
    """Make every split of a task, as `TaskData.splits`.

    Texts never repeat, and are the same on every machine.
    """
    row = TASKS[task]
    generator = np.random.default_rng([SEED, crc32(task.encode())])
    used_texts: set[tuple[str, str | None]] = set()
    frames: dict[str, pd.DataFrame] = {}
    for name in row.splits:
        maker = MAKERS[task]
        if name.endswith("_mismatched"):
            # Half of the animals of the mismatched genre are not in the train split of MNLI.
            maker = partial(_nli, animals=ANIMALS[:3] + SEA_ANIMALS[:3])
        # Balanced labels in random order; for STS-B the scores 0 to 5.
        classes = 6 if row.is_regression else row.num_labels
        count = ROWS[name.split("_")[0]]
        labels = generator.permutation(np.arange(count) % classes)
        examples = [_new_example(maker, generator, label, used_texts) for label in labels]
        frame = pd.DataFrame(examples, columns=["text_a", "text_b", "label"])
        frame["label"] = frame["label"].astype("float64" if row.is_regression else "int64")
        if name.startswith("test"):
            frame["label"] = unlabelled(row, len(frame))
        if len(row.texts) == 1:
            frame = frame.drop(columns="text_b")
        frames[name] = frame
    return frames


def _new_example(
    maker: Maker,
    generator: np.random.Generator,
    label: float,
    used_texts: set[tuple[str, str | None]],
) -> Example:
    """Draw examples until the texts are new, and note them as used."""
    while True:
        example = maker(generator, label)
        texts = example[:2]
        if texts not in used_texts:
            used_texts.add(texts)
            return example


def _pick(generator: np.random.Generator, words: Sequence[str], count: int = 1) -> list[str]:
    """Draw `count` different words."""
    chosen = generator.choice(len(words), size=count, replace=False)
    return [words[index] for index in chosen]


def _pick_word(generator: np.random.Generator, words: Sequence[str]) -> str:
    [word] = _pick(generator, words)
    return word


def _scene(generator: np.random.Generator) -> tuple[str, str, str]:
    """Draw a person, an animal with an adjective, and a verb.

    There are 3,456 scenes, more than any task has rows.
    """
    person = _pick_word(generator, PEOPLE)
    adjective = _pick_word(generator, ADJECTIVES)
    animal = _pick_word(generator, ANIMALS)
    verb = _pick_word(generator, VERBS)
    return person, f"{adjective} {animal}", verb


def _cola(generator: np.random.Generator, label: float) -> Example:
    """Acceptable: a sentence of the grammar.

    Unacceptable: its words in an order in which no `the` starts a noun phrase.
    """
    subject, object_ = _pick(generator, ANIMALS + SEA_ANIMALS, 2)
    first, second = _pick(generator, ADJECTIVES, 2)
    verb = _pick_word(generator, VERBS)
    adverb = _pick_word(generator, ADVERBS)
    words = ["the", first, subject, verb, "the", second, object_, adverb]
    order = words
    while not label:
        order = [words[index] for index in generator.permutation(len(words))]
        if not _has_noun_phrase(order):
            break
    return " ".join(order) + " .", None, label


def _has_noun_phrase(words: Sequence[str]) -> bool:
    """Whether `the`, an adjective and an animal stand in this order side by side."""
    for article, adjective, noun in zip(words, words[1:], words[2:], strict=False):
        if article == "the" and adjective in ADJECTIVES and noun in ANIMALS + SEA_ANIMALS:
            return True
    return False


def _sst2(generator: np.random.Generator, label: float) -> Example:
    """One clause praises, the next blames; what follows `but` decides."""
    first, second = _pick(generator, PARTS, 2)
    good = _pick_word(generator, GOOD)
    bad = _pick_word(generator, BAD)
    before, after = (bad, good) if label else (good, bad)
    return f"the {first} was {before} but the {second} was {after} .", None, label


def _mrpc(generator: np.random.Generator, label: float) -> Example:
    """Paraphrase: the passive keeps who did it to whom. No paraphrase: it swaps them."""
    person, animal, verb = _scene(generator)
    agent, patient = (person, f"the {animal}") if label else (f"the {animal}", person)
    return f"{person} {verb} the {animal} .", f"{patient} was {verb} by {agent} .", label


def _stsb(generator: np.random.Generator, label: float) -> Example:
    """The label is the number of things that both sentences name."""
    things = _pick(generator, THINGS, 5)
    shared = int(label)
    second = [*things[:shared], "but", "no", *things[shared:]]
    return " ".join(things) + " .", " ".join(second) + " .", label


def _qqp(generator: np.random.Generator, label: float) -> Example:
    """Duplicates ask who did it to the animal; else the second asks what the animal did."""
    person, animal, verb = _scene(generator)
    clause = f"{person} {verb}" if label else f"{verb} {person}"
    first = f"is it true that {person} {verb} the {animal} ?"
    second = f"was it the {animal} that {clause} ?"
    return first, second, label


def _nli(generator: np.random.Generator, label: float, animals: Sequence[str] = ANIMALS) -> Example:
    """Entailment restates, contradiction negates, neutral adds when or how.

    Words alone tell them apart.
    """
    subject, object_ = _pick(generator, animals, 2)
    verb = _pick_word(generator, VERBS)
    adjective = _pick_word(generator, ADJECTIVES)
    adverb = _pick_word(generator, ADVERBS)
    negation = _pick_word(generator, NEGATIONS)
    first_words = ("indeed", adverb, negation)
    premise = f"the {adjective} {subject} {verb} the {object_} ."
    hypothesis = f"{first_words[int(label)]} the {subject} {verb} the {object_} ."
    return premise, hypothesis, label


def _qnli(generator: np.random.Generator, label: float) -> Example:
    """The sentence answers `whom ... the X ?` if X is the one who did it. Label 0 is entailment."""
    person, animal, verb = _scene(generator)
    sentence = f"{person} {verb} the {animal} ." if label else f"the {animal} {verb} {person} ."
    return f"whom has the {animal} {verb} ?", sentence, label


def _rte(generator: np.random.Generator, label: float) -> Example:
    """Entailed: it was the person who did it, not the animal. Label 0 is entailment."""
    person, animal, verb = _scene(generator)
    adverb = _pick_word(generator, ADVERBS)
    clause = f"the {animal} {verb} {person}" if label else f"{person} {verb} the {animal}"
    return f"{clause} {adverb} .", f"a person {verb} an animal .", label


def _wnli(generator: np.random.Generator, label: float) -> Example:
    """The pronoun is the one whose name fits it: here always the man."""
    man = _pick_word(generator, HE)
    woman = _pick_word(generator, SHE)
    verb = _pick_word(generator, VERBS)
    adjective = _pick_word(generator, ADJECTIVES)
    person = man if label else woman
    first = f"{man} {verb} {woman} because he was {adjective} ."
    return first, f"{person} was {adjective} .", label


MAKERS: dict[str, Maker] = {
    "cola": _cola,
    "sst2": _sst2,
    "mrpc": _mrpc,
    "stsb": _stsb,
    "qqp": _qqp,
    "mnli": _nli,
    "qnli": _qnli,
    "rte": _rte,
    "wnli": _wnli,
    "ax": _nli,
}
