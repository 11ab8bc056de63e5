"""What cells and pretrainings start from, each made once per process, and the identities that follow from it."""

import json
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
from transformers import PreTrainedTokenizerBase

from glue_bench.config import NATIVE, SCRATCH, Arm, ArmPretraining, Cell, Experiment, Pretraining
from glue_bench.data.hub import HubSource
from glue_bench.data.sources import Source, open_source
from glue_bench.data.task_data import TaskData, limited
from glue_bench.data.tasks import AX_SPLIT, TASKS
from glue_bench.errors import UserError
from glue_bench.files import check_checksums
from glue_bench.model.checkpoints import graft, read_checkpoint
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.locate import fingerprint, locate
from glue_bench.model.native import NativeStart, read_native
from glue_bench.model.plugins import plugin_digest
from glue_bench.model.start import Start
from glue_bench.model.variants.options import canonical_options
from glue_bench.records.identity import CellIdentity, PretrainingIdentity, pretrained_start
from glue_bench.records.predicted import is_test
from glue_bench.training.corpus import Corpus, open_corpus
from glue_bench.training.native import probe
from glue_bench.training.packing import LAYOUT_VERSION as PACKING_VERSION
from glue_bench.training.packing import PackedText, pack
from glue_bench.training.pretrained import PretrainingFolder
from glue_bench.training.tokenizers import (
    cached_tokenizer,
    load_tokenizer,
    recipe_1_tokenizer_digest,
    segment_types,
    tokenizer_digest,
    train_tokenizer,
    vocabulary_size,
)
from glue_bench.training.tokens import TokenisedTask, hold_out, tokenise
from glue_bench.training.words import WordRule, with_shuffled

TRAINED = {"scratch": "pretrained", "grafted": "adapted"}
"""What an arm is after a pretraining of ours, by what it was before."""


