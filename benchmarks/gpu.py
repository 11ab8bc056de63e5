"""What a GPU gives: is training right on it, how fast is it with and without graphs, and beside transformers' Trainer.

    python benchmarks/gpu.py gpu.json --corpus TEXT --data GLUE --seconds 500

One command for about 25 minutes of a GPU on a machine without a network. The file has each measurement as soon as it is
there; the same command goes on from it, so that it may be cut off, or run in pieces of `--seconds`. Each section has a
budget of time, and what did not fit is listed.

- agreement: every variant against the CPU, from the same weights on the same batches without dropout, in float32 and
  bf16, with operations launched one by one and as graphs
- resume: a pretraining that is stopped half-way and continued, against one that is not; with dropout
- pretraining, fine-tuning: contenders in turns, each in a process of its own: ours with graphs and without, Trainer,
  and Trainer with torch_compile. All compute in bf16. Models have random weights, so scores say nothing
- sharing: several fine-tuning workers on one GPU

Speeds are those of the second half of a round's steps: captures and compilations lie before. Trainer with torch_compile
has one round, and one task: compiling takes most of it, and all its rows have one length. `--tiny` runs all sections
on a CPU, in small, without graphs and without torch_compile. The exit status is 1 where something differs or failed.
"""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

import common
from gpu_report import faults, report
from gpu_run import Run, read
from gpu_scale import FULL, TINY
from gpu_steps import Measurements


def main(
    output: Annotated[
        Path, typer.Argument(help="The JSON file; what it has is not measured again.")
    ],
    corpus: Annotated[str, typer.Option(help="English text: a file or folder, or demo.")] = "demo",
    data: common.Data = "demo",
    seconds: Annotated[
        float | None, typer.Option(help="Begin nothing after so many seconds; run again then.")
    ] = None,
    section: Annotated[
        list[str] | None, typer.Option(help=f"Only these: {', '.join(FULL.budgets)}.")
    ] = None,
    tiny: Annotated[
        bool, typer.Option("--tiny", help="In small, on the CPU, on the demo.")
    ] = False,
) -> None:
    """Measure what is not measured yet, and print all."""
    scale = TINY if tiny else FULL
    common.settle(scale.device, scale.precision, 1 if tiny else None)
    kept = read(output)
    with tempfile.TemporaryDirectory() as aside:
        steps = list(Measurements(scale, corpus, data, Path(aside)).steps())
        chosen = [step for step in steps if not section or step.section in section]
        Run(scale.budgets, data, output, kept).measure(chosen, seconds)
    done = kept["steps"]
    left = [step.key for step in steps if "result" not in done.get(step.key, {})]
    print("\n\n".join(report(scale, kept)))
    if left:
        print(f"\nleft: {len(left)} measurements; the same command goes on ({left[0]}, ...)")
    raise typer.Exit(bool(faults(kept)))


if __name__ == "__main__":
    typer.run(main)
