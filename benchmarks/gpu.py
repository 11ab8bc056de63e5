"""Proves or refutes what is said about the GPU: is it right, and how fast is it? In at most 20 minutes of an H100.

    python benchmarks/gpu.py --data GLUE_FOLDER --corpus TEXT_FOLDER --checkpoint checkpoints/all-MiniLM-L6-v2

Parts run one after another, each in a process of its own, and each of their items is in the JSON file before the next
one begins. What fails is there with its traceback, and does not stop the others. The same command goes on with what is
not in the file yet; a part ends after --minutes and says what it did not reach.

    a  gradients, losses, bf16, recorded, pretraining-losses, failures: every variant against the CPU; recorded steps
       against steps that are run, bit for bit; a cell after another, after NaN, after memory was filled up
    b  finetune-minilm, finetune-base: RTE, CoLA and SST-2 against Trainer in bf16, grouped by length
    c  pretrain: masked-LM steps against BertForMaskedLM in the same loop
    d  together: four cells at once on the one GPU
    e  glue: all of GLUE at BERT-base's size, from a few steps of each task

With --tiny small models run on the CPU. That shows that everything works; its figures mean nothing, and a run on a GPU
does not count them as done.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any
from unittest import mock

import typer

from gpu_results import Results, run_items
from gpu_table import to_table

PARTS = {
    "gradients": ("a", "gpu_correctness", "gradients_of_the_first_step"),
    "losses": ("a", "gpu_correctness", "losses_of_fifty_steps"),
    "bf16": ("a", "gpu_correctness", "bf16_against_float32"),
    "recorded": ("a", "gpu_correctness", "recorded_against_run"),
    "pretraining-losses": ("a", "gpu_correctness", "pretraining_losses"),
    "failures": ("a", "gpu_failures", "failures"),
    "finetune-minilm": ("b", "gpu_speed", "finetune_minilm"),
    "finetune-base": ("b", "gpu_speed", "finetune_base"),
    "pretrain": ("c", "gpu_speed", "pretraining"),
    "together": ("d", "gpu_speed", "cells_at_once"),
    "glue": ("e", "gpu_speed", "whole_of_glue"),
}
LOST = 3  # exit status of a part's process that the device no longer answers
GRACE = 60.0  # seconds past a part's time in which its last item may end
TAIL = 4000  # characters of what a process said before it ended


def main(
    out: Annotated[Path, typer.Option(help="The JSON file.")] = Path("gpu.json"),
    data: Annotated[str, typer.Option(help="A folder of GLUE's TSV files, hub, or demo.")] = "demo",
    corpus: Annotated[str, typer.Option(help="English text, a file or folder, or demo.")] = "demo",
    checkpoint: Annotated[str, typer.Option(help="A folder, or scratch-minilm: random weights.")] = "scratch-minilm",
    only: Annotated[str, typer.Option(help="Letters or names of parts, with commas between them.")] = "",
    again: Annotated[bool, typer.Option("--again", help="Run what is in the file already, too.")] = False,
    minutes: Annotated[float, typer.Option(help="At most so many for a part.")] = 8.0,
    tiny: Annotated[bool, typer.Option("--tiny", help="On the CPU, to see that all of it works.")] = False,
    part: Annotated[str, typer.Option(hidden=True)] = "",
    aside: Annotated[str, typer.Option(hidden=True)] = "",
    since: Annotated[float, typer.Option(hidden=True)] = 0.0,
    ends: Annotated[float, typer.Option(hidden=True)] = 0.0,
) -> None:
    """Run the parts and print a table; exit with 1 if anything failed, was refuted or was not reached."""
    import torch

    if not (tiny or torch.cuda.is_available()):
        print(f"no GPU: PyTorch {torch.__version__} sees none; --tiny tries everything on the CPU", file=sys.stderr)
        raise typer.Exit(2)
    values = {"data": data, "corpus": corpus, "checkpoint": checkpoint, "tiny": tiny}
    since = since or time.time()
    results = Results(out, since, again)
    if part:
        raise typer.Exit(0 if run_here(results, part, values | {"aside": aside}, ends) else LOST)
    parts = chosen(only)
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, _caches(folder, data)):
        for name in parts:
            run = run_here if tiny else run_aside  # imports are most of the time of a tiny part
            run(results, name, values | {"aside": folder}, time.time() + 60 * minutes)
    print(to_table(results.content))
    print(f"\nevery figure: {out}")
    raise typer.Exit(0 if all(map(results.good, parts)) else 1)


def chosen(only: str) -> list[str]:
    """Parts by letter or name, in their order."""
    words = {word.strip() for word in only.split(",") if word.strip()}
    known = {name for name, (letter, *_) in PARTS.items() for name in (name, letter)}
    if words - known:
        raise typer.BadParameter(f"--only takes {', '.join(sorted(known))}, not {', '.join(sorted(words - known))}")
    return [name for name, (letter, *_) in PARTS.items() if not words or words & {name, letter}]


def run_here(results: Results, part: str, values: dict[str, Any], deadline: float) -> bool:
    """Run a part's items in this process until a time; false if the device is lost to it."""
    import torch

    from cells import SCRATCH_SIZES
    from gpu_cells import Plan
    from measure import machine

    tiny = values["tiny"]
    if tiny and values["checkpoint"] in SCRATCH_SIZES:
        values = values | {"checkpoint": "scratch-tiny"}
    plan = Plan(**values | {"device": "cpu" if tiny else "cuda", "tiny": tiny})
    _, module, function = PARTS[part]
    with mock.patch.dict(os.environ):
        os.environ["CUDA_VISIBLE_DEVICES"] = "" if tiny else os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
        results.where = {"device": "cpu" if tiny else torch.cuda.get_device_name(), "tiny": tiny}
        items = getattr(import_module(module), function)(plan)
        results.items(part)
        results.content["parts"][part]["startup_seconds"] = round(time.time() - _started(), 2)
        results.content["machine"] = {"words": machine(device=plan.device, precision=plan.precision), **_packed()}
        return run_items(results, part, items, deadline, lambda words: print(words, flush=True))


