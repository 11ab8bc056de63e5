"""Our side of the fine-tuning benchmark: the public functions that a sweep calls, and nothing else of it."""

import time
from dataclasses import replace
from typing import Any

from cells import Settings
from glue_bench.config import NATIVE, Arm
from glue_bench.data.tasks import TASKS
from glue_bench.model.checkpoints import Start, graft, read_checkpoint
from glue_bench.model.native import read_native
from glue_bench.records.values import Cell
from glue_bench.training.compute import choose_compute, quiet_libraries
from glue_bench.training.finetune import finetune
from glue_bench.training.inputs import Inputs
from glue_bench.training.tokens import TokenisedTask
from workers import Round


class Given(Inputs):
    """Inputs of which the start and the tokens are given."""

    def __init__(self, inputs: Inputs, start: Start, tokens: TokenisedTask) -> None:
        super().__init__(inputs.experiment)
        self._start, self._tokens = start, tokens

    def initial(self, _arm: Arm) -> Start:
        """The given one."""
        return self._start

    def tokens(self, _cell: Cell) -> TokenisedTask:
        """The given ones."""
        return self._tokens


def make_ours(settings: Settings) -> Round:
    """Tokenise; a round then goes from the checkpoint's folder to scores.

    A sweep reads a checkpoint once for all its cells; here every round reads it again, as the peers do.
    """
    quiet_libraries()
    inputs, compute = Inputs(settings.experiment), choose_compute()
    cell = settings.cell(inputs)
    tokens, tokenizer = inputs.tokens(cell), inputs.tokenizer(inputs.arm(cell.arm))
    scored = {name: tokens.splits[name] for name in TASKS[cell.task].validation_splits}

    def work(steps: int) -> dict[str, Any]:
        train = tokens.splits["train"].take(settings.rows(len(tokens.splits["train"]), steps))
        began = time.perf_counter()
        if settings.variant == NATIVE:
            start: Start = read_native(settings.checkpoint, None, tokenizer)
        else:
            start = graft(read_checkpoint(settings.checkpoint), settings.variant, {})
        given = Given(inputs, start, replace(tokens, splits={"train": train, **scored}))
        facts = finetune(cell, given, compute).facts
        total = time.perf_counter() - began
        return {
            "tokens": int(train.offsets[-1]),
            "training_seconds": facts.training_seconds,
            "total_seconds": total,
            "scores": facts.scores,
        }

    return work
