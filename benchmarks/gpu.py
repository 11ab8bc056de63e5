"""Is training on a GPU right? Every variant against the CPU.

It trains each variant for some steps on both devices, from the same weights, on the same batches, without dropout:
fine-tuning and pretraining. Losses and logits have to agree in float32, and losses within the rounding of bf16 where
the device computes in it. Then speed is worth measuring:

    python benchmarks/gpu.py && python benchmarks/finetune.py --device cuda --precision bf16 --data FOLDER

`--device cpu` compares the CPU with itself, which shows that the script works. The exit status is 1 where two differ.
"""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import torch
import typer

import common
from glue_bench.config import Experiment, load_experiment
from glue_bench.model.variants import VARIANTS
from glue_bench.sweep.plan import settle_jobs
from glue_bench.training.device import Compute, choose_compute
from glue_bench.training.finetune import finetune
from glue_bench.training.inputs import Inputs
from glue_bench.training.pretrain import pretrain
from glue_bench.training.quiet import quiet_transformers

CPU = Compute(torch.device("cpu"), bf16=False, threads=torch.get_num_threads())
NEAR = 1e-3
"""Of a loss after some steps in float32: sums in another order, carried through the steps."""
ROUNDED = 0.03
"""Of a loss in bf16, whose rounding is 2^-8."""


def main(
    variant: Annotated[
        list[str] | None, typer.Option(help="Only these. May be given several times.")
    ] = None,
    device: Annotated[str, typer.Option(help="cuda, or cpu to try the script.")] = "cuda",
    steps: Annotated[int, typer.Option(help="Steps of each comparison.")] = 20,
    json: common.Json = None,
) -> None:
    """Compare."""
    quiet_transformers()
    compute = choose_compute(device, "float32")
    agreement = {name: compared(name, steps, compute) for name in variant or VARIANTS}
    differing = [name for name, found in agreement.items() if not agrees(found)]
    parts = [f"DIFFERENT from the CPU: {', '.join(differing)}"] if differing else []
    texts = pd.DataFrame.from_dict(agreement, orient="index").map("{:.2g}".format)
    parts += [
        common.table(texts, "variant"),
        common.machine(device=device, precision="float32 and bf16"),
    ]
    common.report(parts, agreement, json)
    raise typer.Exit(bool(differing))


def compared(variant: str, steps: int, compute: Compute) -> dict[str, float]:
    """The largest relative difference of a loss from the CPU's, and of a logit in the size of all."""
    experiment, found = tiny(variant, steps), {}
    _, (fresh, *_) = settle_jobs(Inputs(experiment, Path("none")))
    cell = fresh.model_copy(update={"pretraining": None, "steps": None})  # from the fresh arm
    theirs, ours = (
        finetune(cell, Inputs(experiment, Path("none")), each) for each in (CPU, compute)
    )
    half = finetune(cell, Inputs(experiment, Path("none")), replace(compute, bf16=True))
    expected, *others = (
        [epoch.train_loss for epoch in each.record.history] for each in (theirs, ours, half)
    )
    found["loss"], found["loss in bf16"] = (apart(each, expected) for each in others)
    logits = theirs.predictions["validation"]
    found["logits"] = float(
        np.abs(ours.predictions["validation"] - logits).max() / np.abs(logits).max()
    )
    curves = [masked(experiment, each) for each in (CPU, compute, replace(compute, bf16=True))]
    found["masked-LM loss"], found["masked-LM loss in bf16"] = (
        apart(each, curves[0]) for each in curves[1:]
    )
    return found


def tiny(variant: str, steps: int) -> Experiment:
    """A small encoder without dropout, pretrained on text and fine-tuned on a task of the demo for some steps each."""
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    sizes = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 128,
    }
    text = {
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
    return load_experiment(
        {
            **{
                "name": "gpu",
                "data": "demo",
                "limit": 16 * steps,
                "checkpoint": "scratch",
                "arms": [variant],
            },
            **{
                "scratch": {"vocab_size": 300, "max_position_embeddings": 64} | sizes | still,
                "tasks": ["rte"],
            },
            **{"seeds": [1], "pretraining": text, "finetuning": finetuning},
        }
    )


def masked(experiment: Experiment, compute: Compute) -> list[float]:
    """The losses of a pretraining."""
    with tempfile.TemporaryDirectory() as folder:
        inputs = Inputs(experiment, Path(folder))
        ((job,), _) = settle_jobs(inputs)
        return [point.train_loss for point in pretrain(job, inputs, compute).record.losses]


def apart(found: list[float], expected: list[float]) -> float:
    """The largest relative difference of two curves."""
    return float(np.max(np.abs(np.subtract(found, expected)) / np.abs(expected)))


def agrees(found: dict[str, float]) -> bool:
    """Whether each difference is within what rounding explains."""
    return all(value <= (ROUNDED if "bf16" in name else NEAR) for name, value in found.items())


if __name__ == "__main__":
    typer.run(main)
