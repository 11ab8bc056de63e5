"""What a GPU has to get right: every variant against the CPU, and continued runs against whole ones."""

import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glue_bench.config import Experiment, load_experiment
from glue_bench.sweep.plan import settle_jobs
from glue_bench.training.device import Compute, choose_compute
from glue_bench.training.finetune import finetune
from glue_bench.training.fixed_steps import SHARED, FixedSteps
from glue_bench.training.inputs import Inputs
from glue_bench.training.pretrain import pretrain
from glue_bench.training.quiet import quiet_transformers

CPU = Compute(torch.device("cpu"), bf16=False, threads=torch.get_num_threads())
NEAR = 1e-3
"""Of a loss after some steps in float32: sums in another order, carried through the steps."""
ROUNDED = 0.03
"""Of a loss in bf16, whose rounding is 2^-8."""


def compared(variant: str, steps: int, device: str) -> dict[str, Any]:
    """Relative differences of losses and logits from the CPU's, and whether steps were captured."""
    quiet_transformers()
    experiment = tiny(variant, steps)
    plain = choose_compute(device, "float32")
    losses, logits = finetuned(experiment, CPU)
    curve = masked(experiment, CPU)
    found: dict[str, Any] = {}
    FixedSteps.is_capturable = True
    for graph in (False, True):
        way = "graph" if graph else "one by one"
        for bf16 in (False, True):
            compute = replace(plain, bf16=bf16, graph=graph)
            name = f"{way}, {compute.precision}"
            SHARED.clear()
            own_losses, own_logits = finetuned(experiment, compute)
            found[f"loss, {name}"] = apart(own_losses, losses)
            if not bf16:
                difference = np.abs(own_logits - logits).max() / np.abs(logits).max()
                found[f"logits, {name}"] = float(difference)
            found[f"masked-LM loss, {name}"] = apart(masked(experiment, compute), curve)
    return found | captured(device, graph=True)


def finetuned(experiment: Experiment, compute: Compute) -> tuple[list[float], np.ndarray]:
    """The losses of a cell from fresh weights, and its logits."""
    _, (first, *_) = settle_jobs(Inputs(experiment, Path("none")))
    cell = first.model_copy(update={"pretraining": None, "steps": None})
    outcome = finetune(cell, Inputs(experiment, Path("none")), compute)
    losses = [epoch.train_loss for epoch in outcome.record.history]
    return losses, outcome.predictions["validation"]


def masked(experiment: Experiment, compute: Compute) -> list[float]:
    """The losses of a pretraining."""
    with tempfile.TemporaryDirectory() as folder:
        inputs = Inputs(experiment, Path(folder))
        ((job,), _) = settle_jobs(inputs)
        return [point.train_loss for point in pretrain(job, inputs, compute).record.losses]


def continued(variant: str, steps: int, device: str, *, graph: bool) -> dict[str, Any]:
    """Whether a pretraining with dropout that is stopped half-way and continued ends with equal weights."""
    quiet_transformers()
    FixedSteps.is_capturable = True
    compute = replace(choose_compute(device), graph=graph)
    experiment = tiny(variant, steps, dropout=0.1)
    with tempfile.TemporaryDirectory() as folder:
        whole = weights(experiment, Path(folder, "whole"), compute)
        again = weights(experiment, Path(folder, "again"), compute)
        stopped = weights(experiment, Path(folder, "stopped"), compute, stop=steps // 2)
    result = {"equal": whole == stopped, "repeated run equal": whole == again}
    return result | captured(device, graph=graph)


def captured(device: str, *, graph: bool) -> dict[str, bool]:
    """Whether steps were captured, where they should be."""
    return {"captured": FixedSteps.is_capturable} if graph and device == "cuda" else {}


def weights(experiment: Experiment, folder: Path, compute: Compute, stop: int = 0) -> Any:
    """The digests of a pretraining's weights, which was interrupted after some steps."""
    inputs = Inputs(experiment, folder)
    ((job,), _) = settle_jobs(inputs)

    def interrupt(step: int, _steps: int, _loss: Any) -> None:
        if step == stop:
            raise KeyboardInterrupt

    if stop:
        with suppress(KeyboardInterrupt):
            pretrain(job, inputs, compute, progress=interrupt)
    return pretrain(job, inputs, compute).record.weights


def tiny(variant: str, steps: int, dropout: float = 0.0) -> Experiment:
    """A small encoder, pretrained on text and fine-tuned on a task of the demo for some steps each."""
    scratch = {
        "vocab_size": 300,
        "max_position_embeddings": 64,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 128,
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
    }
    pretraining = {
        "corpus": "demo",
        "steps": steps,
        "batch_tokens": 1024,
        "length": 64,
        "learning_rates": [1e-3],
    }
    finetuning = {
        "learning_rates": [1e-4],
        "epochs": 3,
        "batch_size": 16,
        "max_length": 64,
        "max_steps": steps,
    }
    experiment = {
        "name": "gpu",
        "data": "demo",
        "limit": 16 * steps,
        "checkpoint": "scratch",
        "arms": [variant],
        "scratch": scratch,
        "tasks": ["rte"],
        "seeds": [1],
        "pretraining": pretraining,
        "finetuning": finetuning,
    }
    return load_experiment(experiment)


def apart(found: list[float], expected: list[float]) -> float:
    """The largest relative difference of two curves."""
    return float(np.max(np.abs(np.subtract(found, expected)) / np.abs(expected)))


def worst_difference(found: dict[str, Any]) -> str:
    """The largest difference beyond what rounding explains, in words; "" if there is none."""
    worst = ""
    largest = 1.0
    for name, value in found.items():
        if not isinstance(value, float):
            continue
        share = value / (ROUNDED if "bf16" in name else NEAR)
        if not share <= largest:
            largest = share
            worst = f"{name} differs by {value:.2g}"
    return worst
