"""What cells share, made once a process: data, tokenizers, starting weights, token arrays."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from transformers import PreTrainedTokenizerBase

from glue_bench.benchmark.schema import TaskData
from glue_bench.benchmark.sources import Source, open_source
from glue_bench.config import SCRATCH, Arm, Cell, Experiment
from glue_bench.errors import UserError
from glue_bench.model.checkpoints import Checkpoint, Start, graft, read_checkpoint
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.locate import fingerprint, locate
from glue_bench.model.plugins import plugin_digest
from glue_bench.training.tokenizers import load_tokenizer, tokenizer_digest, train_tokenizer
from glue_bench.training.tokens import TokenisedTask, tokenise


class Workspace:
    """Everything an experiment's cells start from. Nothing is made before it is asked for, or twice."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self._made: dict[tuple[Any, ...], Any] = {}

    @cached_property
    def source(self) -> Source:
        """The experiment's data source."""
        return open_source(self.experiment.data)

    def data(self, task: str) -> TaskData:
        """All splits of a task."""
        return self._once(("data", task), lambda: self.source.load(task))

    def tokenizer(self, arm: Arm) -> PreTrainedTokenizerBase:
        """The arm's tokenizer; arms from scratch share one trained on the experiment's training texts."""
        name = arm.tokenizer or arm.checkpoint
        if name == SCRATCH:
            vocab_size = self.experiment.scratch.vocab_size
            return self._once(("tokenizer", SCRATCH), lambda: train_tokenizer(self._training_texts(), vocab_size))
        revision = None if arm.tokenizer else arm.revision
        return self._once(("tokenizer", name, revision), lambda: load_tokenizer(name, revision))

    def start(self, arm: Arm) -> Start:
        """The arm's configuration and starting weights."""
        return self._once(("start", arm.name), lambda: self._make_start(arm))

    def tokens(self, arm: Arm, task: str, max_length: int) -> TokenisedTask:
        """A task under the arm's tokenizer."""
        tokenizer = self.tokenizer(arm)
        key = ("tokens", tokenizer_digest(tokenizer), task, max_length)
        return self._once(key, lambda: tokenise(self.data(task), tokenizer, max_length))

    def identity(self, cell: Cell) -> dict[str, Any]:
        """Everything that can change the cell's outcome: what its id is a hash of."""
        plugin = plugin_digest(cell.arm.variant)
        return {
            "arm": cell.arm.name,
            "variant": cell.arm.variant,
            "options": cell.arm.options,
            "start": self.start_digest(cell.arm),
            "tokenizer": tokenizer_digest(self.tokenizer(cell.arm)),
            "task": cell.task,
            "data": self.data(cell.task).digest,
            "hyperparameters": cell.hyperparameters.model_dump(),
            "seed": cell.seed,
        } | ({"plugin": plugin} if plugin else {})

    def start_digest(self, arm: Arm) -> str:
        """What the arm starts from: a digest of the checkpoint's files, or the shape of fresh weights."""
        if arm.checkpoint == SCRATCH:
            return f"{SCRATCH} {self.experiment.scratch.model_dump_json()}"
        return fingerprint(locate(arm.checkpoint, arm.revision))

    def _make_start(self, arm: Arm) -> Start:
        if arm.checkpoint == SCRATCH:
            return Start(self._scratch_config(arm), {}, SCRATCH)
        return graft(self._checkpoint(arm.checkpoint, arm.revision), arm.variant, arm.options)

    def _checkpoint(self, name: str, revision: str | None) -> Checkpoint:
        return self._once(("checkpoint", name, revision), lambda: read_checkpoint(name, revision))

    def _scratch_config(self, arm: Arm) -> EncoderConfig:
        tokenizer = self.tokenizer(arm)
        sizes = self.experiment.scratch.model_dump() | {"vocab_size": len(tokenizer)}
        return EncoderConfig(
            **sizes, variant=arm.variant, variant_options=arm.options, pad_token_id=tokenizer.pad_token_id
        )

    def _training_texts(self) -> Iterator[str]:
        for task in self.experiment.tasks:
            frame = self.data(task).splits["train"]
            for column in frame.columns.intersection(["text_a", "text_b"]):
                yield from frame[column]

    def _once(self, key: tuple[Any, ...], make: Any) -> Any:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]


def check_cell(cell: Cell, workspace: Workspace) -> None:
    """Refuse, before any compute, a cell that cannot run.

    Raises:
        UserError: the data lacks a split, the vocabulary does not fit, or the length exceeds the positions.
    """
    _check_splits(cell.task, workspace)
    config, tokenizer = workspace.start(cell.arm).config, workspace.tokenizer(cell.arm)
    if len(tokenizer) > config.vocab_size:
        raise UserError(
            f"arm '{cell.arm.name}': the tokenizer has {len(tokenizer)} tokens but the checkpoint "
            f"'{cell.arm.checkpoint}' embeds {config.vocab_size}; give the tokenizer it was trained with"
        )
    if cell.hyperparameters.max_length > config.max_position_embeddings:
        raise UserError(
            f"arm '{cell.arm.name}', task '{cell.task}': max_length {cell.hyperparameters.max_length} exceeds the "
            f"{config.max_position_embeddings} positions of '{cell.arm.checkpoint}'; lower max_length"
        )


def _check_splits(task: str, workspace: Workspace) -> None:
    splits = workspace.data(task).splits
    if "train" not in splits or not any(name.startswith("validation") for name in splits):
        raise UserError(
            f"task '{task}' has no train or no validation split in '{workspace.experiment.data}'; "
            "complete the data or leave the task out of `tasks`"
        )
