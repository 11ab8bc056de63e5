"""How long a plan will take, from a few steps of its arms: said before a run, never used by one."""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glue_bench.sweep.jobs import Job, PlannedCell, PlannedPretraining
from glue_bench.sweep.order import costs_of
from glue_bench.sweep.records import make_plan
from glue_bench.sweep.work import Work
from glue_bench.training.finetune import build_classifier, threads_for, trained_tokens
from glue_bench.training.inputs import Inputs
from glue_bench.training.loop import HostTraining
from glue_bench.training.packing import PackedText
from glue_bench.training.pretrain import PretrainingTask, pretrain
from glue_bench.training.pretrained import PretrainingFolder
from glue_bench.training.runtime import accelerator, all_threads
from glue_bench.training.tokens import TokenisedTask, encoded_split

STEPS = 3
MOST_TOKENS, MOST_OPERATIONS = 8192, 1e11
"""Of a step that is measured, whatever batch is asked for: a dry run is to take seconds, and little memory."""
SLOW = 1.0  # seconds
MEASURING = 10.0  # seconds, after which arms that are left are taken to be as fast as those before


def expected_seconds(work: Work, inputs: Inputs, workers: int | None) -> float | None:
    """About how many seconds all jobs of a plan take, shared evenly by so many workers; None where no cell is left.

    Without `workers` the jobs run in this process, on all its threads; a worker has `resources.cpus` of them.

    Each arm takes STEPS steps of pretraining, on made-up text, and of fine-tuning, on the first rows of a task. What
    each takes there for an operation is multiplied with the operations of its jobs. Packing, tokenising, scoring, and
    what differs between tasks are left out, and so is what several processes gain that pretrain together. Nothing is
    written.
    """
    if workers:
        torch.set_num_threads(min(all_threads(), inputs.experiment.resources.cpus))
        all_threads.cache_clear()
    cost = costs_of(make_plan(inputs.experiment, inputs, list(work.cells)))
    began, rates = time.perf_counter(), dict[tuple[str, str], float]()
    # Of several processes only the main one is here, and pretraining is a matter of all.
    measured = work.waiting if accelerator().num_processes > 1 else work.all_jobs
    for job in sorted(measured, key=lambda job: list(cost.operations).index(job.arm)):
        if (job.kind, job.arm) not in rates and time.perf_counter() - began < MEASURING:
            operations = cost.operations[job.arm]
            tokens = int(min(MOST_TOKENS, MOST_OPERATIONS / operations))
            rates[job.kind, job.arm] = _seconds_per_token(job, inputs, tokens) / operations
    if not rates:
        return None

    def expected(job: Job) -> float:
        alike = [rate for (kind, _), rate in rates.items() if kind == job.kind] or list(rates.values())
        return cost(job) * rates.get((job.kind, job.arm), sum(alike) / len(alike))

    return sum(map(expected, work.all_jobs)) / (workers or 1)


def _seconds_per_token(job: Job, inputs: Inputs, tokens: int) -> float:
    """Of STEPS steps of at most so many tokens, or of one row, after a first one, which finds nothing ready.

    A first step that takes SLOW seconds has to do: getting ready is a small part of it.
    """
    measure: Any = _fine_tuned if isinstance(job, PlannedCell) else _pretrained
    first, few = measure(job, inputs, 1, tokens)
    if first > SLOW:
        return first / few
    whole, many = measure(job, inputs, 1 + STEPS, tokens)
    return max(whole - first, 0.0) / (many - few)


def _pretrained(job: PlannedPretraining, inputs: Inputs, steps: int, tokens: int) -> tuple[float, int]:
    """Seconds of so many steps on full sequences of random tokens, and the tokens of these."""
    start, tokenizer = inputs.initial(job.run.arm), inputs.tokenizer(job.run.arm)
    settings = job.settings.at(job.settings.learning_rates[0])
    length = settings.length
    if length > MOST_TOKENS:
        raise ValueError("not even one row is small enough to be measured")
    rows = max(1, min(tokens, settings.micro_batch_tokens or settings.batch_tokens) // length)
    few = {"steps": steps, "checkpoints": [], "batch_tokens": rows * length, "micro_batch_tokens": None}
    settings = settings.model_copy(update=few)
    ids = np.random.default_rng(0).integers(len(tokenizer), size=rows * length)
    text = PackedText(ids, np.arange(0, len(ids) + 1, length))
    task = PretrainingTask(text={"train": text, "validation": text}, tokenizer=tokenizer, settings=settings)
    with tempfile.TemporaryDirectory() as aside:
        facts = pretrain(start, task, PretrainingFolder(Path(aside), {})).facts
    return facts["seconds"], steps * settings.batch_tokens


def _fine_tuned(planned: PlannedCell, inputs: Inputs, steps: int, tokens: int) -> tuple[float, int]:
    """Seconds of so many steps on the first rows of the cell's task, and the tokens of these."""
    cell, start = planned.cell, inputs.initial(planned.cell.arm)
    settings, tokenizer = cell.hyperparameters, inputs.tokenizer(cell.arm)
    rows = max(1, min(settings.batch_size, tokens // settings.max_length))
    torch.set_num_threads(threads_for(start.config.get_text_config().hidden_size))
    frame = inputs.data(cell.task).splits["train"].head((STEPS + 1) * rows)
    split = encoded_split(frame, tokenizer, settings.max_length)
    task = TokenisedTask(cell.task, {"train": split}, int(tokenizer.pad_token_id))
    told, embedded = inputs.segments(cell.arm)
    task = task.in_one_segment() if embedded == 1 < told else task
    few = settings.model_copy(update={"max_steps": steps, "epochs": steps, "batch_size": rows})
    run = cell.model_copy(update={"hyperparameters": few})
    training = HostTraining(build_classifier(start, cell.task, cell.seed), run, task, None)
    began = time.perf_counter()
    for _ in training.epochs():
        pass
    return time.perf_counter() - began, trained_tokens(run, split)
