"""A trial of a native arm's model, before compute is spent.

The model does with three texts what it will do in cells.
"""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch

from glue_bench.config import NATIVE
from glue_bench.errors import UserError, first_line
from glue_bench.model.fresh import fixed_seed
from glue_bench.model.native import NativeClassifier, NativeStart
from glue_bench.model.start import Start
from glue_bench.training.arm_inputs import ArmInputs
from glue_bench.training.device import Compute
from glue_bench.training.loop import NonFiniteLossError, part_losses, predict, used_rows_only
from glue_bench.training.memory import is_out_of_memory
from glue_bench.training.tokens import Batch, TokenisedTask, collate, encode_split

TRIAL_LABELS = ("first", "second")
# Two logits of one text count as equal up to these parts of the largest difference between texts
# and of the largest logit. In tiny models of 105 families, rounding makes at most 2e-6 of the
# largest logit. Dependence on other texts makes 7e-3 of the difference between texts (ConvBERT's
# convolution over padding) to all of it (FNet).
PART_OF_DIFFERENCE = 1e-3
PART_OF_LARGEST = 1e-5


@dataclass(frozen=True)
class Trial:
    """A native arm's start, and the tokens and batches that its model is tried on.

    `together` has all texts, and each batch of `alone` has one of the short texts.
    """

    start: NativeStart
    tokens: TokenisedTask
    together: Batch
    alone: tuple[Batch, ...]

    def classifier(self) -> NativeClassifier:
        """Return the model under a fresh head."""
        return self.start.classifier(TRIAL_LABELS, seed=0)

    def take_gradients(self, model: NativeClassifier, compute: Compute) -> None:
        """Compute gradients on the batches as a cell does, without an update.

        Raises NonFiniteLossError if a loss is NaN.
        """
        with used_rows_only(model, self.tokens):
            model.to(compute.device).train()
            for batch in (self.together, *self.alone):
                for loss in part_losses(model, batch, compute):
                    if not loss.isfinite():
                        raise NonFiniteLossError(f"its loss is {float(loss)}")
                    loss.backward()
        model.zero_grad()


def make_trial(arm: ArmInputs, start: NativeStart, compute: Compute) -> Trial:
    """Make the trial of an arm at the largest `max_length` of the experiment's tasks.

    Args:
        arm: the arm.
        start: the arm's start.
        compute: where the model will compute.
    """
    experiment = arm.experiment
    tuning = experiment.finetuning
    length = max(tuning.hyperparameters(task, 0.0).max_length for task in experiment.tasks)
    texts = ["One of the many. " * length, "A short one.", "Two."]
    tokenizer = arm.tokenizer
    split = encode_split(pd.DataFrame({"text_a": texts, "label": [0, 1, 0]}), tokenizer, length)
    tokens = TokenisedTask({"train": split}, int(tokenizer.pad_token_id))

    def padded(longest: int) -> int:
        return padded_length(longest, start, compute, length)

    together = collate(split, np.arange(len(texts)), tokens.padding_id, padded)
    short_ones = [split.take(np.array([row])) for row in (1, 2)]
    alone = [collate(text, np.array([0]), tokens.padding_id, padded) for text in short_ones]
    return Trial(start, tokens, together, tuple(alone))


def check_native(arm: ArmInputs, start: NativeStart) -> None:
    """Refuse a model that cannot be trained in float32, or whose outputs mix texts of a batch.

    The model reads the batches, computes gradients, and reads the first batch again. A machine with
    too little memory for that refuses nothing: cells may compute elsewhere, and in smaller parts.
    Raises UserError if the model is refused.
    """
    compute = Compute(torch.device("cpu"), bf16=False, threads=torch.get_num_threads())
    trial = make_trial(arm, start, compute)

    try:
        with fixed_seed():
            model = trial.classifier()
            first = predict(model, [trial.together], compute)
            alone = np.concatenate([predict(model, [batch], compute) for batch in trial.alone])
            trial.take_gradients(model, compute)
            last = predict(model, [trial.together], compute)
    except Exception as error:  # the code of a family may raise anything
        if is_out_of_memory(error):
            return
        cause = f"{type(error).__name__}: {first_line(error)}"
        raise UserError(f"arm '{arm.name}': its model cannot be trained: {cause}") from error

    tolerance = (
        PART_OF_DIFFERENCE * np.ptp(first, axis=0).max() + PART_OF_LARGEST * np.abs(first).max()
    )
    change_in_time = float(np.abs(last - first).max())
    change_in_batch = float(np.abs(alone - first[1:]).max())

    if not change_in_time <= tolerance:  # this holds for NaN, too
        fault = f"when it reads the text again after others, by {change_in_time:.1e}"
    elif not change_in_batch <= tolerance:
        fault = f"beside a longer text than alone, by {change_in_batch:.1e}"
    else:
        return

    advice = "give another checkpoint"
    if getattr(start.config, "attention_type", None) == "block_sparse":  # BigBird
        advice = "set attention_type to original_full in its config.json, or " + advice
    raise UserError(
        f"arm '{arm.name}': its model gives a text other logits {fault}, so that its scores would "
        f"depend on the batches; {advice}"
    )


def compute_of(arm: ArmInputs, compute: Compute) -> Compute:
    """Return where the arm's cells compute.

    It is `compute`, but in float32 if a native arm's model cannot be trained in bf16. Short memory
    is no reason, because a cell then computes smaller parts.
    """
    start = arm.start
    is_native = arm.arm.variant == NATIVE
    if not (compute.bf16 and is_native and isinstance(start, NativeStart)):
        return compute
    if compute not in arm.is_trainable:
        arm.is_trainable[compute] = works_in(compute, make_trial(arm, start, compute))
    return compute if arm.is_trainable[compute] else replace(compute, bf16=False)


def works_in(compute: Compute, trial: Trial) -> bool:
    """Return whether the trial's model computes gradients and finite logits here.

    The model counts as working if only memory is too short.
    """
    try:
        with fixed_seed():
            model = trial.classifier()
            trial.take_gradients(model, compute)
            logits = predict(model, [trial.together], compute)
    except Exception as error:  # as in `check_native`
        return is_out_of_memory(error)
    return bool(np.isfinite(logits).all())


def padded_length(longest: int, start: Start, compute: Compute, max_length: int) -> int:
    """Return the length that a batch is padded to.

    Args:
        longest: the length of the batch's longest example.
        start: the arm's start.
        compute: where the batch is computed.
        max_length: the largest length of an example.
    """
    if start.reads_padding:
        return max_length
    return min(compute.round_up_length(longest), max_length)
