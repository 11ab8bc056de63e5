"""Finished arms: classifiers that were fine-tuned elsewhere, which are scored as they are."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import transformers
from jaxtyping import Bool, Int
from torch import Tensor, nn

from glue_bench.config import FINISHED
from glue_bench.data.tasks import Task
from glue_bench.errors import UserError
from glue_bench.model.native import (
    DRAWN_TEXT,
    READ_LAST,
    LoadedClassifier,
    NativeClassifier,
    NativeStart,
    check_weights,
    longest_text,
)
from glue_bench.model.outputs import match_outputs

FINISHED_SUMMARY = "a classifier that was fine-tuned elsewhere, with its own head"
Load = Callable[[], LoadedClassifier]


@dataclass(frozen=True, kw_only=True)
class FinishedStart(NativeStart):
    """The facts of a classifier with a trained head, without its weights.

    Attributes:
        load: Reads the model with transformers, or with glue-bench if glue-bench trained it.
        outputs: The names of the outputs, in order; empty if the output is a number.
        places: The place of each class of the task among the outputs; (0,) if the output is a
            number.
        ends_in_sigmoid: Whether the authors pass the model's one output through a sigmoid.
    """

    load: Load
    outputs: tuple[str, ...]
    places: tuple[int, ...]
    ends_in_sigmoid: bool

    @property
    def reading(self) -> str:
        """A text that says how texts are given to the model and which outputs it has.

        It is a part of a cell's identity.
        """
        names = f" with outputs {', '.join(self.outputs)}" if self.outputs else ""
        return f"{names}{super().reading.removesuffix(DRAWN_TEXT)}"

    def classifier(self, labels: Sequence[str], seed: int) -> "FinishedClassifier":  # noqa: ARG002
        """Read the model. It gives logits in the order of the task's labels.

        No random number is drawn. The labels were matched when the classifier's facts were read.
        """
        return FinishedClassifier(self)


class FinishedClassifier(NativeClassifier):
    """A finished model whose logits are in the order of the task's labels."""

    def __init__(self, start: FinishedStart) -> None:
        model = start.load().model
        super().__init__(model, reads_segments=start.reads_segments, pads_left=start.pads_left)
        # The address of a weight, and whether it learns, change the rounding of sums. In a file a
        # weight begins anywhere, and the measuring of a budget switches learning off.
        for weight in model.parameters():
            weight.data = weight.data.clone()
            weight.requires_grad = True
        self.places = list(start.places)
        self.end = nn.Sigmoid() if start.ends_in_sigmoid else nn.Identity()

    def forward(
        self,
        input_ids: Int[Tensor, "b l"],
        attention_mask: Bool[Tensor, "b l"] | None,
        segments: Int[Tensor, "b l"],
    ) -> Any:
        """Return the model's output, with `logits` (b, labels) in the order of the task."""
        output = super().forward(input_ids, attention_mask, segments)
        output.logits = self.end(output.logits[:, self.places])
        return output


def read_finished(
    name: str,
    load: Load,
    tokenizer: transformers.PreTrainedTokenizerBase,
    task: Task,
    labels: Sequence[str] | None = None,
) -> FinishedStart:
    """Read the facts that decide how a fine-tuned classifier is scored on a task.

    Args:
        name: The name by which the user calls the checkpoint.
        load: Reads the classifier.
        tokenizer: The arm's tokenizer.
        task: The task that the classifier is scored on.
        labels: The classes of the outputs in order, if the classifier does not name them.

    Returns:
        The facts of the classifier.

    Raises:
        UserError: the checkpoint cannot be read; weights of its head are absent; or its outputs are
            no classes of the task, or their classes are not known.
    """
    loaded = load()
    _check_head(name, loaded)
    check_weights(name, loaded)

    outputs = outputs_of(loaded.config)
    # The model was trained on the default output of its tokenizer, as in transformers' own scripts.
    gives_segments = "token_type_ids" in tokenizer.model_input_names
    places, used_names = match_outputs(name, outputs, task, labels)

    return FinishedStart(
        loaded.config,
        {},
        FINISHED,
        name=name,
        reads_segments=loaded.takes_segments and gives_segments,
        pads_left=loaded.config.model_type in READ_LAST,
        longest=longest_text(loaded, tokenizer),
        load=load,
        outputs=used_names,
        places=places,
        ends_in_sigmoid=task.is_regression and _names_sigmoid(loaded.config),
    )


def outputs_of(config: Any) -> tuple[str, ...]:
    """Return the names of a classifier's outputs, in their order."""
    return tuple(str(config.id2label[place]) for place in range(config.num_labels))


def _check_head(name: str, loaded: LoadedClassifier) -> None:
    """Refuse a checkpoint that lacks weights for its logits, because these would be random."""
    learned = {key for key, _ in loaded.model.named_parameters()}
    absent = learned.intersection(loaded.report["missing_keys"])
    absent.update(key for key, _, _ in loaded.report["mismatched_keys"])
    if absent:
        fault = f"has no trained head: {min(absent)} is absent, or of another shape"
        advice = f"glue-bench run --checkpoint {name} fine-tunes it"
        raise UserError(f"checkpoint '{name}' {fault}; {advice}")


def _names_sigmoid(config: Any) -> bool:
    """Return whether a configuration of sentence-transformers has a sigmoid at the end."""
    settings = getattr(config, "sentence_transformers", None) or {}
    old_name = getattr(config, "sbert_ce_default_activation_function", None)
    activation = settings.get("activation_fn") or old_name or ""
    return str(activation).endswith("Sigmoid")
