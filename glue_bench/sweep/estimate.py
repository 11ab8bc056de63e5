"""How long a plan will take, from a few steps of its arms: said before a run, never used by one."""

import time

import torch

from glue_bench.sweep.jobs import PlannedCell
from glue_bench.sweep.order import costs_of
from glue_bench.sweep.records import make_plan
from glue_bench.sweep.work import Work
from glue_bench.training.finetune import build_classifier, threads_for, trained_tokens, training_of
from glue_bench.training.inputs import Inputs
from glue_bench.training.tokens import TokenisedTask, encoded_split

STEPS = 3
MEASURING = 20.0  # seconds, after which arms that are left are taken to be as fast as those before


def expected_seconds(work: Work, inputs: Inputs, workers: int) -> float | None:
    """About how many seconds all jobs of a plan take, shared evenly by so many workers; None where no cell is left.

    Each arm takes STEPS steps on the first rows of a task. What it takes there for an operation is multiplied with the
    operations of its jobs. Tokenising, scoring, and what differs between tasks are left out. Nothing is written.
    """
    cost = costs_of(make_plan(inputs.experiment, inputs, list(work.cells)))
    began, rates = time.perf_counter(), dict[str, float]()
    for planned in work.waiting:
        if planned.arm not in rates and time.perf_counter() - began < MEASURING:
            rates[planned.arm] = _seconds_per_token(planned, inputs) / cost.operations[planned.arm]
    if not rates:
        return None
    typical = sum(rates.values()) / len(rates)
    return sum(cost(job) * rates.get(job.arm, typical) for job in work.all_jobs) / workers


def _seconds_per_token(planned: PlannedCell, inputs: Inputs) -> float:
    """Of STEPS steps after a first one, which finds nothing ready."""
    cell, start = planned.cell, inputs.initial(planned.cell.arm)
    settings, tokenizer = cell.hyperparameters, inputs.tokenizer(cell.arm)
    torch.set_num_threads(threads_for(start.config.get_text_config().hidden_size))
    frame = inputs.data(cell.task).splits["train"].head((STEPS + 1) * settings.batch_size)
    split = encoded_split(frame, tokenizer, settings.max_length)
    tokens = TokenisedTask(cell.task, {"train": split}, int(tokenizer.pad_token_id))
    told, embedded = inputs.segments(cell.arm)
    tokens = tokens.in_one_segment() if embedded == 1 < told else tokens
    seconds, counts = [], []
    for steps in (1, 1 + STEPS):
        few = settings.model_copy(update={"max_steps": steps, "epochs": steps})
        run = cell.model_copy(update={"hyperparameters": few})
        training = training_of(build_classifier(start, cell.task, cell.seed), run, tokens, None)
        began = time.perf_counter()
        for _ in training.epochs():
            pass
        seconds.append(time.perf_counter() - began)
        counts.append(trained_tokens(run, split))
    return max(seconds[1] - seconds[0], 0.0) / (counts[1] - counts[0])