def run_aside(results: Results, part: str, values: dict[str, Any], ends: float) -> None:
    """Run a part in a process of its own; in another one for the rest, if that one is lost."""
    while True:
        before = results.tried(part)
        status, said = _process(results, part, values, ends)
        results.reload()
        if status is None:
            results.ended_in(part, "not reached", f"it was stopped {GRACE:.0f} s after the part's time was over")
        else:
            results.ended_in(part, "failed", f"its process ended with exit status {status}: {said[-TAIL:]}")
        if status == 0:
            return
        if results.tried(part) == before:
            results.put(part, "start", "failed", error=said[-TAIL:])
            return


def _process(results: Results, part: str, values: dict[str, Any], ends: float) -> tuple[int | None, str]:
    """Exit status, None for one that had to be stopped, and the errors that were said."""
    words = [f"--{name}={value}" for name, value in values.items() if name != "tiny"]
    words += ["--tiny"] * values["tiny"] + ["--again"] * results.again
    words += [f"--part={part}", f"--out={results.path}", f"--since={results.since}", f"--ends={ends}"]
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        process = subprocess.Popen([sys.executable, __file__, *words], stderr=errors)
        try:
            status: int | None = process.wait(max(0.0, ends - time.time()) + GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            status = None
        except BaseException:
            process.kill()
            raise
        errors.seek(0)
        return status, errors.read()


def _packed() -> dict[str, Any]:
    """What `pack.py` has noted, where this was packed: the commit, and what came along."""
    note = Path(__file__).resolve().parent.parent / "pack.json"
    return {"packed": json.loads(note.read_text())} if note.exists() else {}


def _started() -> float:
    """When this process began, as far as the system tells."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
        return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, AttributeError):
        return time.time()


def _caches(folder: str, data: str) -> dict[str, str]:
    """What is compiled and tokenised stays aside, so that a first cell compiles all that it needs."""
    names = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton", "GLUE_BENCH_CACHE": "tokens"}
    offline = {} if data == "hub" else {"HF_HUB_OFFLINE": "1"}
    return {name: f"{folder}/{place}" for name, place in names.items()} | offline


if __name__ == "__main__":
    typer.run(main)
