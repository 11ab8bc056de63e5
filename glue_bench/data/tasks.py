"""TASKS: GLUE's nine tasks and its diagnostic set, one row each; and what other tasks are known.

Sources: Wang et al. 2019, "GLUE" (https://openreview.net/forum?id=rJ4km2R5t7), the dataset card of
`nyu-mll/glue` for split names, label names and label ids, and the classic TSV distribution for file
names and columns. QNLI is version 2.
"""

from collections.abc import Collection

from glue_bench.data.superglue import OTHERS
from glue_bench.data.task import OWN, Split, Task
from glue_bench.errors import unknown


def _splits(train: int, validation: int, test: int, *, header: bool = True) -> dict[str, Split]:
    """Return the usual three splits with these numbers of rows.

    `header` is whether files with labels have one; the test file always has.
    """
    return {
        "train": Split("train.tsv", train, header),
        "validation": Split("dev.tsv", validation, header),
        "test": Split("test.tsv", test),
    }


NLI_2 = ("entailment", "not_entailment")
NLI_3 = ("entailment", "neutral", "contradiction")
BINARY = ("0", "1")

GLUE = (
    Task(
        "CoLA",
        "is the sentence grammatical?",
        _splits(8551, 1043, 1063, header=False),
        texts=("sentence",),
        labels=("unacceptable", "acceptable"),
        written=BINARY,
        metrics=("matthews_correlation",),
    ),
    Task(
        "SST-2",
        "is the review positive?",
        _splits(67349, 872, 1821),
        texts=("sentence",),
        labels=("negative", "positive"),
        written=BINARY,
    ),
    Task(
        "MRPC",
        "are the two sentences paraphrases?",
        _splits(3668, 408, 1725),
        labels=("not_equivalent", "equivalent"),
        written=BINARY,
        metrics=("accuracy", "f1"),
        tsv_texts=("#1 String", "#2 String"),
        tsv_label="Quality",
    ),
    Task(
        "STS-B",
        "how similar are the two sentences, from 0 to 5?",
        _splits(5749, 1500, 1379),
        metrics=("pearson", "spearmanr"),
        tsv_label="score",
    ),
    Task(
        "QQP",
        "do the two questions ask the same?",
        _splits(363846, 40430, 390965),
        texts=("question1", "question2"),
        labels=("not_duplicate", "duplicate"),
        written=BINARY,
        metrics=("accuracy", "f1"),
        tsv_label="is_duplicate",
        skips_malformed_rows=True,
    ),
    Task(
        "MNLI",
        "does the premise entail the hypothesis, contradict it, or neither?",
        {
            "train": Split("train.tsv", 392702),
            "validation_matched": Split("dev_matched.tsv", 9815),
            "validation_mismatched": Split("dev_mismatched.tsv", 9832),
            "test_matched": Split("test_matched.tsv", 9796),
            "test_mismatched": Split("test_mismatched.tsv", 9847),
        },
        texts=("premise", "hypothesis"),
        labels=NLI_3,
        written=NLI_3,
        tsv_texts=("sentence1", "sentence2"),
        tsv_label="gold_label",
        cluster="premise",
    ),
    Task(
        "QNLI",
        "does the sentence answer the question?",
        _splits(104743, 5463, 5463),
        texts=("question", "sentence"),
        labels=NLI_2,
        written=NLI_2,
        cluster="question",
    ),
    Task(
        "RTE",
        "does the first sentence entail the second?",
        _splits(2490, 277, 3000),
        labels=NLI_2,
        written=NLI_2,
    ),
    Task(
        "WNLI",
        "is the pronoun resolved rightly? (adversarial dev set)",
        _splits(635, 71, 146),
        labels=NLI_2[::-1],
        written=BINARY,
    ),
    Task(
        "AX",
        "diagnostic set, test only, predicted by MNLI models",
        {"test": Split("diagnostic.tsv", 1104)},
        texts=("premise", "hypothesis"),
        labels=NLI_3,
        written=NLI_3,
        metrics=("matthews_correlation",),
        tsv_texts=("sentence1", "sentence2"),
    ),
)
TASKS = {task.name: task for task in GLUE}
TRAINABLE: tuple[str, ...] = tuple(name for name, task in TASKS.items() if "train" in task.splits)
COLUMNS = {column: (task.name, split) for task in GLUE for split, column in task.columns.items()}
"""GLUE's leaderboard columns -> (task, split), in table order; MNLI's two splits stay apart."""

AX_SPLIT = "test_ax"
"""The name of the diagnostic set among the splits that a model of MNLI predicts."""
DIAGNOSTICS = {
    "mnli": {AX_SPLIT: "ax"},
    "rtesg": {"test_axb": "axb", "test_axg": "axg"},
}
"""The diagnostic sets that the models of a task predict, by their name among its splits."""


KNOWN: dict[str, Task] = {**TASKS, **{task.name: task for task in OTHERS}}
"""The tasks that this process knows by their names.

They are GLUE's, those of other benchmarks, and those that `add_task` has added.
"""


def add_task(task: Task) -> None:
    """Make a task known to this process, in place of an earlier one of its name.

    Whatever reads an experiment or a plan adds the tasks that it defines. Raises ValueError for the
    name of a task of GLUE.
    """
    if task.name in TASKS:
        raise ValueError(f"'{task.title}' is a task of GLUE; give your task another name")
    KNOWN[task.name] = task


def find_task(name: str, permitted: Collection[str] | None = None) -> Task:
    """Return the task of this name, or of its title, in any case: `rte`, `RTE`, `SST-2`.

    Raises UserError if it is none of those that are `permitted`; by default all that are known.
    """
    task = name.lower().replace("-", "")
    if permitted is None:
        permitted = KNOWN
    if task not in permitted:
        raise unknown("task", name, permitted)
    return KNOWN[task]


def trainable_tasks(*, with_own: bool) -> list[str]:
    """Return the names of the known tasks with a train split, with or without users' own."""
    names: list[str] = []
    for name, task in KNOWN.items():
        if "train" in task.splits and (with_own or task.benchmark != OWN):
            names.append(name)
    return names


def scored_columns() -> dict[str, tuple[str, str]]:
    """Return the task and the split of each leaderboard column of the known tasks, in order."""
    columns: dict[str, tuple[str, str]] = {}
    for task in KNOWN.values():
        for split, column in task.columns.items():
            columns[column] = (task.name, split)
    return columns


def titles(tasks: tuple[str, ...]) -> str:
    """List tasks as tables write them."""
    return ", ".join(KNOWN[task].title for task in tasks)
