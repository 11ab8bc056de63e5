"""What cells and pretrainings start from, each made once per process, and the digests that follow from it."""

import json
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
from transformers import PreTrainedTokenizerBase

from glue_bench.config import NATIVE, SCRATCH, Arm, Experiment, PretrainingSettings
from glue_bench.data.hub import HubSource
from glue_bench.data.sources import open_source
from glue_bench.data.task_data import Source, TaskData, limited
from glue_bench.data.tasks import AX_SPLIT
from glue_bench.errors import DiskError, UserError
from glue_bench.model.checkpoints import Start, graft, read_checkpoint
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.locate import fingerprint, locate
from glue_bench.model.native import NativeStart, read_native
from glue_bench.model.variants.options import canonical_options
from glue_bench.records.store import Store
from glue_bench.records.values import Cell
from glue_bench.training import tokenizers
from glue_bench.training.corpus import Corpus, open_corpus
from glue_bench.training.packing import PackedText, pack
from glue_bench.training.tokens import TokenisedTask, hold_out, tokenise

STARTS = 4  # pretrained weights that a process keeps: a study may have more of them than its memory holds
TRAINED = {
    "scratch": "pretrained",
    "grafted": "adapted",
}  # what an arm is after a pretraining of ours, by its origin


def is_test(split: str) -> bool:
    """Whether a split is only predicted: a test split, or the diagnostic set beside MNLI, which is called like one."""
    return split.startswith("test")


