"""What cells share, made once a process: data, tokenizers, starting weights, token arrays."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from glue_bench import recipe as recipes
from glue_bench.benchmark.hub import HubSource
from glue_bench.benchmark.schema import TaskData
from glue_bench.benchmark.sources import Source, open_source
from glue_bench.benchmark.tasks import AX_SPLIT
from glue_bench.config import SCRATCH, Arm, Cell, Experiment, Pretraining
from glue_bench.errors import UserError
from glue_bench.files import check_checksums
from glue_bench.model.checkpoints import Checkpoint, Start, graft, read_checkpoint
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.locate import fingerprint, locate
from glue_bench.model.variants import canonical_options
from glue_bench.training.corpus import Corpus, open_corpus
from glue_bench.training.held_out import hold_out
from glue_bench.training.identity import cell_identity, pretraining_identity, start_digest
from glue_bench.training.packing import pack
from glue_bench.training.pretrain import Task, trained_origin
from glue_bench.training.pretrained import PretrainingFolder
from glue_bench.training.runtime import accelerator
from glue_bench.training.tokenizers import (
    cached_tokenizer,
    load_tokenizer,
    recipe_1_tokenizer_digest,
    segment_types,
    tokenizer_digest,
    train_tokenizer,
)
from glue_bench.training.tokens import TokenisedTask, tokenise
from glue_bench.values import identity_digest


class Workspace:
    """Everything an experiment's cells start from. Nothing is made before it is asked for, or twice.

    `folder` is where pretrained checkpoints are kept; only experiments with pretraining need one.
    """

    def __init__(self, experiment: Experiment, folder: Path | None = None) -> None:
        self.experiment = experiment
        self.folder = folder
        self._made: dict[tuple[Any, ...], Any] = {}

    @cached_property
    def source(self) -> Source:
        """The experiment's data source."""
        return open_source(self.experiment.data)

    @cached_property
    def corpus(self) -> Corpus:
        """The text of the experiment's pretraining."""
        return open_corpus(self.pretraining.corpus)

    def data(self, task: str) -> TaskData:
        """All splits of a task."""
        return self._once(("data", task), lambda: self.source.load(task))

    def diagnostic(self, task: str) -> TaskData | None:
        """The diagnostic set that models of `task` predict beside their own splits: AX for MNLI, where there is one.

        Not part of a cell's identity, because it cannot change what is learnt; records carry its digest instead.
        """
        return self._once(("diagnostic",), self._load_diagnostic) if task == "mnli" else None

    def _load_diagnostic(self) -> TaskData | None:
        if "ax" not in self.source.tasks():
            return None
        try:
            return self.data("ax")
        except UserError:
            # Offline, the hub's cache may hold MNLI alone: no reason to refuse what can be trained.
            if isinstance(self.source, HubSource):
                return None
            raise

    def tokenizer(self, arm: Arm) -> PreTrainedTokenizerBase:
        """The arm's tokenizer; arms from scratch share one."""
        name = arm.tokenizer or arm.checkpoint
        if name == SCRATCH:
            return self._once(("tokenizer", SCRATCH), self._scratch_tokenizer)
        return self._load_tokenizer(name, None if arm.tokenizer else arm.revision)

    def tokenizer_digest(self, arm: Arm, recipe: int | None = None) -> str:
        """What decides how the arm's tokenizer splits text, as a recipe hashes it; a large one takes 0.1 s."""
        tokenizer, digest = self.tokenizer(arm), recipe_1_tokenizer_digest if recipe == 1 else tokenizer_digest
        return self._once(("tokenizer digest", id(tokenizer), digest), lambda: digest(tokenizer))

    def options(self, arm: Arm, recipe: int | None = None) -> dict[str, Any]:
        """The arm's options as a recipe hashes them: the first one as the experiment file has them."""
        return arm.options if recipe == 1 else canonical_options(arm.variant, arm.options)

    def initial(self, arm: Arm) -> Start:
        """The arm before any pretraining of ours: fresh, a checkpoint as it is, or a graft of one."""
        return self._once(("initial", arm.name), lambda: self._make_initial(arm))

    def start(self, arm: Arm, steps: int | None = None, recipe: int | None = None) -> Start:
        """What the arm's cells start from: `initial`, or its checkpoint after `steps` of pretraining under a recipe."""
        if steps is None:
            return self.initial(arm)
        return self._once(("start", arm.name, steps, recipe), lambda: self._pretrained(arm, steps, recipe))

    def cell_start(self, cell: Cell) -> Start:
        """What the cell starts from: its arm, or what its arm's MNLI cell has learnt."""
        start, source = self.start(cell.arm, cell.steps, cell.pretraining_recipe), self.mnli_folder(cell)
        if source is None:
            return start
        if not source.is_dir():
            raise FileNotFoundError(f"the MNLI run that it starts from has left no encoder in '{source}'")
        tuned = graft(_own_checkpoint(source), cell.arm.variant, cell.arm.options)
        return replace(tuned, origin=start.origin, exact=start.exact, variance_kept=start.variance_kept)

    def mnli_folder(self, cell: Cell) -> Path | None:
        """Where the encoder of the MNLI cell is that the cell starts from; None if it starts from its arm."""
        source = self.experiment.mnli_cell(cell)
        return None if source is None else self.encoder_folder(source)

    def encoder_folder(self, cell: Cell) -> Path:
        """Where a cell keeps what its encoder has learnt, if others start from it."""
        assert self.folder is not None, "cells that start from others need a folder"
        return self.folder / f"{cell.arm.name}-{cell.task}-s{cell.seed}-{self.digest(cell)}"

    def origin(self, arm: Arm) -> str:
        """How the arm's weights came to be, once it is pretrained."""
        origin = self.initial(arm).origin
        return trained_origin(origin) if self.experiment.pretraining else origin

    def pretraining_task(self, arm: Arm) -> Task:
        """The text that the arm learns from. Equal for all arms with the same tokenizer."""
        settings, tokenizer = self.pretraining, self.tokenizer(arm)
        key = ("packed", self.tokenizer_digest(arm))
        text = self._once(key, lambda: pack(self.corpus, tokenizer, settings.length, settings.validation_share))
        return Task(text=text, tokenizer=tokenizer, settings=settings)

    def pretraining_folder(self, arm: Arm, recipe: int | None = None) -> PretrainingFolder:
        """Where the arm's pretraining under a recipe, this version's unless given, is kept."""
        assert self.folder is not None, "an experiment with pretraining needs a folder"
        return PretrainingFolder(self.folder / self.pretraining_id(arm, recipe), self.pretraining_identity(arm, recipe))

    def pretraining_id(self, arm: Arm, recipe: int | None = None) -> str:
        """The arm's name and a hash of everything that decides its pretrained weights."""
        return f"{arm.name}-{identity_digest(self.pretraining_identity(arm, recipe))}"

    def pretraining_identity(self, arm: Arm, recipe: int | None = None) -> dict[str, Any]:
        """Everything that decides the arm's pretrained weights, under this version's recipe unless one is given."""
        return pretraining_identity(arm, self, recipe or recipes.RECIPE)

    def tokens(self, cell: Cell) -> TokenisedTask:
        """The cell's task under its arm's tokenizer.

        A slice of train is held out where the cell wants one; beside MNLI's own splits is AX_SPLIT where the data
        has it.
        """
        length, share = cell.hyperparameters.max_length, cell.hyperparameters.held_out_share
        tokens = self._tokens(cell.arm, cell.task, length)
        if share:
            key = (
                "held out",
                self.tokenizer_digest(cell.arm),
                self.has_one_segment(cell.arm),
                cell.task,
                length,
                share,
            )
            tokens = self._once(key, lambda: hold_out(tokens, share))
        if self.diagnostic(cell.task) is None:
            return tokens
        ax = self._tokens(cell.arm, "ax", length).splits["test"]
        return replace(tokens, splits={**tokens.splits, AX_SPLIT: ax})

    def _tokens(self, arm: Arm, task: str, max_length: int) -> TokenisedTask:
        tokenizer = self.tokenizer(arm)
        key = ("tokens", self.tokenizer_digest(arm), task, max_length)
        tokens: TokenisedTask = self._once(key, lambda: tokenise(self.data(task), tokenizer, max_length))
        return self._once((*key, "in one segment"), tokens.in_one_segment) if self.has_one_segment(arm) else tokens

    def segments(self, arm: Arm) -> tuple[int, int]:
        """How many segments the arm's tokenizer tells apart, and how many its encoder does; 0 has no table for them."""
        tokenizer = self.tokenizer(arm)
        told = self._once(("segments", id(tokenizer)), lambda: segment_types(tokenizer))
        return told, self.initial(arm).config.type_vocab_size

    def has_one_segment(self, arm: Arm) -> bool:
        """Whether both texts of a pair are segment 0, because the arm's encoder has no other."""
        told, embedded = self.segments(arm)
        return embedded == 1 < told

    def identity(self, cell: Cell) -> dict[str, Any]:
        """Everything that can change the cell's outcome: what its id is a hash of."""
        return cell_identity(cell, self)

    def digest(self, cell: Cell) -> str:
        """A hash of the cell's identity."""
        return identity_digest(self.identity(cell))

    def fingerprint(self, name: str, revision: str | None) -> str:
        """The digest of a checkpoint's files as they were at the first look."""
        return self._once(("fingerprint", name, revision), lambda: fingerprint(locate(name, revision)))

    def start_digest(self, arm: Arm, steps: int | None = None, recipe: int | None = None) -> str:
        """What the arm starts from: a pretraining, the checkpoint's files, or the shape of fresh weights."""
        return start_digest(arm, self, steps, recipe or recipes.RECIPE)

    @property
    def pretraining(self) -> Pretraining:
        """How the experiment's arms are pretrained."""
        assert self.experiment.pretraining is not None, "the experiment has no pretraining"
        return self.experiment.pretraining

    def _make_initial(self, arm: Arm) -> Start:
        if arm.checkpoint == SCRATCH:
            return Start(self._scratch_config(arm), {}, SCRATCH)
        return graft(self._checkpoint(arm.checkpoint, arm.revision), arm.variant, arm.options)

    def _pretrained(self, arm: Arm, steps: int, recipe: int | None) -> Start:
        checkpoint = _own_checkpoint(self.pretraining_folder(arm, recipe).checkpoint(steps))
        return graft(checkpoint, arm.variant, arm.options)

    def _load_tokenizer(self, name: str, revision: str | None) -> PreTrainedTokenizerBase:
        return self._once(("tokenizer", name, revision), lambda: load_tokenizer(name, revision))

    def _scratch_tokenizer(self) -> PreTrainedTokenizerBase:
        vocab_size, pretraining = self.experiment.scratch.vocab_size, self.experiment.pretraining
        if pretraining is None:
            return train_tokenizer(self._training_texts(), vocab_size)
        if pretraining.tokenizer:
            return self._load_tokenizer(pretraining.tokenizer, None)
        sentences = (sentence for document in self.corpus.documents() for sentence in document)
        return cached_tokenizer(f"{self.corpus.digest[:16]}-{vocab_size}", sentences, vocab_size)

    def _checkpoint(self, name: str, revision: str | None) -> Checkpoint:
        digest = self.fingerprint(name, revision)
        return self._once(("checkpoint", name, revision), lambda: read_checkpoint(name, revision, digest))

    def _scratch_config(self, arm: Arm) -> EncoderConfig:
        tokenizer = self.tokenizer(arm)
        sizes = self.experiment.scratch.model_dump() | {"vocab_size": len(tokenizer)}
        return EncoderConfig(
            **sizes, variant=arm.variant, variant_options=self.options(arm), pad_token_id=tokenizer.pad_token_id
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


def _own_checkpoint(folder: Path) -> Checkpoint:
    """A checkpoint that a sweep has written."""
    try:
        check_checksums(folder)
    except ValueError as error:
        raise UserError(f"{error}; delete its folder, and the same command makes it again") from error
    return read_checkpoint(str(folder))


def check_cell(cell: Cell, workspace: Workspace) -> None:
    """Refuse, before any compute, a cell that cannot run.

    Raises:
        UserError: the data lacks a split, the vocabulary or the segments do not fit, or the length exceeds the
            positions.
    """
    _check_splits(cell, workspace)
    workspace.diagnostic(cell.task)
    _check_vocabulary(cell.arm, workspace)
    _check_segments(cell.arm, workspace)
    positions = workspace.initial(cell.arm).config.max_position_embeddings
    if cell.hyperparameters.max_length > positions:
        raise UserError(
            f"arm '{cell.arm.name}', task '{cell.task}': max_length {cell.hyperparameters.max_length} exceeds the "
            f"{positions} positions of '{cell.arm.checkpoint}'; lower max_length"
        )


def check_pretraining(experiment: Experiment, workspace: Workspace) -> None:
    """Refuse, before any compute, arms that cannot see the same tokens.

    Raises:
        UserError: arms with different tokenizers, sequences longer than the positions, a batch that cannot be shared
            by the processes, or no text to learn from.
    """
    _check_one_tokenizer(experiment, workspace)
    settings, processes = workspace.pretraining, accelerator().num_processes
    if settings.rows < processes:
        raise UserError(
            f"pretraining.batch_tokens {settings.batch_tokens} holds {settings.rows} sequences of length "
            f"{settings.length}, too few for {processes} processes; start fewer, or raise batch_tokens"
        )
    for arm in experiment.arms:
        _check_vocabulary(arm, workspace)
        positions = workspace.initial(arm).config.max_position_embeddings
        if settings.length > positions:
            raise UserError(f"arm '{arm.name}': pretraining.length {settings.length} exceeds its {positions} positions")
    workspace.pretraining_task(experiment.arms[0])


def _check_one_tokenizer(experiment: Experiment, workspace: Workspace) -> None:
    digests = {arm.name: workspace.tokenizer_digest(arm) for arm in experiment.arms}
    first, *others = digests
    for name in others:
        if digests[name] != digests[first]:
            raise UserError(
                f"arms '{first}' and '{name}' have different tokenizers, so they cannot be pretrained on the same "
                "tokens; give both the same, or put them into experiments of their own"
            )


def _check_vocabulary(arm: Arm, workspace: Workspace) -> None:
    embedded, tokens = workspace.initial(arm).config.vocab_size, len(workspace.tokenizer(arm))
    if tokens > embedded:
        raise UserError(
            f"arm '{arm.name}': the tokenizer has {tokens} tokens but the checkpoint '{arm.checkpoint}' embeds "
            f"{embedded}; give the tokenizer it was trained with"
        )


def _check_segments(arm: Arm, workspace: Workspace) -> None:
    told, embedded = workspace.segments(arm)
    if told > embedded > 1:
        raise UserError(
            f"arm '{arm.name}': the tokenizer tells {told} segments apart but the checkpoint '{arm.checkpoint}' embeds "
            f"{embedded}; give the tokenizer it was trained with"
        )


def _check_splits(cell: Cell, workspace: Workspace) -> None:
    task, splits = cell.task, workspace.data(cell.task).splits
    if "train" not in splits or not any(name.startswith("validation") for name in splits):
        raise UserError(
            f"task '{task}' has no train or no validation split in '{workspace.experiment.data}'; "
            "complete the data or leave the task out of `tasks`"
        )
    if cell.hyperparameters.held_out_share and len(splits["train"]) < 2:
        raise UserError(f"task '{task}': the train split has one row, of which nothing can be held out")