class Inputs:
    """What an experiment's cells and pretrainings start from. Nothing is made before it is asked for, or twice.

    `folder` is where encoders are kept that cells start from: those of pretrainings, and those of MNLI cells.
    """

    def __init__(self, experiment: Experiment, folder: Path | None = None) -> None:
        self.experiment = experiment
        self.folder = folder
        self._made: dict[tuple[Any, ...], Any] = {}

    def once(self, key: tuple[Any, ...], make: Any) -> Any:
        """What `make` returned when this key was asked for the first time."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    @cached_property
    def source(self) -> Source:
        """The experiment's data source."""
        return open_source(self.experiment.data)

    @cached_property
    def corpus(self) -> Corpus:
        """The text of the experiment's pretraining."""
        return open_corpus(self.pretraining.corpus, self.pretraining.documents)

    @property
    def pretraining(self) -> Pretraining:
        """How the experiment's arms are pretrained."""
        assert self.experiment.pretraining is not None, "the experiment has no pretraining"
        return self.experiment.pretraining

    def data(self, task: str) -> TaskData:
        """All splits of a task, or as much of them as the experiment's `limit` leaves."""
        if (limit := self.experiment.limit) is None:
            return self.once(("data", task), lambda: self.source.load(task))
        return self.once(("data", task), lambda: limited(self.source.load(task), limit))

    def train(self, task: str) -> pd.DataFrame:
        """The training split of a task.

        Raises:
            UserError: the data has none.
        """
        splits = self.data(task).splits
        if "train" not in splits:
            raise UserError(
                f"task '{task}' has no train split in '{self.experiment.data}'; "
                "complete the data or leave the task out of `tasks`"
            )
        return splits["train"]

    def diagnostic(self, task: str) -> TaskData | None:
        """The diagnostic set that models of `task` predict beside their own splits: AX for MNLI, where there is one.

        It is not part of a cell's identity, because it cannot change what is learnt. None where nothing but validation
        splits is predicted.
        """
        wanted = task == "mnli" and self.experiment.finetuning.predicts_test
        return self.once(("diagnostic",), self._load_diagnostic) if wanted else None

    def _load_diagnostic(self) -> TaskData | None:
        if "ax" not in self.source.tasks():
            return None
        try:
            return self.data("ax")
        except UserError:
            # Offline, the hub's cache may hold MNLI alone, which is no reason to refuse what can be trained.
            if isinstance(self.source, HubSource):
                return None
            raise

    def tokenizer(self, arm: Arm) -> PreTrainedTokenizerBase:
        """The arm's tokenizer; arms from scratch share one."""
        name = arm.tokenizer or arm.checkpoint
        if name == SCRATCH:
            return self.once(("tokenizer", SCRATCH), self._scratch_tokenizer)
        revision = None if arm.tokenizer else arm.revision
        return self.once(("tokenizer", name, revision), lambda: load_tokenizer(name, revision))

    def tokenizer_digest(self, arm: Arm, recipe: int | None = None) -> str:
        """What decides how the arm's tokenizer splits text, as a recipe hashes it; a large one takes 0.1 s."""
        tokenizer, digest = self.tokenizer(arm), recipe_1_tokenizer_digest if recipe == 1 else tokenizer_digest
        return self.once(("tokenizer digest", id(tokenizer), digest), lambda: digest(tokenizer))

    def segments(self, arm: Arm) -> tuple[int, int]:
        """How many segments the arm's tokenizer tells apart, and how many its encoder does; 0 has no table for them."""
        tokenizer = self.tokenizer(arm)
        told = self.once(("segments", id(tokenizer)), lambda: segment_types(tokenizer))
        return told, self.initial(arm).segment_types

    def tokens(self, cell: Cell) -> TokenisedTask:
        """The cell's task under its arm's tokenizer.

        Where the cell asks for it, a slice of train is held out as a split of its own; where the experiment asks for
        it, validation splits are there a second time with shuffled words. Test splits are left out unless
        they are to be predicted; with them MNLI has the diagnostic set as the split AX_SPLIT, if the data has it.
        """
        (told, embedded), settings = self.segments(cell.arm), cell.hyperparameters
        length, share, in_one = settings.max_length, settings.held_out_share, embedded == 1 < told
        key = ("tokens", self.tokenizer_digest(cell.arm), length, in_one)

        def of(task: str) -> TokenisedTask:
            whole = self.once((*key[:3], task), lambda: tokenise(self.data(task), self.tokenizer(cell.arm), length))
            return self.once((*key, task), whole.in_one_segment) if in_one else whole

        tokens = of(cell.task)
        if share:
            tokens = self.once((*key, cell.task, share), lambda: hold_out(tokens, share))
        if self.experiment.finetuning.order:
            names = TASKS[cell.task].validation_splits
            rule = self.once(("words", key[1]), lambda: WordRule.of(self.tokenizer(cell.arm)))
            plain = tokens
            tokens = self.once((*key, cell.task, share, "order"), lambda: with_shuffled(plain, names, rule))
        if not self.experiment.finetuning.predicts_test:
            return replace(tokens, splits={name: each for name, each in tokens.splits.items() if not is_test(name)})
        if self.diagnostic(cell.task) is None:
            return tokens
        return replace(tokens, splits={**tokens.splits, AX_SPLIT: of("ax").splits["test"]})

    def text(self, arm: Arm) -> dict[str, PackedText]:
        """The text that the arm learns from, `train` and `validation`: equal for all arms with the same tokenizer."""
        settings, tokenizer = self.pretraining, self.tokenizer(arm)
        pairs = settings.segments == "pairs"
        return self.once(
            ("packed", self.tokenizer_digest(arm)),
            lambda: pack(self.corpus, tokenizer, settings.length, settings.validation_share, pairs=pairs),
        )

    def initial(self, arm: Arm) -> Start:
        """The arm before any pretraining of ours: fresh, a checkpoint as it is or as published, or a graft of one."""
        return self.once(("initial", arm.name), lambda: self._make_initial(arm))

    def _make_initial(self, arm: Arm) -> Start:
        if arm.variant == NATIVE:
            return read_native(arm.checkpoint, arm.revision, self.tokenizer(arm), self.fingerprint(arm))
        if arm.checkpoint != SCRATCH:
            key = ("checkpoint", arm.checkpoint, arm.revision)
            checkpoint = self.once(key, lambda: read_checkpoint(arm.checkpoint, arm.revision, self.fingerprint(arm)))
            return graft(checkpoint, arm.variant, arm.options)
        tokenizer = self.tokenizer(arm)
        config = EncoderConfig(
            **self.experiment.scratch.model_dump() | {"vocab_size": vocabulary_size(tokenizer)},
            embedding_size=arm.embedding_size or 0,
            variant=arm.variant,
            variant_options=canonical_options(arm.variant, arm.options),
            pad_token_id=tokenizer.pad_token_id,
        )
        return Start(config, {}, SCRATCH, name=SCRATCH)

    def start(self, cell: Cell) -> Start:
        """What the cell starts from: its arm, or what its arm's MNLI cell has learnt.

        Raises:
            FileNotFoundError: the MNLI cell has left no encoder.
            UserError: the checkpoint is damaged.
        """
        run = self.experiment.pretraining_of(cell)
        start = self.pretrained(run, cell.steps) if run and cell.steps else self.initial(cell.arm)
        folder = self.mnli_folder(cell)
        if folder is None:
            return start
        if not folder.is_dir():
            raise FileNotFoundError(f"the MNLI run that it starts from has left no encoder in '{folder}'")
        tuned = self._kept_start(folder, cell.arm)
        return replace(tuned, origin=start.origin, exact=start.exact, variance_kept=start.variance_kept)

    def pretrained(self, run: ArmPretraining, steps: int) -> Start:
        """The arm after so many steps of one of its pretrainings.

        Raises:
            UserError: the checkpoint is damaged.
        """
        folder = self.pretraining_folder(run).checkpoint(steps)
        return self.once(("pretrained", folder), lambda: self._kept_start(folder, run.arm))

    def _kept_start(self, folder: Path, arm: Arm) -> Start:
        """The arm with the weights of a checkpoint that a sweep has written."""
        try:
            check_checksums(folder)
        except ValueError as error:
            raise UserError(f"{error}; delete its folder, and the same command makes it again") from error
        if arm.variant == NATIVE:
            return read_native(str(folder), None, self.tokenizer(arm))
        return graft(read_checkpoint(str(folder)), arm.variant, arm.options)

    def pretraining_folder(self, run: ArmPretraining) -> PretrainingFolder:
        """Where one pretraining is kept."""
        assert self.folder is not None, "an experiment with pretraining needs a folder"
        identity = self.pretraining_identity(run)
        return PretrainingFolder(self.folder / f"{run.arm.name}-{identity.digest}", identity.document())

    def encoder_folder(self, cell: Cell) -> Path:
        """Where a cell keeps what its encoder has learnt, if others start from it."""
        assert self.folder is not None, "cells that start from others need a folder"
        return self.folder / f"{cell.arm.name}-{cell.task}-s{cell.seed}-{self.cell_identity(cell).digest}"

    def mnli_folder(self, cell: Cell) -> Path | None:
        """Where the encoder of the MNLI cell is that the cell starts from; None if it starts from its arm."""
        source = self.experiment.mnli_cell(cell)
        return None if source is None else self.encoder_folder(source)

    def cell_identity(self, cell: Cell) -> CellIdentity:
        """Everything that can change the cell's outcome, under the cell's recipe."""
        source = self.experiment.mnli_cell(cell)
        return CellIdentity(
            **self._of_arm(cell.arm, cell.recipe),
            start=self.cell_start_digest(cell),
            arm=cell.arm.name,
            task=cell.task,
            data=self.data(cell.task).digest,
            hyperparameters=cell.hyperparameters.model_dump(exclude_none=True),
            seed=cell.seed,
            from_mnli=self.cell_identity(source).digest if source else None,
        )

    def pretraining_identity(self, run: ArmPretraining) -> PretrainingIdentity:
        """Everything that decides the weights of one pretraining, under its recipe."""
        settings, scratch = run.settings, self.experiment.scratch
        hashed = settings.hashed()
        # Tokens that are computed at once decide weights where dropout is drawn for each part. Of a checkpoint's own
        # rates of dropout nothing is known here; they are taken to be above zero.
        own = max(scratch.hidden_dropout_prob, scratch.attention_probs_dropout_prob)
        own = own if run.arm.checkpoint == SCRATCH else 1.0
        drops = (own if settings.dropout is None else settings.dropout) > 0
        if run.recipe > 1 and drops and settings.rows_at_once != settings.rows:
            hashed["micro_batch_tokens"] = settings.rows_at_once * settings.length
        return PretrainingIdentity(
            **self._of_arm(run.arm, run.recipe),
            start=self.start_digest(run.arm),
            corpus=self.corpus.digest,
            packing=PACKING_VERSION,
            settings=hashed,
        )

    def _of_arm(self, arm: Arm, recipe: int) -> dict[str, Any]:
        """What the arm itself decides; the source of a variant of the user's own is part of it."""
        return {
            "variant": arm.variant,
            "options": options_of(arm, recipe),
            "tokenizer": self.tokenizer_digest(arm, recipe),
            "plugin": plugin_digest(arm.variant),
            "recipe": recipe,
        }

    def cell_start_digest(self, cell: Cell) -> str:
        """What the cell starts from: a pretraining, or what its arm itself starts from."""
        run = self.experiment.pretraining_of(cell)
        if run is None or cell.steps is None:
            return self.start_digest(cell.arm)
        return pretrained_start(self.pretraining_identity(run).digest, cell.steps)

    def start_digest(self, arm: Arm) -> str:
        """What the arm itself starts from: the checkpoint's files, or the sizes of fresh weights."""
        if arm.checkpoint == SCRATCH:
            sizes = self.experiment.scratch.model_dump_json()
            if arm.embedding_size is not None:
                sizes = json.dumps(json.loads(sizes) | {"embedding_size": arm.embedding_size})
            return f"{SCRATCH} {sizes}"
        start = self.initial(arm) if arm.variant == NATIVE else None
        return self.fingerprint(arm) + (start.said if isinstance(start, NativeStart) else "")

    def fingerprint(self, arm: Arm) -> str:
        """The digest of the files of the arm's checkpoint, as they were at the first look."""
        name, revision = arm.checkpoint, arm.revision
        return self.once(("fingerprint", name, revision), lambda: fingerprint(locate(name, revision)))

    def native_budget(self, arm: Arm, length: int) -> dict[str, Any]:
        """The `probe` of a native arm, whose model has then run on a text of `length` tokens.

        Raises:
            UserError: it cannot.
        """
        start = self.initial(arm)
        assert isinstance(start, NativeStart), "what other arms cost follows from their configuration"
        return self.once(("probe", arm.name, length), lambda: probe(start, self.tokenizer(arm), length, arm.name))

    def origin(self, arm: Arm) -> str:
        """How the weights come to be that the arm's cells start from: pretrained, adapted, grafted or scratch."""
        origin = self.initial(arm).origin
        return TRAINED.get(origin, origin) if self.experiment.pretraining else origin

    def _scratch_tokenizer(self) -> PreTrainedTokenizerBase:
        vocab_size, pretraining = self.experiment.scratch.vocab_size, self.experiment.pretraining
        if pretraining is None:
            frames = (self.train(task) for task in self.experiment.tasks)
            columns = (frame[name] for frame in frames for name in frame.columns.intersection(["text_a", "text_b"]))
            return train_tokenizer(chain.from_iterable(columns), vocab_size)
        if pretraining.tokenizer:
            return load_tokenizer(pretraining.tokenizer)
        return cached_tokenizer(f"{self.corpus.digest[:16]}-{vocab_size}", self.corpus, vocab_size)


def options_of(arm: Arm, recipe: int | None = None) -> dict[str, Any]:
    """The arm's options as a recipe hashes them: the first recipe has them as they stand in the experiment file.

    A native arm has none.
    """
    return arm.options if recipe == 1 or arm.variant == NATIVE else canonical_options(arm.variant, arm.options)
