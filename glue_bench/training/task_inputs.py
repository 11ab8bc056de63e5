"""The data and the tokens of an experiment's tasks."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

import pandas as pd
from transformers import PreTrainedTokenizerBase

from glue_bench.config import Experiment
from glue_bench.data.hub import HubSource
from glue_bench.data.own import HUB, is_in, read_own
from glue_bench.data.sources import open_source
from glue_bench.data.task_data import Source, TaskData, joined_digest, limit_rows
from glue_bench.data.tasks import DIAGNOSTICS, find_task
from glue_bench.errors import DiskError, UserError
from glue_bench.training.tokens import TokenisedTask, hold_out, tokenise


def is_test(split: str) -> bool:
    """Return whether a split is only predicted: a test split, or the diagnostic set of MNLI."""
    return split.startswith("test")


@dataclass(frozen=True)
class Encoding:
    """How the texts of a task become tokens.

    Encodings are compared by the digests of their tokenizers. A text has at most `max_length`
    tokens. With `in_one_segment` all tokens are in segment 0.
    """

    tokenizer: PreTrainedTokenizerBase = field(compare=False, repr=False)
    digest: str
    max_length: int
    in_one_segment: bool


class TaskInputs:
    """The tasks of an experiment. Everything is made when it is first asked for, and then kept.

    `data(task)` returns what `read_data` returned at its first call.
    """

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.predicts_test = experiment.finetuning.predicts_test
        # A cache of a method would outlive the object, so each object has caches of its own.
        self.data: Callable[[str], TaskData] = cache(self.read_data)
        self._encoded = cache(self._encode)
        self._divided = cache(self._divide)
        self._encoded_without_train = cache(self._encode_without_train)

    @cached_property
    def source(self) -> Source:
        """The experiment's data source."""
        return open_source(self.experiment.data)

    @property
    def in_source(self) -> list[str]:
        """The experiment's tasks that are read from its source: the tasks of GLUE."""
        return [task for task in self.experiment.tasks if find_task(task).origin is None]

    @property
    def kind(self) -> str:
        """The kind of the data source, which is not opened if no task is read from it."""
        if self.in_source:
            return self.source.kind
        return HUB if self.experiment.data == HUB else "files"

    def read_data(self, task: str) -> TaskData:
        """Read all splits of a task, and cut them to the experiment's limits."""
        row = find_task(task)
        if row.origin is None:
            data = self.source.load(task)
        else:
            data = read_own(row, self.experiment.data)
        if self.experiment.limit is not None:
            data = limit_rows(data, self.experiment.limit)
        task_limit = self.experiment.finetuning.limit(task)
        if task_limit is not None:
            data = limit_rows(data, task_limit, train_alone=True)
        return data

    def train_split(self, task: str) -> pd.DataFrame:
        """Return the training split of a task. Raises UserError if the data have none."""
        splits = self.data(task).splits
        if "train" not in splits:
            advice = "complete the data or leave the task out of `tasks`"
            raise UserError(
                f"task '{task}' has no train split in '{self.experiment.data}'; {advice}"
            )
        return splits["train"]

    def has_pairs(self, task: str) -> bool:
        """Whether the texts of a task come in pairs."""
        return any("text_b" in frame for frame in self.data(task).splits.values())

    def validation_splits(self, task: str) -> list[pd.DataFrame]:
        """Return the scored splits of a task that the data have."""
        splits = self.data(task).splits
        return [splits[name] for name in find_task(task).validation_splits if name in splits]

    def diagnostics(self, task: str) -> dict[str, TaskData]:
        """Return the diagnostic sets that models of `task` predict, such as AX for MNLI.

        The sets are returned by the names of their splits. There are none if no test split is
        predicted. A set that the data do not have is left out.
        """
        sets: dict[str, TaskData] = {}
        if not self.predicts_test:
            return sets
        for split, name in DIAGNOSTICS.get(task, {}).items():
            data = self._ax if name == "ax" else self._other_diagnostic(name)
            if data is not None:
                sets[split] = data
        return sets

    def diagnostic_digest(self, task: str) -> str | None:
        """Return the digest of the diagnostic sets of a task, or None if it has no such set."""
        return joined_digest([data.digest for data in self.diagnostics(task).values()])

    def _other_diagnostic(self, name: str) -> TaskData | None:
        is_there = is_in(find_task(name), self.experiment.data)
        return self.data(name) if is_there else None

    @cached_property
    def _ax(self) -> TaskData | None:
        """Return the diagnostic set, or None if the source does not have it."""
        try:
            return self.data("ax") if "ax" in self.source.tasks() else None
        except UserError as error:
            # Without a network, the hub's cache may have MNLI alone. An error of a full disk is
            # raised, because it would stop everything else, too.
            if isinstance(self.source, HubSource) and not isinstance(error, DiskError):
                return None
            raise

    def tokens(self, task: str, encoding: Encoding, held_out_share: float | None) -> TokenisedTask:
        """Return the tokens of a task's splits.

        The test splits are left out unless the experiment predicts them. If it does, MNLI also
        has the diagnostic set, as AX_SPLIT, and RTE-SG has AX-b and AX-g.

        Args:
            task: the task's name.
            encoding: how texts become tokens.
            held_out_share: the share of the training examples that becomes a split of its own.
        """
        tokens = self._encoded(task, encoding)
        if held_out_share:
            tokens = self._divided(task, encoding, held_out_share)
        return self._with_asked_splits(tokens, task, encoding)

    def tokens_without_train(self, task: str, encoding: Encoding) -> TokenisedTask:
        """Return the tokens of a task's splits as `tokens` does, without train."""
        tokens = self._encoded_without_train(task, encoding)
        return self._with_asked_splits(tokens, task, encoding)

    def _with_asked_splits(
        self, tokens: TokenisedTask, task: str, encoding: Encoding
    ) -> TokenisedTask:
        """Add the diagnostic set and leave out test splits, as the experiment asks."""
        splits = dict(tokens.splits)
        if not self.predicts_test:
            splits = {name: split for name, split in splits.items() if not is_test(name)}
        for name, data in self.diagnostics(task).items():
            splits[name] = self._encoded(data.task, encoding).splits["test"]
        return replace(tokens, splits=splits)

    def _encode(self, task: str, encoding: Encoding) -> TokenisedTask:
        if encoding.in_one_segment:
            with_segments = replace(encoding, in_one_segment=False)
            return self._encoded(task, with_segments).in_one_segment()
        return tokenise(self.data(task), encoding.tokenizer, encoding.max_length)

    def _encode_without_train(self, task: str, encoding: Encoding) -> TokenisedTask:
        """Return the tokens of the splits that are predicted."""
        if encoding.in_one_segment:
            with_segments = replace(encoding, in_one_segment=False)
            return self._encoded_without_train(task, with_segments).in_one_segment()
        data = self.data(task)
        splits: dict[str, pd.DataFrame] = {}
        for name, frame in data.splits.items():
            if name != "train" and (self.predicts_test or not is_test(name)):
                splits[name] = frame
        return tokenise(replace(data, splits=splits), encoding.tokenizer, encoding.max_length)

    def _divide(self, task: str, encoding: Encoding, held_out_share: float) -> TokenisedTask:
        return hold_out(self._encoded(task, encoding), held_out_share)
