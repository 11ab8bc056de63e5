"""How fast cells and pretraining are on a GPU, against transformers and against one another."""

import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from safetensors.torch import load_file, save_file

import whole_glue
from cells import SCRATCH_SIZES, Settings, checkpoint_folder
from glue_bench.data.sources import open_source
from glue_bench.data.tasks import TRAINABLE
from glue_bench.training.memory import peak_bytes, release_memory, reset_peak
from glue_bench.training.quiet import quiet_libraries
from glue_bench.training.runtime import settle_anew
from gpu_cells import Plan
from gpu_results import Figures, Item
from masked import make_ours as make_our_pretraining
from masked import make_same_loop
from ours import make_ours
from peer import make_peer
from pretrain import Settings as Pretraining
from utilisation import flops_per_token, peak_flops
from workers import Round, Worker, set_environment

OURS, TRAINER, COMPILED, SAME_LOOP = "glue-bench", "Trainer", "Trainer, compiled", "BertForMaskedLM, same loop"
TIMED = ("rte", "cola", "sst2")
FEWEST = "wnli"  # the task with the fewest rows to score, which is what a tiny run would spend its time on
MOST_STEPS = 400  # of a cell
LATER = 3  # cells after the first
AT_ONCE = 4
WEIGHTS = "model.safetensors"


def finetune_minilm(plan: Plan) -> dict[str, Item]:
    """Cells of the checkpoint."""
    return _finetune(plan, _checkpoint(plan))


def finetune_base(plan: Plan) -> dict[str, Item]:
    """Cells of BERT-base's size, with random weights."""
    return _finetune(plan, _base(plan))


def _finetune(plan: Plan, checkpoint: str) -> dict[str, Item]:
    """Of each task a first cell and LATER ones: Trainer, bf16 and grouped by length, then ours.

    What a first cell takes beyond a later one is compiling and recording. The tasks of a contender share what is
    compiled, as in a sweep, so the first task has most of it.
    """
    _settle(plan)
    backend = "aot_eager" if plan.tiny else "inductor"
    items: dict[str, Item] = {}
    for task in [FEWEST] if plan.tiny else TIMED:
        settings = Settings(plan.data, task, checkpoint, bf16=plan.precision == "bf16")
        if plan.tiny:
            settings = replace(settings, batch_size=4)
        contenders: dict[str, Callable[[], Round]] = {
            TRAINER: partial(make_peer, settings, "grouped"),
            COMPILED: partial(make_peer, replace(settings, backend=backend), "grouped"),
            OURS: partial(make_ours, settings),
        }
        for name, make in contenders.items():
            items[f"{task}, {name}"] = partial(_timed_cells, plan, settings, make)
    return items


def _timed_cells(plan: Plan, settings: Settings, make: Callable[[], Round]) -> Figures:
    work, steps = _made(make), _steps(plan, settings)
    reset_peak()  # before the first cell: what recorded steps need is allocated once, when they are recorded
    first = work(steps)
    later = [work(steps) for _ in range(1 if plan.tiny else LATER)]
    peak = peak_bytes()
    seconds = median(cell["total_seconds"] for cell in later)
    speed = median(cell["tokens"] / cell["training_seconds"] for cell in later)
    operations = flops_per_token(settings, later[0]["tokens"] / (steps * settings.batch_size))
    figures = {
        "tokens_per_second": speed,
        "of_peak": speed * operations / _peak(plan),
        "peak_mib": None if peak is None else peak / 2**20,
        "first_cell_seconds": first["total_seconds"],
        "later_cell_seconds": seconds,
        "compiling_and_recording_seconds": first["total_seconds"] - seconds,
        "steps": steps,
        "tokens": later[0]["tokens"],
    }
    return {"figures": figures, "cells": [first, *later]}


def pretraining(plan: Plan) -> dict[str, Item]:
    """Masked-LM steps of ours against BertForMaskedLM in the same loop."""
    _settle(plan)
    sizes = {"scratch-tiny": 8000, "scratch-mini": 8000, "scratch-base": 30000}
    items: dict[str, Item] = {}
    for size in list(sizes)[: 1 if plan.tiny else None]:
        rows, length = (4, 32) if plan.tiny else (256, 128)
        settings = Pretraining(plan.corpus, size, rows, length, sizes[size], 0.1, plan.precision == "bf16")
        for name, make in {SAME_LOOP: make_same_loop, OURS: make_our_pretraining}.items():
            items[f"{size.removeprefix('scratch-')}, {name}"] = partial(_timed_steps, plan, settings, make)
    return items


