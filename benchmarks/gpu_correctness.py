"""Does a GPU compute what a CPU computes, and does a recorded step compute what the step itself does?"""

import tempfile
import warnings
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from glue_bench.training import engine as engines
from glue_bench.training.engine import ENGINES
from glue_bench.training.pretrain import pretrain
from glue_bench.training.pretrained import PretrainingFolder
from glue_bench.training.quiet import quiet_libraries
from glue_bench.training.replay import WARM_UPS, _run_aside
from glue_bench.training.runtime import computing
from gpu_cells import LONGEST, Cases, Plan, gradients, losses_of_one_batch, pretraining_inputs, relative_errors, trace
from gpu_results import Figures, Item

CPU = torch.device("cpu")
LONG = 256  # tokens of an example: of the lengths that batches are padded to, those from 96 on have their keys split
CLOSE, FAR = 1e-4, 1e-2  # of the first five steps, of fifty
BF16 = 2.0**-8  # its unit roundoff


def gradients_of_the_first_step(plan: Plan) -> dict[str, Item]:
    """Against the CPU in float32, without dropout and TF32."""
    cases = Cases(steps=1)

    def check(variant: str) -> Figures:
        case = cases.case(variant)
        with computing(plan.device, "float32"):
            model = case.classifier()
            (loss, expected), (found_loss, found) = (gradients(case, model, on) for on in (CPU, plan.torch_device))
        figures = {"loss_error": abs(found_loss - loss) / abs(loss), **relative_errors(found, expected)}
        return {"figures": figures, "limits": dict.fromkeys(figures, CLOSE)}

    return _of_every_variant(plan, check)


def losses_of_fifty_steps(plan: Plan) -> dict[str, Item]:
    """Recorded and compiled steps on the GPU against the CPU's, in float32 without dropout."""
    cases = Cases(steps=6 if plan.tiny else 50)

    def check(variant: str) -> Figures:
        case = cases.case(variant)
        with computing(plan.device, "float32"), Warned() as warned:
            here = trace(case, plan.torch_device)
            ENGINES.drop()
            there = trace(case, CPU)
        figures = {
            "five_steps": here.error(there, 5),
            "fifty_steps": here.error(there),
            "logits": float(np.abs(here.logits - there.logits).max() / np.abs(there.logits).max()),
            **warned.figures,
        }
        limits = {"five_steps": CLOSE, "fifty_steps": FAR, "logits": FAR, **dict.fromkeys(warned.figures, 0)}
        return {"figures": figures, "limits": limits}

    return _of_every_variant(plan, check)


def bf16_against_float32(plan: Plan) -> dict[str, Item]:
    """The first step on the same device: its loss within bf16's rounding, its gradients within a few roundings."""
    cases = Cases(steps=1)

    def check(variant: str) -> Figures:
        case = cases.case(variant)
        with computing(plan.device, "float32"):
            model = case.classifier()
            loss, expected = gradients(case, model, plan.torch_device)
            with torch.autocast(plan.device, torch.bfloat16, cache_enabled=False):
                lower_loss, found = gradients(case, model, plan.torch_device)
        errors = relative_errors(found, expected)
        figures = {"loss_error": abs(lower_loss - loss) / abs(loss), "gradient_error": errors["gradient_error"]}
        return {"figures": figures, "limits": {"loss_error": BF16, "gradient_error": 8 * BF16}}

    return _of_every_variant(plan, check)


def recorded_against_run(plan: Plan) -> dict[str, Item]:
    """The same compiled steps, recorded and not, with dropout and in the precision that a GPU takes: bit for bit.

    A second time in the same engine, too, and in a new one. If `run_once_more` differs as well, the device's own
    kernels do not give the same bits twice, and recording is not to blame. Two of them are known to be like that. The
    gradient of the choice by distance in `shaw` is summed in any order. So is that of attention where torch splits the
    keys, which it does in batches padded to more than 64 tokens, and to more than 128 where rows times heads are 256 or
    more. In a case of its own with LONG tokens it is only counted how much differs.
    """
    steps = 3 if plan.tiny else 10
    short, long = (Cases(steps=steps, dropout=0.1, longest=longest) for longest in (LONGEST, LONG))

    def check(variant: str, cases: Cases = short) -> Figures:
        case = cases.case(variant)
        with computing(plan.device, "bf16" if plan.precision == "bf16" else "float32"), Warned() as warned:
            first, again = trace(case, plan.torch_device), trace(case, plan.torch_device)
            ENGINES.drop()
            with mock.patch.object(engines, "replayed", _unrecorded):
                run, rerun = trace(case, plan.torch_device), trace(case, plan.torch_device)
            ENGINES.drop()
            anew = trace(case, plan.torch_device)
            still = losses_of_one_batch(case, plan.torch_device, 3)
        figures = {
            "second_cell": again.differing(first),
            "new_engine": anew.differing(first),
            "run_not_recorded": run.differing(first),
            "run_once_more": rerun.differing(run),
            "dropout_is_stuck": 3 - len(set(still)),
            **warned.figures,
        }
        limited = figures if cases is short else ("dropout_is_stuck", *warned.figures)
        return {"figures": figures, "limits": dict.fromkeys(limited, 0)}

    of_long = {f"{variant}, up to {LONG} tokens": partial(check, variant, long) for variant in plan.variants[:1]}
    return _of_every_variant(plan, check) | of_long


def pretraining_losses(plan: Plan) -> dict[str, Item]:
    """Masked-LM pretraining against the CPU in float32 without dropout."""
    inputs = pretraining_inputs(5 if plan.tiny else 50, 16)

    def losses(variant: str, device: str) -> np.ndarray:
        arm = next(arm for arm in inputs.experiment.arms if arm.variant == variant)
        start, task = inputs.initial(arm), inputs.pretraining_task(arm)
        with computing(device, "float32"), tempfile.TemporaryDirectory() as folder:
            record = pretrain(start, task, PretrainingFolder(Path(folder), {})).facts
        return np.array([point["train_loss"] for point in record["losses"]])

    def check(variant: str) -> Figures:
        here, there = losses(variant, plan.device), losses(variant, "cpu")
        errors = np.abs(here - there) / there
        figures = {"five_steps": float(errors[:5].max()), "fifty_steps": float(errors.max())}
        return {"figures": figures, "limits": {"five_steps": CLOSE, "fifty_steps": FAR}}

    return _of_every_variant(plan, check)


class Warned(warnings.catch_warnings):
    """Counts what the engine warns of: steps that were not recorded, blocks that were not compiled."""

    def __init__(self) -> None:
        super().__init__(record=True)

    def __enter__(self) -> Any:
        self.said = super().__enter__()
        warnings.simplefilter("always")
        return self

    @property
    def figures(self) -> dict[str, int]:
        """Both counts."""
        texts = [str(warning.message) for warning in self.said]
        counted = {"not_recorded": "without CUDA graphs", "not_compiled": "without torch.compile"}
        return {name: sum(words in text for text in texts) for name, words in counted.items()}


def _of_every_variant(plan: Plan, check: Any) -> dict[str, Item]:
    quiet_libraries()
    return {variant: partial(check, variant) for variant in plan.variants}


def _unrecorded(step: Any, device: torch.device, _: Any) -> Any:
    """`replayed` without a recording."""
    if device.type == "cuda":
        _run_aside(step, WARM_UPS)
    return step
