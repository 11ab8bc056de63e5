"""The storage of a fine-tuned model.

A model is saved, and read again by transformers alone. It then has to give the logits that were
scored.
"""

import json
from pathlib import Path

import numpy as np
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from glue_bench.data.tasks import find_task
from glue_bench.errors import first_line
from glue_bench.model.native import NativeStart
from glue_bench.model.start import Start
from glue_bench.training.finetune import Outcome
from glue_bench.training.inputs import Inputs
from glue_bench.training.tokenizers import save_tokenizer

COMPARED_ROWS = 8
KEPT_TOLERANCE = 2e-3  # the part of the largest logit, or of 1; stored logits may be float16
TOLERANCE_IN_BF16 = 5e-2  # another number of rows in a batch rounds differently
SEGMENTS_INPUT = "token_type_ids"
KEEP_ADVICE = "leave finetuning.keep out, and the cell is scored without it"


class KeptModelError(Exception):
    """The saved files do not give the model that was scored."""


def save_kept(folder: Path, outcome: Outcome, inputs: Inputs) -> None:
    """Save the model of a cell and its tokenizer. Both give the stored logits by themselves.

    Args:
        folder: an empty folder.
        outcome: the outcome of the cell.
        inputs: the inputs of the cell's arm.

    Raises:
        KeptModelError: transformers cannot read the folder, or computes other logits of the longest
            rows.
    """
    tokenizer = inputs.arms[outcome.record.cell.arm].tokenizer
    outcome.model.save_pretrained(folder)
    save_tokenizer(tokenizer, folder)
    _set_defaults(folder, tokenizer, outcome.attempt.start)

    try:
        model = AutoModelForSequenceClassification.from_pretrained(folder)
        saved_tokenizer = AutoTokenizer.from_pretrained(folder)
        stored, computed = _compared_logits(model, saved_tokenizer, outcome, inputs)
    except Exception as error:  # transformers may raise anything for a file that it does not expect
        cause = f"{type(error).__name__}: {first_line(error)}"
        raise KeptModelError(
            f"transformers cannot use its kept model ({cause}); {KEEP_ADVICE}"
        ) from error

    largest = max(1.0, float(np.abs(stored).max()))
    tolerance = TOLERANCE_IN_BF16 if outcome.attempt.compute.bf16 else KEPT_TOLERANCE
    difference = float(np.abs(computed - stored).max())
    if not difference <= tolerance * largest:  # this holds for NaN, too
        raise KeptModelError(
            "its kept model does not compute the logits that were scored "
            f"(off by {difference:.2g}); {KEEP_ADVICE}"
        )


def _set_defaults(folder: Path, tokenizer: PreTrainedTokenizerBase, start: Start) -> None:
    """Set the saved tokenizer's defaults to what its model was given: segments, and padding."""
    names = [name for name in tokenizer.model_input_names if name != SEGMENTS_INPUT]
    if start.segment_types > 1:
        names.insert(1, SEGMENTS_INPUT)
    pads_left = isinstance(start, NativeStart) and start.pads_left
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    settings["model_input_names"] = names
    settings["padding_side"] = "left" if pads_left else "right"
    text = json.dumps(settings, indent=2, ensure_ascii=False)
    path.write_text(f"{text}\n", encoding="utf-8")


@torch.no_grad()
def _compared_logits(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, outcome: Outcome, inputs: Inputs
) -> tuple[np.ndarray, np.ndarray]:
    """Return the stored logits of the longest rows, and those that a model computes of their texts.

    Both are (rows, labels).
    """
    cell = outcome.record.cell
    compute = outcome.attempt.compute
    split = find_task(cell.task).validation_splits[0]
    lengths = inputs.tokens(cell).splits[split].lengths
    longest_first = np.argsort(-lengths, kind="stable")
    rows = longest_first[:COMPARED_ROWS]  # so this batch has the padding of the first batch
    frame = inputs.tasks.data(cell.task).splits[split].iloc[rows]
    texts = [frame[column].tolist() for column in ("text_a", "text_b") if column in frame]
    encoded = tokenizer(
        *texts,
        truncation=True,
        max_length=outcome.attempt.padded(int(lengths[rows[0]])),
        padding="max_length",
        return_tensors="pt",
    )
    model.eval().to(compute.device)
    with compute.autocast():
        logits = model(**encoded.to(compute.device)).logits.float()
    return outcome.predictions[split][rows], logits.cpu().numpy()