def _timed_steps(plan: Plan, settings: Pretraining, make: Callable[..., Round]) -> Figures:
    work = _made(partial(make, settings, plan.aside))
    work(2 if plan.tiny else 5)
    reset_peak()
    rounds = [work(2 if plan.tiny else 20) for _ in range(1 if plan.tiny else LATER)]
    peak = peak_bytes()
    figures = {
        "tokens_per_second": median(found["tokens"] / found["training_seconds"] for found in rounds),
        "peak_mib": None if peak is None else peak / 2**20,
    }
    return {"figures": figures, "rounds": rounds}


def cells_at_once(plan: Plan) -> dict[str, Item]:
    """Cells of the checkpoint on RTE: several processes at once on the one device, and as many one after another."""
    _settle(plan)
    task = FEWEST if plan.tiny else TIMED[0]
    settings = Settings(plan.data, task, _checkpoint(plan), bf16=plan.precision == "bf16")
    if plan.tiny:
        settings = replace(settings, batch_size=4)
    return {task: partial(_at_once, plan, settings, 2 if plan.tiny else AT_ONCE)}


def _at_once(plan: Plan, settings: Settings, cells: int) -> Figures:
    steps = _steps(plan, settings)
    seconds = {}
    for name, processes in {"one_after_another": 1, "at_once": cells}.items():
        workers = [Worker(make_ours, settings) for _ in range(processes)]
        rounds = [cells // processes] * processes
        try:
            seconds[f"{name}_cold"] = _elapsed(workers, [1] * processes, steps)  # start, compilation, recording
            seconds[name] = _elapsed(workers, rounds, steps)
        finally:
            for worker in workers:
                worker.close()
    return {"figures": {**seconds, "cells": cells, "times_faster": seconds["one_after_another"] / seconds["at_once"]}}


def _elapsed(workers: list[Worker], rounds: list[int], steps: int) -> float:
    """Seconds until every worker has done its rounds, all at the same time."""
    began = time.perf_counter()
    with ThreadPoolExecutor(len(workers)) as pool:
        for done in [pool.submit(_rounds, *pair, steps) for pair in zip(workers, rounds, strict=True)]:
            done.result()
    return time.perf_counter() - began


def _rounds(worker: Worker, rounds: int, steps: int) -> None:
    for _ in range(rounds):
        worker.round(steps)


def whole_of_glue(plan: Plan) -> dict[str, Item]:
    """Seconds that a run of each task at BERT-base's size takes, from a few steps of each task in the data."""
    _settle(plan)
    checkpoint, there = _base(plan), open_source(plan.data).tasks()
    tasks = [task for task in TRAINABLE if task in there][: 2 if plan.tiny else None]

    def estimate(task: str) -> Figures:
        settings = Settings(plan.data, task, checkpoint, batch_size=4 if plan.tiny else 32)
        made = _made(lambda: partial(whole_glue.measure, settings))
        return {"figures": made(1 if plan.tiny else 60) | whole_glue.official_rows(task, whole_glue.EPOCHS)}

    return {task: partial(estimate, task) for task in tasks}


def _settle(plan: Plan) -> None:
    quiet_libraries()
    set_environment(plan.device, plan.precision, None)


def _made(make: Callable[[], Any]) -> Any:
    """A contender in a clean process: torch chooses how to attend, until ours says otherwise for itself."""
    torch.backends.cuda.enable_cudnn_sdp(True)
    settle_anew()  # ours says it when it settles where it computes, which it may have done
    release_memory()
    return make()


def _steps(plan: Plan, settings: Settings) -> int:
    """An epoch, but no more than MOST_STEPS."""
    if plan.tiny:
        return 2
    train = open_source(plan.data).load(settings.task).splits["train"]
    return min(-(-len(train) // settings.batch_size), MOST_STEPS)


@cache
def _peak(plan: Plan) -> float:
    return peak_flops(plan.device, plan.precision)


def _checkpoint(plan: Plan) -> str:
    """The checkpoint in float32: Trainer would train weights of a lower precision in that precision."""
    if plan.checkpoint in SCRATCH_SIZES:
        return checkpoint_folder(plan.checkpoint, plan.data, "rte", _folder(plan, plan.checkpoint))
    source, target = Path(plan.checkpoint), Path(plan.aside) / "float32"
    if not target.exists():
        shutil.copytree(source, target)
        weights = load_file(source / WEIGHTS)
        save_file({name: _wide(tensor) for name, tensor in weights.items()}, target / WEIGHTS, {"format": "pt"})
    return str(target)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor


def _base(plan: Plan) -> str:
    """BERT-base with random weights, and the checkpoint's tokenizer, if it has one."""
    tokenizer = None if plan.checkpoint in SCRATCH_SIZES else plan.checkpoint
    size = "scratch-tiny" if plan.tiny else "scratch-base"
    return checkpoint_folder(size, plan.data, "rte", _folder(plan, f"{size}-random"), tokenizer)


def _folder(plan: Plan, name: str) -> Path:
    folder = Path(plan.aside) / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder
