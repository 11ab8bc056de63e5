"""An experiment: arms, tasks and seeds, and how tables compare them.

docs/reference/experiment.md explains each key.
"""

from collections.abc import Iterator
from functools import partial
from operator import attrgetter
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StringConstraints

from glue_bench.config.own_task import OwnTask, add_own_tasks
from glue_bench.config.section import Section, SectionWithNewKeys
from glue_bench.config.settings import (
    MAX_LIMIT,
    MAX_POSITIONS,
    SCRATCH,
    Finetuning,
    LearningRate,
    Place,
    PretrainingSettings,
    Seeds,
    distinct,
    known_tasks,
)
from glue_bench.data.label_names import labels_of_task, places_of_classes
from glue_bench.data.tasks import TRAINABLE, find_task
from glue_bench.errors import quoted, unknown

MAX_NAME = 100
NAME_PATTERN = rf"^[A-Za-z0-9][A-Za-z0-9_.-]{{0,{MAX_NAME - 1}}}$"
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
"""The name of an experiment or an arm, which becomes a part of the names of files.

The name of a file may have 255 bytes. Ids and endings take up to 120 of them.
"""
MAX_CELLS = 50_000
"""The largest number of cells of an experiment."""
NATIVE = "native"
"""The variant of arms that take the checkpoint's own model as transformers has it, unchanged."""
AS_PUBLISHED = "as published"
"""The origin of native arms."""
FINISHED = "finished"
"""The variant and the origin of arms whose classifier was fine-tuned elsewhere.

Such a classifier is only scored.
"""
PUBLISHED_MODELS = (NATIVE, FINISHED)
"""The values of `variant` by which an arm takes the checkpoint's own model."""
HELD_OUT = "held_out"
"""The split of the part of train that is held out to choose on."""


def plain_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a variant unchanged, if every file format can hold them.

    Raises ValueError if a value is not a text, a number, true, false or a list of these.
    """
    for key, value in options.items():
        items = value if isinstance(value, list) else [value]
        for item in items:
            if not is_plain(item):
                raise ValueError(
                    f"{quoted(key)}: give a text, a finite number, true or false, "
                    "or a list of these"
                )
            f"{key}{item}".encode()  # raises ValueError for a character that UTF-8 cannot encode
    return options


def is_plain(item: Any) -> bool:
    """Whether a value is None, a text, true, false, or a number that every file format holds."""
    if item is None or isinstance(item, str):
        return True
    return isinstance(item, int | float) and abs(item) < 2**63


def known_entries(entries: list[str | OwnTask]) -> list[str | OwnTask]:
    """Return the entries of `tasks`, with names in GLUE's spelling.

    Tasks that are defined here are known afterwards to `find_task`.

    Raises ValueError as `known_tasks` does.
    """
    own_tasks: list[OwnTask] = []
    names: list[str] = []
    for entry in entries:
        if isinstance(entry, OwnTask):
            own_tasks.append(entry)
        else:
            names.append(entry)
    known_names = iter(known_tasks(names, with_own=False))
    distinct(own_tasks, key=attrgetter("key"))
    add_own_tasks(own_tasks)
    return [next(known_names) if isinstance(entry, str) else entry for entry in entries]


class ScratchEncoder(Section):
    """The sizes of arms that start from fresh weights, and of the vocabulary trained for them."""

    vocab_size: int = Field(8000, ge=100, le=10**6)
    hidden_size: int = Field(128, gt=0, le=2**14)
    num_hidden_layers: int = Field(2, gt=0, le=2**8)
    num_attention_heads: int = Field(2, gt=0, le=2**8)
    intermediate_size: int = Field(512, gt=0, le=2**16)
    max_position_embeddings: int = Field(128, gt=0, le=MAX_POSITIONS)
    hidden_dropout_prob: float = Field(0.1, ge=0, lt=1)
    attention_probs_dropout_prob: float = Field(0.1, ge=0, lt=1)
    initializer_range: float = Field(0.02, gt=0, le=1)
    norm_first: bool = False
    gated: bool = False

    def mistakes(self) -> Iterator[str]:
        if self.hidden_size % self.num_attention_heads:
            yield (
                f"hidden_size {self.hidden_size} is not a multiple of "
                f"num_attention_heads {self.num_attention_heads}"
            )


class Arm(SectionWithNewKeys):
    """One entry of the comparison: a variant, its options, and the checkpoint it starts from.

    A finished arm has a checkpoint for each task: `{task}` and `{TASK}` in its name stand for the
    task (`sst2`, `SST-2`). Its `labels` are the classes of its outputs, in order, for checkpoints
    that do not name them.
    """

    written_if_set = frozenset({"labels"})

    name: Name
    variant: Place
    options: Annotated[dict[str, Any], AfterValidator(plain_options)] = Field({})
    checkpoint: Place
    revision: Place | None = None
    tokenizer: Place | None = None
    embedding_size: int | None = Field(None, gt=0, le=2**14)
    pretraining_rate: LearningRate | None = None
    labels: list[str] | None = None

    @property
    def is_finished(self) -> bool:
        """Whether its classifier is scored as it is, and nothing is trained."""
        return self.variant == FINISHED

    @property
    def is_published_model(self) -> bool:
        """Whether it is the checkpoint's own model, without a variant of this package."""
        return self.variant in PUBLISHED_MODELS

    def checkpoint_of(self, task: str) -> str:
        """Return the checkpoint that it takes on a task."""
        if not self.is_finished:
            return self.checkpoint
        names = {"{task}": task, "{TASK}": find_task(task).title}
        checkpoint = self.checkpoint
        for placeholder, name in names.items():
            checkpoint = checkpoint.replace(placeholder, name)
        return checkpoint

    def mistakes(self) -> Iterator[str]:
        if self.embedding_size is not None and self.checkpoint != SCRATCH:
            yield (
                "embedding_size needs an arm from scratch; the embeddings of "
                f"'{self.checkpoint}' have their own size"
            )
        if self.revision is not None and self.checkpoint == SCRATCH:
            yield f"revision needs a checkpoint of the hub; this arm starts from {SCRATCH}"
        if self.is_published_model and (self.checkpoint == SCRATCH or self.options):
            wrong = "options" if self.options else f"checkpoint '{SCRATCH}'"
            yield (
                f"variant {self.variant} takes a checkpoint as it is published; it knows no {wrong}"
            )
        if self.labels is not None and not self.is_finished:
            yield f"labels need an arm with `variant: {FINISHED}`; other arms learn the classes"


class Resources(Section):
    """The part of a machine that one job takes where jobs run side by side.

    A worker that has made no step for `give_up_after` seconds is given up, and its job is started
    again. If it is None, no worker is given up.
    """

    cpus: int = Field(1, gt=0, le=1024)  # more than any machine has
    gpus: float = Field(0.0, ge=0, le=1024)
    give_up_after: float | None = Field(3600.0, ge=1)

    def mistakes(self) -> Iterator[str]:
        if self.gpus > 1 and not self.gpus.is_integer():
            yield f"gpus {self.gpus:g} is neither a share of one GPU nor a whole number"

    def jobs_on(self, gpus: float) -> int:
        """Count the jobs that run on so many GPUs at a time. A job's share is of a single GPU."""
        if self.gpus < 1:
            return int(gpus) * int(1 / self.gpus)
        return int(gpus / self.gpus)


class Protocol(Section):
    """How a score is chosen among rates and epochs, and made from seeds.

    After a change of the protocol no cell runs again. `epoch: best` is optimistic where the set
    that chooses the epoch is also the set that is reported.
    """

    rate: Literal["best-mean", "best-median", "fixed"] = "best-mean"
    seeds: Literal["mean", "median"] = "mean"
    epoch: Literal["last", "best"] = "last"
    choose_on: Literal["validation", "held_out"] = "validation"
    reference: str | None = None
    primary: Literal["average", "validation_loss"] = "average"
    contrasts: list[Annotated[list[str], Field(min_length=2, max_length=2)]] = Field([])

    @property
    def rate_statistic(self) -> str:
        """The statistic over seeds by which rates compete: "mean" or "median"."""
        return "median" if self.rate == "best-median" else "mean"


class Experiment(SectionWithNewKeys):
    """One experiment file. `plugins` are relative to the current directory."""

    written_if_set = frozenset({"recipe"})

    name: Name
    data: Place
    recipe: str | None = None
    arms: Annotated[
        list[Arm], Field(min_length=1), AfterValidator(partial(distinct, key=attrgetter("name")))
    ]
    listed_tasks: Annotated[list[str | OwnTask], AfterValidator(known_entries)] = Field(
        list(TRAINABLE), min_length=1, alias="tasks"
    )
    seeds: Seeds = Field([1, 2, 3, 4, 5])
    limit: int | None = Field(None, ge=2, le=MAX_LIMIT)
    plugins: list[Place] = Field([])
    scratch: ScratchEncoder = ScratchEncoder()
    pretraining: PretrainingSettings | None = None
    finetuning: Finetuning = Finetuning()
    protocol: Protocol = Protocol()
    resources: Resources = Resources()

    @property
    def tasks(self) -> list[str]:
        """Return the names of its tasks."""
        return [entry if isinstance(entry, str) else entry.key for entry in self.listed_tasks]

    @property
    def own_tasks(self) -> list[OwnTask]:
        """Return the tasks that it defines."""
        return [entry for entry in self.listed_tasks if isinstance(entry, OwnTask)]

    @property
    def trains(self) -> bool:
        """Whether any arm is trained, so that train splits are needed."""
        return not all(arm.is_finished for arm in self.arms)

    def mistakes(self) -> Iterator[str]:
        yield from self._mistakes_of_size()
        yield from self._mistakes_of_finetuning()
        yield from self._mistakes_of_arms()
        yield from self._mistakes_of_labels()
        yield from self._mistakes_of_protocol()

    def _mistakes_of_size(self) -> Iterator[str]:
        """Yield a line for a pretraining longer than its positions, and one for too many cells."""
        checkpoints = 1
        if self.pretraining:
            checkpoints = len(self.pretraining.finetuned_steps) * len(self.pretraining.seeds)
            positions = self.scratch.max_position_embeddings
            if self.pretraining.start == SCRATCH and self.pretraining.length > positions:
                yield (
                    f"pretraining.length {self.pretraining.length} exceeds the {positions} "
                    "positions of scratch"
                )
        rates = sum(len(self.finetuning.rates(task)) for task in self.tasks)
        cells = rates * len(self.arms) * len(self.seeds) * checkpoints
        if cells > MAX_CELLS:
            yield (
                f"{cells:,} cells, but at most {MAX_CELLS:,}: each has files of its own in one "
                "folder"
            )

    def _mistakes_of_finetuning(self) -> Iterator[str]:
        """Yield a line for a start from MNLI without MNLI, and one for several fixed rates."""
        if self.finetuning.from_mnli and "mnli" not in self.tasks:
            yield (
                "finetuning.from_mnli needs mnli among the tasks; add mnli, or set "
                "`finetuning: {from_mnli: []}` to start from the checkpoint"
            )
        tasks = ", ".join(task for task in self.tasks if len(self.finetuning.rates(task)) > 1)
        if self.protocol.rate == "fixed" and tasks:
            yield (
                f"protocol.rate: fixed needs one learning rate a task; {tasks} has several "
                "(set finetuning.tasks.<task>.learning_rates)"
            )

    def _mistakes_of_labels(self) -> Iterator[str]:
        """Yield a line for each arm whose labels do not name the classes of a task."""
        for arm in self.arms:
            if arm.labels is None:
                continue
            for task in self.tasks:
                labels = find_task(task).labels
                outputs = labels_of_task(arm.labels, labels)
                if labels and places_of_classes(outputs, labels) is None:
                    yield (
                        f"labels: {', '.join(arm.labels)} of arm '{arm.name}' do not name each "
                        f"class of {find_task(task).title} once: {', '.join(labels)}"
                    )

    def _mistakes_of_arms(self) -> Iterator[str]:
        """Yield a line for each arm that does not go with `pretraining`."""
        if self.pretraining is None:
            for arm in self.arms:
                if arm.pretraining_rate is not None:
                    yield (
                        f"arm '{arm.name}' has a pretraining_rate, but there is no `pretraining`"
                    )
            return

        if self.pretraining.tokenizer and any(arm.tokenizer for arm in self.arms):
            yield (
                "pretraining.tokenizer cannot be set if arms have a `tokenizer`; leave one of "
                "them out"
            )

        start = self.pretraining.start
        for arm in self.arms:
            if arm.is_published_model:
                yield (
                    f"arm '{arm.name}' is {arm.variant}, taken as it is published; "
                    "it is not pretrained here"
                )
            elif (arm.checkpoint == SCRATCH) != (start == SCRATCH):
                yield (
                    f"arm '{arm.name}' starts from '{arm.checkpoint}', but pretraining is "
                    f"from: {start}; all arms are pretrained alike"
                )

    def _mistakes_of_protocol(self) -> Iterator[str]:
        """Yield a line for each part of `protocol` that does not go with the experiment."""
        protocol = self.protocol
        if protocol.choose_on == HELD_OUT and self.finetuning.held_out_share is None:
            yield (
                "protocol.choose_on: held_out needs finetuning.held_out_share, the part of train "
                "to hold out"
            )

        names = [arm.name for arm in self.arms]
        if protocol.reference is not None and protocol.reference not in names:
            yield str(unknown("arm", protocol.reference, names, "protocol.reference"))

        distinct_pairs = set()
        for pair in protocol.contrasts:
            for name in pair:
                if name not in names:
                    yield str(unknown("arm", name, names, "protocol.contrasts"))
            if len(set(pair)) == 2:
                distinct_pairs.add(frozenset(pair))
        if len(distinct_pairs) < len(protocol.contrasts):
            yield "protocol.contrasts: each needs two different arms, no pair may be given twice"

        if protocol.primary == "validation_loss" and self.pretraining is None:
            yield "protocol.primary: validation_loss needs `pretraining`, which measures it"
