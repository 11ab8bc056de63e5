"""The embedded demo: a made-up mini-GLUE whose labels follow from the text. Never a benchmark.

Seven of the tasks turn on word order alone (ORDER_SENSITIVE): all classes hold the same words, so a
model that sees a bag of words cannot beat chance on them. The remaining two can be solved without
order. Each of the seven has easy and hard examples, so that small encoders differ in how many they
get right.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from zlib import crc32

import numpy as np
import pandas as pd

from glue_bench.data.task_data import Source, TaskData
from glue_bench.data.tasks import TASKS, find_task
from glue_bench.data.tsv import unlabelled

DEMO_SEED = 20210
ROWS = {"train": 1200, "validation": 240, "test": 120}
ORDER_SENSITIVE = ("cola", "sst2", "mrpc", "stsb", "qqp", "qnli", "rte")

HE = ("tom", "peter", "david", "oscar", "henry", "felix")
SHE = ("anna", "maria", "lucy", "emma", "clara", "nora")
PEOPLE = HE + SHE
VERB_WORDS = ("helped", "chased", "called", "thanked", "followed", "watched", "visited", "teased")
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
PASSIVE = 0.35
"""The share of clauses in which the one who did it comes last."""
REVERSED = 0.25
"""The share of first sentences of MRPC in which it is the animal that acts."""
CROWDED = 0.7
"""The share of examples with a second clause, which says nothing of the label."""

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
    generator = np.random.default_rng([DEMO_SEED, crc32(task.encode())])
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
    verb = _pick_word(generator, VERB_WORDS)
    return person, f"{adjective} {animal}", verb


def _clause(agent: str, patient: str, verb: str, *, is_passive: bool) -> str:
    """Say who did it to whom."""
    if is_passive:
        return f"{patient} was {verb} by {agent}"
    return f"{agent} {verb} {patient}"


def _happens(generator: np.random.Generator, share: float) -> bool:
    """Draw whether that happens which happens in a share of the examples."""
    return bool(generator.random() < share)


def _with_another(
    generator: np.random.Generator, clause: str, person: str, animal: str, verb: str
) -> str:
    """Join a clause and one that says nothing of the label, in either order; in a share of cases.

    The other clause has the same animal, somebody else and another verb.
    """
    if not _happens(generator, CROWDED):
        return clause
    other_person = _pick_word(generator, [word for word in PEOPLE if word != person])
    other_verb = _pick_word(generator, [word for word in VERB_WORDS if word != verb])
    pair = [other_person, f"the {animal}"]
    if _happens(generator, 0.5):
        pair.reverse()
    agent, patient = pair
    other = _clause(agent, patient, other_verb, is_passive=_happens(generator, PASSIVE))
    clauses = [clause, other]
    if _happens(generator, 0.5):
        clauses.reverse()
    return " and ".join(clauses)


def _cola(generator: np.random.Generator, label: float) -> Example:
    """Acceptable: a sentence of the grammar. Unacceptable: two neighbours have changed places."""
    subject, object_ = _pick(generator, ANIMALS + SEA_ANIMALS, 2)
    adjectives = _pick(generator, ADJECTIVES, 2)
    verb = _pick_word(generator, VERB_WORDS)
    adverb = _pick_word(generator, ADVERBS)
    words: list[str] = []
    for adjective, noun in zip(adjectives, (subject, object_), strict=True):
        words.append("the")
        if _happens(generator, 0.5):
            words.append(adjective)
        words.append(noun)
    words.insert(words.index(subject) + 1, verb)
    words.append(adverb)
    if not label:
        place = int(generator.integers(len(words) - 1))
        moved = words.pop(place)
        words.insert(place + 1, moved)
    return " ".join(words) + " .", None, label


def _sst2(generator: np.random.Generator, label: float) -> Example:
    """One clause praises, the next blames. The one behind `but` or without `although` decides."""
    parts = _pick(generator, PARTS, 2)
    words = [_pick_word(generator, BAD), _pick_word(generator, GOOD)]
    if not label:
        words.reverse()
    weak, strong = (f"the {part} was {word}" for part, word in zip(parts, words, strict=True))
    # In five of six examples it is the last clause.
    forms = [f"{weak} but {strong}"] * 4
    forms.append(f"although {weak} {strong}")
    forms.append(f"{strong} although {weak}")
    return f"{_pick_word(generator, forms)} .", None, label


def _mrpc(generator: np.random.Generator, label: float) -> Example:
    """Paraphrase: the second sentence keeps who did it to whom. No paraphrase: it swaps them."""
    person, animal, verb = _scene(generator)
    pair = [person, f"the {animal}"]
    if _happens(generator, REVERSED):
        pair.reverse()
    clause = _clause(pair[0], pair[1], verb, is_passive=False)
    first = _with_another(generator, clause, person, animal, verb)
    if not label:
        pair.reverse()
    second = _clause(pair[0], pair[1], verb, is_passive=_happens(generator, PASSIVE))
    return f"{first} .", f"indeed {second} .", label


def _stsb(generator: np.random.Generator, label: float) -> Example:
    """The label is the number of things that the second sentence takes back."""
    things = _pick(generator, THINGS, int(generator.integers(6, 10)))
    kept = len(things) - int(label)
    second = [*things[:kept], "but", "no", *things[kept:]]
    return " ".join(things) + " .", " ".join(second) + " .", label


def _qqp(generator: np.random.Generator, label: float) -> Example:
    """Duplicates ask who did it to the animal; else the second asks what the animal did."""
    person, animal, verb = _scene(generator)
    first = f"is it true that {person} {verb} the {animal} ?"
    if _happens(generator, PASSIVE):
        asked, agent = (f"the {animal}", person) if label else (person, f"the {animal}")
        return first, f"was it {asked} that was {verb} by {agent} ?", label
    clause = f"{person} {verb}" if label else f"{verb} {person}"
    return first, f"was it the {animal} that {clause} ?", label


def _nli(generator: np.random.Generator, label: float, animals: Sequence[str] = ANIMALS) -> Example:
    """Entailment restates, contradiction negates, neutral adds when or how.

    Words alone tell them apart.
    """
    subject, object_ = _pick(generator, animals, 2)
    verb = _pick_word(generator, VERB_WORDS)
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
    agent, patient = (person, f"the {animal}") if label else (f"the {animal}", person)
    clause = _clause(agent, patient, verb, is_passive=_happens(generator, PASSIVE))
    clause = _with_another(generator, clause, person, animal, verb)
    return f"whom has the {animal} {verb} ?", f"{clause} .", label


def _rte(generator: np.random.Generator, label: float) -> Example:
    """Entailed: it was the person who did it, not the animal. Label 0 is entailment."""
    person, animal, verb = _scene(generator)
    adverb = _pick_word(generator, ADVERBS)
    agent, patient = (f"the {animal}", person) if label else (person, f"the {animal}")
    clause = _clause(agent, patient, verb, is_passive=_happens(generator, PASSIVE))
    premise = _with_another(generator, clause, person, animal, verb)
    return f"{premise} {adverb} .", f"a person {verb} an animal .", label


def _wnli(generator: np.random.Generator, label: float) -> Example:
    """The pronoun is the one whose name fits it: here always the man."""
    man = _pick_word(generator, HE)
    woman = _pick_word(generator, SHE)
    verb = _pick_word(generator, VERB_WORDS)
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