class Inputs:
    """What an experiment's jobs start from, made once, when it is asked for; `folder` is that of its results."""

    def __init__(self, experiment: Experiment, folder: Path) -> None:
        self.experiment, self.store = experiment, Store(folder)
        self._made: dict[tuple[Any, ...], Any] = {}

    def once(self, key: tuple[Any, ...], make: Any, most: int | None = None) -> Any:
        """What `make` returned when this key was asked for the first time; of its kind the last `most` are kept."""
        if key not in self._made:
            self._made[key] = make()
            alike = [other for other in self._made if other[0] == key[0]]
            for other in alike[:-most] if most else ():
                del self._made[other]
        return self._made[key]

    @cached_property
    def source(self) -> Source:
        """The experiment's data source."""
        return open_source(self.experiment.data)

    @cached_property
    def corpus(self) -> Corpus:
        """The text of the experiment's pretraining."""
        return open_corpus(self.pretraining.corpus, self.pretraining.documents)

    def arm(self, name: str) -> Arm:
        """The arm of this name."""
        return next(arm for arm in self.experiment.arms if arm.name == name)

    @property
    def pretraining(self) -> PretrainingSettings:
        """How the experiment's arms are pretrained."""
        assert self.experiment.pretraining is not None, "the experiment has no pretraining"
        return self.experiment.pretraining

    def data(self, task: str) -> TaskData:
        """All splits of a task, or as much of them as the experiment's limits leave."""

        def load() -> TaskData:
            data, own = self.source.load(task), self.experiment.finetuning.limit(task)
            if self.experiment.limit is not None:
                data = limited(data, self.experiment.limit)
            return data if own is None else limited(data, own, train_alone=True)

        return self.once(("data", task), load)

    def train(self, task: str) -> pd.DataFrame:
        """The training split of a task; raises UserError where the data has none."""
        splits = self.data(task).splits
        if "train" not in splits:
            advice = "complete the data or leave the task out of `tasks`"
            raise UserError(
                f"task '{task}' has no train split in '{self.experiment.data}'; {advice}"
            )
        return splits["train"]

    def diagnostic(self, task: str) -> TaskData | None:
        """The diagnostic set that models of `task` predict beside their own splits: AX for MNLI, where there is one.

        None where nothing but validation splits is predicted, and where the hub's cache, offline, holds MNLI alone.
        """

        def load() -> TaskData | None:
            try:
                return self.data("ax") if "ax" in self.source.tasks() else None
            except UserError as error:  # what the hub does not give is not there; a full disk would stop all else, too
                if isinstance(self.source, HubSource) and not isinstance(error, DiskError):
                    return None
                raise

        wanted = task == "mnli" and self.experiment.finetuning.predicts_test
        return self.once(("diagnostic",), load) if wanted else None

    def tokenizer(self, arm: Arm) -> PreTrainedTokenizerBase:
        """The arm's tokenizer; arms from scratch share one."""
        name = arm.tokenizer or arm.checkpoint
        if name != SCRATCH:
            revision = None if arm.tokenizer else arm.revision
            return self.once(
                ("tokenizer", name, revision), lambda: tokenizers.load_tokenizer(name, revision)
            )

        def train_on_corpus() -> PreTrainedTokenizerBase:
            with self.corpus.unchanged():
                return tokenizers.train_tokenizer(self.corpus, self.experiment.scratch.vocab_size)

        def make() -> PreTrainedTokenizerBase:
            vocab_size, pretraining = (
                self.experiment.scratch.vocab_size,
                self.experiment.pretraining,
            )
            if pretraining is None:
                frames = (self.train(task) for task in self.experiment.tasks)
                columns = (
                    frame[name]
                    for frame in frames
                    for name in frame.columns.intersection(["text_a", "text_b"])
                )
                return tokenizers.train_tokenizer(chain.from_iterable(columns), vocab_size)
            if pretraining.tokenizer:
                return tokenizers.load_tokenizer(pretraining.tokenizer)
            return tokenizers.cached_tokenizer(
                f"{self.corpus.digest[:16]}-{vocab_size}", train_on_corpus
            )

        return self.once(("tokenizer", SCRATCH), make)

    def tokenizer_digest(self, arm: Arm) -> str:
        """What decides how the arm's tokenizer splits text; a large one takes 0.1 s."""
        tokenizer = self.tokenizer(arm)
        return self.once(
            ("tokenizer digest", id(tokenizer)), lambda: tokenizers.tokenizer_digest(tokenizer)
        )

    def segments(self, arm: Arm) -> tuple[int, int]:
        """How many segments the arm's tokenizer tells apart, and how many its encoder does; 0 has no table for them."""
        tokenizer = self.tokenizer(arm)
        of_tokenizer = self.once(
            ("segments", id(tokenizer)), lambda: tokenizers.segment_types(tokenizer)
        )
        return of_tokenizer, self.initial(arm).segment_types

    def tokens(self, cell: Cell) -> TokenisedTask:
        """The cell's task under its arm's tokenizer, perhaps with a slice of train held out.

        Test splits are left out unless they are to be predicted; with them MNLI has the diagnostic set as AX_SPLIT.
        """
        arm, settings = self.arm(cell.arm), cell.settings
        of_tokenizer, of_encoder = self.segments(arm)
        length, share, in_one = (
            settings.max_length,
            settings.held_out_share,
            of_encoder == 1 and of_tokenizer > 1,
        )
        key = ("tokens", self.tokenizer_digest(arm), length, in_one)

        def of(task: str) -> TokenisedTask:
            whole = self.once(
                (*key[:3], task), lambda: tokenise(self.data(task), self.tokenizer(arm), length)
            )
            return self.once((*key, task), whole.in_one_segment) if in_one else whole

        tokens = of(cell.task)
        if share:
            tokens = self.once((*key, cell.task, share), lambda: hold_out(tokens, share))
        if not self.experiment.finetuning.predicts_test:
            return replace(
                tokens,
                splits={name: each for name, each in tokens.splits.items() if not is_test(name)},
            )
        if self.diagnostic(cell.task) is None:
            return tokens
        return replace(tokens, splits={**tokens.splits, AX_SPLIT: of("ax").splits["test"]})

    def text(self, arm: Arm) -> dict[str, PackedText]:
        """The text that the arm learns from, `train` and `validation`: equal for all arms with the same tokenizer."""
        settings, tokenizer = self.pretraining, self.tokenizer(arm)
        how = {"pairs": settings.segments == "pairs"}
        make = partial(
            pack, self.corpus, tokenizer, settings.length, settings.validation_share, **how
        )
        return self.once(("packed", self.tokenizer_digest(arm)), make)

    def initial(self, arm: Arm) -> Start:
        """The arm before any pretraining of ours: fresh, a checkpoint as it is or as published, or a graft of one."""

        def make() -> Start:
            name, revision = arm.checkpoint, arm.revision
            if arm.variant == NATIVE:
                return read_native(name, revision, self.tokenizer(arm), self.fingerprint(arm))
            if name != SCRATCH:
                read = partial(read_checkpoint, name, revision, self.fingerprint(arm))
                return graft(
                    self.once(("checkpoint", name, revision), read), arm.variant, arm.options
                )
            tokenizer = self.tokenizer(arm)
            sizes = self.experiment.scratch.model_dump() | {
                "vocab_size": tokenizers.vocabulary_size(tokenizer)
            }
            sizes |= {
                "embedding_size": arm.embedding_size or 0,
                "pad_token_id": tokenizer.pad_token_id,
            }
            options = canonical_options(arm.variant, arm.options)
            config = EncoderConfig(**sizes, variant=arm.variant, variant_options=options)
            return Start(config, {}, SCRATCH, name=SCRATCH)

        return self.once(("initial", arm.name), make)

    def start(self, cell: Cell) -> Start:
        """What it starts from: arm, pretraining or MNLI cell; raises UserError for one that is absent or damaged."""
        arm = self.arm(cell.arm)
        start = self.initial(arm)
        if cell.pretraining is not None and cell.steps is not None:
            checkpoint = self.store.checkpoint(cell.pretraining, cell.steps)
            made = self.store.pretraining(cell.pretraining)
            digest = (made.weights or {}).get(cell.steps) if made else None
            key = ("pretrained", checkpoint, digest)
            start = self.once(key, lambda: self.read_model(checkpoint, arm, digest), most=STARTS)
        if cell.mnli is None:
            return start
        source = self.store.record(cell.mnli)
        folder = self.store.model(source) if source else None
        if source is None or folder is None:
            raise UserError(
                f"'{cell.mnli}', which '{cell.id}' starts from, has left no model; run it again"
            )
        facts = {"origin": start.origin, "exact": start.exact, "variance_kept": start.variance_kept}
        return self.read_model(folder, arm, source.weights, **facts)

    def read_model(self, folder: Path, arm: Arm, digest: str | None, **facts: Any) -> Start:
        """The arm with the weights of a model that a run has left, and `facts` of what that run started from.

        Raises UserError where the weights have another digest.
        """
        if arm.variant == NATIVE:
            start: Start = read_native(str(folder), None, self.tokenizer(arm))
        else:
            start = graft(read_checkpoint(str(folder)), arm.variant, arm.options)
        start = replace(start, **facts)
        if start.digest != digest:
            advice = "delete it, and the same command makes it again"
            raise UserError(
                f"'{folder}' is damaged: its weights are not those of its record; {advice}"
            )
        return start

    def start_digest(self, arm: Arm) -> str:
        """What the arm itself starts from: the checkpoint's files, or the sizes of fresh weights."""
        if arm.checkpoint == SCRATCH:
            sizes = self.experiment.scratch.model_dump_json()
            if arm.embedding_size is not None:
                sizes = json.dumps(json.loads(sizes) | {"embedding_size": arm.embedding_size})
            return f"{SCRATCH} {sizes}"
        start = self.initial(arm) if arm.variant == NATIVE else None
        return self.fingerprint(arm) + (start.reading if isinstance(start, NativeStart) else "")

    def fingerprint(self, arm: Arm) -> str:
        """The digest of the files of the arm's checkpoint, as they were at the first look."""
        name, revision = arm.checkpoint, arm.revision
        return self.once(
            ("fingerprint", name, revision), lambda: fingerprint(locate(name, revision))
        )

    def origin(self, arm: Arm) -> str:
        """How the weights come to be that the arm's cells start from: pretrained, adapted, grafted or scratch."""
        origin = self.initial(arm).origin
        return TRAINED.get(origin, origin) if self.experiment.pretraining else origin
