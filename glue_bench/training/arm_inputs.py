"""The tokenizer and the first weights of each arm, and the digests that follow from them."""

import json
from dataclasses import replace
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from glue_bench.config import FINISHED, NATIVE, SCRATCH, Arm, Experiment
from glue_bench.data.tasks import find_task
from glue_bench.errors import UserError
from glue_bench.model.checkpoints import read_checkpoint
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.finished import FinishedStart, read_finished
from glue_bench.model.grafts import graft
from glue_bench.model.locate import fingerprint, locate
from glue_bench.model.native import LoadedClassifier, NativeStart, load_classifier, read_native
from glue_bench.model.plugins import plugin_digest
from glue_bench.model.start import Start
from glue_bench.model.variants.options import canonical_options
from glue_bench.training import tokenizers
from glue_bench.training.device import Compute
from glue_bench.training.task_inputs import Encoding, TaskInputs
from glue_bench.training.text_inputs import TextInputs

MAX_CLASSIFIERS = 1  # a process may not have memory for all finished models of an experiment
# The origin of an arm after a pretraining of ours, by its origin before.
TRAINED_ORIGINS = {"scratch": "pretrained", "grafted": "adapted"}


class ArmFiles:
    """The tokenizers and checkpoints that arms name. Arms that name the same one share it.

    Every file is read when it is first asked for, and then kept. A tokenizer's digest takes 0.1 s
    if the tokenizer is large; it is kept for each tokenizer object.
    """

    def __init__(self, experiment: Experiment, tasks: TaskInputs, text: TextInputs) -> None:
        self.experiment = experiment
        self.tasks = tasks
        self.text = text
        self.load_tokenizer = cache(tokenizers.load_tokenizer)
        self.tokenizer_digest = cache(tokenizers.tokenizer_digest)
        self.segment_types = cache(tokenizers.segment_types)
        self.fingerprint = cache(self._read_fingerprint)
        self.checkpoint = cache(self._read_checkpoint)
        self.load_classifier = lru_cache(MAX_CLASSIFIERS)(self._load_classifier)

    @cached_property
    def scratch_tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer of arms from scratch: the one of the settings, or one trained on text."""
        vocab_size = self.experiment.scratch.vocab_size
        pretraining = self.experiment.pretraining
        if pretraining is None:
            return tokenizers.train_tokenizer(self._training_texts(), vocab_size)
        if pretraining.tokenizer:
            return tokenizers.load_tokenizer(pretraining.tokenizer)
        key = f"{self.text.corpus.digest[:16]}-{vocab_size}"
        return tokenizers.cached_tokenizer(key, self._train_on_corpus)

    def _training_texts(self) -> list[str]:
        texts: list[str] = []
        for task in self.experiment.tasks:
            frame = self.tasks.train_split(task)
            for name in frame.columns.intersection(["text_a", "text_b"]):
                texts.extend(frame[name])
        return texts

    def _train_on_corpus(self) -> PreTrainedTokenizerBase:
        corpus = self.text.corpus
        with corpus.unchanged():
            return tokenizers.train_tokenizer(corpus, self.experiment.scratch.vocab_size)

    def _read_fingerprint(self, name: str, revision: str | None) -> str:
        return fingerprint(locate(name, revision))

    def _read_checkpoint(self, name: str, revision: str | None) -> Start:
        return read_checkpoint(name, revision, self.fingerprint(name, revision))

    def _load_classifier(
        self, name: str, revision: str | None, tokenizer: PreTrainedTokenizerBase
    ) -> LoadedClassifier:
        return load_classifier(name, revision, tokenizer, self.fingerprint(name, revision))


class ArmInputs:
    """One arm of an experiment, and what its cells and pretrainings start from.

    Every property is made when it is first asked for, and then kept.
    """

    def __init__(self, arm: Arm, files: ArmFiles) -> None:
        self.arm = arm
        self.name = arm.name
        self.files = files
        self.experiment = files.experiment
        self.is_trainable: dict[Compute, bool] = {}  # filled in by `trial.compute_of`

    def on(self, task: str) -> "ArmInputs":  # noqa: ARG002
        """Return the inputs of the arm's cells on a task."""
        return self

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The arm's tokenizer, which arms from scratch share."""
        name = self.arm.tokenizer or self.arm.checkpoint
        if name == SCRATCH:
            return self.files.scratch_tokenizer
        revision = None if self.arm.tokenizer else self.arm.revision
        return self.files.load_tokenizer(name, revision)

    @cached_property
    def tokenizer_digest(self) -> str:
        """The digest of everything that decides how the tokenizer splits text."""
        return self.files.tokenizer_digest(self.tokenizer)

    @cached_property
    def segments(self) -> tuple[int, int]:
        """The numbers of segments of the tokenizer and of the encoder; 0 without a table."""
        return self.files.segment_types(self.tokenizer), self.start.segment_types

    @property
    def file_digests(self) -> dict[str, str | None]:
        """The fields of a job that have digests of the arm's files.

        They are of the source of a user's own variant, the tokenizer and the checkpoint.
        """
        return {
            "plugin": plugin_digest(self.variant),
            "tokenizer": self.tokenizer_digest,
            "checkpoint": self.start_digest,
        }

    @property
    def variant(self) -> str:
        """The variant of the arm's encoder, which a finished model of glue-bench has, too."""
        return self.arm.variant

    def encoding(self, max_length: int) -> Encoding:
        """Return how the arm's texts become tokens; a text has at most `max_length` tokens."""
        tokenizer_segments, encoder_segments = self.segments
        return Encoding(
            tokenizer=self.tokenizer,
            digest=self.tokenizer_digest,
            max_length=max_length,
            in_one_segment=encoder_segments == 1 and tokenizer_segments > 1,
        )

    @cached_property
    def start(self) -> Start:
        """The start of the arm before any pretraining of ours.

        Its weights are fresh, or come from a checkpoint, or from a checkpoint converted to the
        arm's variant.
        """
        name = self.arm.checkpoint
        revision = self.arm.revision
        if self.arm.variant == NATIVE:
            return read_native(name, revision, self.tokenizer, self.fingerprint)
        if name == SCRATCH:
            return Start(self._scratch_config(), {}, SCRATCH, name=SCRATCH)
        checkpoint = self.files.checkpoint(name, revision)
        return graft(checkpoint, self.arm.variant, self.arm.options)

    def _scratch_config(self) -> EncoderConfig:
        """Return the configuration of an arm from scratch, with the size of its vocabulary."""
        sizes = self.experiment.scratch.model_dump()
        sizes["vocab_size"] = tokenizers.vocabulary_size(self.tokenizer)
        return EncoderConfig(
            **sizes,
            embedding_size=self.arm.embedding_size or 0,
            pad_token_id=self.tokenizer.pad_token_id,
            variant=self.arm.variant,
            variant_options=canonical_options(self.arm.variant, self.arm.options),
        )

    def read_model(
        self, folder: Path, digest: str | None, trained_from: Start | None = None
    ) -> Start:
        """Read the weights of a model that a run of this arm has saved.

        Args:
            folder: the folder of the model.
            digest: the digest of the model's weights in the run's record.
            trained_from: the start of the run, if the model keeps the origin of that start.

        Raises:
            UserError: the weights have another digest.
        """
        if self.arm.variant == NATIVE:
            start: Start = read_native(str(folder), None, self.tokenizer)
        else:
            start = graft(read_checkpoint(str(folder)), self.arm.variant, self.arm.options)
        if trained_from is not None:
            start = replace(
                start,
                origin=trained_from.origin,
                exact=trained_from.exact,
                variance_kept=trained_from.variance_kept,
            )
        if start.digest != digest:
            advice = "delete it, and the same command makes it again"
            raise UserError(
                f"'{folder}' is damaged: its weights are not those of its record; {advice}"
            )
        return start

    @cached_property
    def start_digest(self) -> str:
        """The digest of the checkpoint's files, or the sizes of fresh weights."""
        if self.arm.checkpoint == SCRATCH:
            sizes = self.experiment.scratch.model_dump_json()
            if self.arm.embedding_size is not None:
                sizes = json.dumps(json.loads(sizes) | {"embedding_size": self.arm.embedding_size})
            return f"{SCRATCH} {sizes}"
        start = self.start if self.arm.is_published_model else None
        reading = start.reading if isinstance(start, NativeStart) else ""
        return self.fingerprint + reading

    @cached_property
    def fingerprint(self) -> str:
        """The digest of the files of the arm's checkpoint, as they were at the first look."""
        return self.files.fingerprint(self.arm.checkpoint, self.arm.revision)

    @cached_property
    def origin(self) -> str:
        """The origin of the weights of the arm's cells: pretrained, adapted, grafted or scratch."""
        origin = self.start.origin
        if self.experiment.pretraining is None:
            return origin
        return TRAINED_ORIGINS.get(origin, origin)


class FinishedInputs(ArmInputs):
    """A finished arm on one task; each task may have a checkpoint of its own."""

    def __init__(self, arm: Arm, files: ArmFiles, task: str) -> None:
        resolved = arm.model_copy(update={"checkpoint": arm.checkpoint_of(task)})
        super().__init__(resolved, files)
        self.task = task
        self.inputs_by_task: dict[str, ArmInputs] = {task: self}
        self.template = arm

    def on(self, task: str) -> ArmInputs:
        """Return the inputs of the arm's cells on a task."""
        if task not in self.inputs_by_task:
            self.inputs_by_task[task] = FinishedInputs(self.template, self.files, task)
        return self.inputs_by_task[task]

    @cached_property
    def start(self) -> FinishedStart:
        """The start of the cells: the classifier, whose weights are not read yet."""
        arm = self.arm
        load = partial(self.files.load_classifier, arm.checkpoint, arm.revision, self.tokenizer)
        task = find_task(self.task)
        return read_finished(arm.checkpoint, load, self.tokenizer, task, arm.labels)

    @property
    def variant(self) -> str:
        """The variant of the classifier's encoder, if glue-bench has trained the classifier."""
        config = self.start.config
        return config.variant if isinstance(config, EncoderConfig) else self.arm.variant

    @property
    def origin(self) -> str:
        """The origin of finished arms."""
        return FINISHED
