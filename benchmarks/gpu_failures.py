"""What happens on a GPU when something breaks: nothing of it may reach the next cell."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F

from glue_bench.sweep.attempts import attempt_cell
from glue_bench.sweep.jobs import Failure, PlannedCell
from glue_bench.training.engine import ENGINES, Engine
from glue_bench.training.finetune import Outcome, finetune
from glue_bench.training.loop import NonFiniteLossError
from glue_bench.training.memory import is_out_of_memory, release_memory
from glue_bench.training.quiet import quiet_libraries
from glue_bench.training.replay import replayed
from glue_bench.training.resident import ResidentTraining
from glue_bench.training.runtime import computing
from gpu_cells import Case, Cases, Plan, by_recorded_steps, differing_bits
from gpu_results import Figures, Item

DIVERGING = 1e38  # a learning rate
SHARES = (0.7, 0.5, 0.35)  # of the memory that a cell takes, tried one after the other until it is too little
LEAST = 64 * 2**20  # bytes that are always left


def failures(plan: Plan) -> dict[str, Item]:
    """Cells before and after others, NaN, memory, waits, and what cannot be recorded."""
    quiet_libraries()
    cases = Cases(steps=3 if plan.tiny else 12, dropout=0.1)
    case, other = cases.case("untied"), cases.case("untied", first_row=100).changed(seed=2)
    checks: dict[str, Any] = {
        "a cell after another": lambda: _after(case, lambda: _outcome(other)),
        "a cell after NaN": lambda: _after(case, lambda: _diverge(case)),
        "a cell after too little memory": lambda: _after(case, lambda: _fill_and_run(plan)),
        "NaN in bf16, then in float32": lambda: _nan_of_a_sweep(),
        "too little memory": lambda: _memory_of_a_sweep(plan),
        "an epoch never waits": lambda: _waits(plan, case),
        "a step that cannot be recorded": lambda: _unrecordable(plan),
    }
    return {name: _on(plan, check) for name, check in checks.items()}


def _on(plan: Plan, check: Item) -> Item:
    """By recorded steps in the precision of the device, whatever that is."""

    def work() -> Figures:
        with computing(plan.device, "bf16" if plan.precision == "bf16" else "float32"), by_recorded_steps():
            return check()

    return work


def _outcome(case: Case) -> Outcome:
    return finetune(case.cell, case.start, case.tokens)


def _after(case: Case, disturb: Any) -> Figures:
    """The cell in a new engine, and after a disturbance: predictions bit for bit."""
    expected = _outcome(case).predictions
    ENGINES.drop()
    disturb()
    kept = len(ENGINES._made)
    found = _outcome(case).predictions
    differing = sum(differing_bits(found[name], logits) for name, logits in expected.items())
    return {"figures": {"differing": differing, "engines_before": kept}, "limits": {"differing": 0}}


def _diverge(case: Case) -> None:
    """Train to NaN for real."""
    try:
        _outcome(case.changed(learning_rate=DIVERGING, warmup_ratio=0.0))
    except NonFiniteLossError:
        return
    raise AssertionError(f"a learning rate of {DIVERGING} gave a finite loss")


def _nan_of_a_sweep() -> Figures:
    """What a sweep makes of it: a second try in float32, then a failure that says so."""
    cases = Cases(steps=3, dropout=0.1)
    case = cases.case("add").changed(learning_rate=DIVERGING, warmup_ratio=0.0, epochs=1)
    found = attempt_cell(PlannedCell("nan", case.cell, "scratch"), cases.inputs)
    assert isinstance(found, Failure), found
    assert "NonFiniteLossError" in found.error, found.error
    return {"figures": {"wrong": 0}, "limits": {"wrong": 0}, "said": found.error}


def _large(plan: Plan) -> Cases:
    """Batches whose activations are most of what a cell takes."""
    return Cases(steps=2, rows=32) if plan.tiny else Cases(steps=2, hidden=512, blocks=8, rows=256)


def _memory_of_a_sweep(plan: Plan) -> Figures:
    """A cell with memory for a part of its batch: parts go through one by one, and the losses stay."""
    cases = _large(plan)
    planned = PlannedCell("memory", cases.case("add").cell, "scratch")
    _reset_peak()
    whole = attempt_cell(planned, cases.inputs)
    needed = _peak()
    assert isinstance(whole, Outcome), whole
    for share in SHARES:
        ENGINES.drop()
        with _short_of_memory(plan, int(share * needed), rows=8):
            parts = attempt_cell(planned, cases.inputs)
        assert isinstance(parts, Outcome), parts
        if parts.record.micro_batch_size:
            break
    mine, yours = ([epoch.train_loss for epoch in outcome.record.history] for outcome in (parts, whole))
    rows = parts.record.micro_batch_size or 0
    figures = {
        "loss_error": float(np.max(np.abs(np.array(mine) - yours) / yours)),
        "not_in_parts": int(not 0 < rows < planned.cell.hyperparameters.batch_size),
        "micro_batch_size": rows,
        "needed_mib": round(needed / 2**20),
        "left": share,
    }
    return {"figures": figures, "limits": {"loss_error": 2e-2, "not_in_parts": 0}, "simulated": plan.device == "cpu"}


def _fill_and_run(plan: Plan) -> None:
    """A cell that memory is never enough for, not even row by row; its attempt ends as a failure.

    Weights, gradients and two moments are four times the weights. There is room for three, so that steps are begun.
    """
    cases = _large(plan)
    case = cases.case("add")
    weights = sum(weight.numel() * weight.element_size() for weight in case.classifier().parameters())
    with _short_of_memory(plan, 3 * weights, rows=0):
        found = attempt_cell(PlannedCell("memory", case.cell, "scratch"), cases.inputs)
    assert isinstance(found, Failure), found
    assert is_out_of_memory(RuntimeError(found.error)), found.error
    release_memory()


@contextmanager
def _short_of_memory(plan: Plan, left: int, *, rows: int) -> Iterator[None]:
    """The GPU is filled up until so many bytes are left; on a CPU an engine refuses more than so many rows at once."""
    if plan.device == "cpu":
        with mock.patch.object(Engine, "_backward", _refusing(rows, Engine._backward)):
            yield
        return
    release_memory()
    free, _ = torch.cuda.mem_get_info()
    ballast = torch.empty(max(0, free - max(LEAST, left)), dtype=torch.uint8, device=plan.device)
    try:
        yield
    finally:
        del ballast
        release_memory()


def _refusing(rows: int, backward: Any) -> Any:
    def refuse(engine: Engine, batch: Any) -> Any:
        if engine.shape.rows_at_once > rows:
            raise torch.OutOfMemoryError("CUDA out of memory (simulated)")
        return backward(engine, batch)

    return refuse


def _reset_peak() -> None:
    release_memory()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def _peak() -> int:
    """Bytes that torch has taken from the device at its peak; on a CPU some number."""
    return torch.cuda.max_memory_reserved() if torch.cuda.is_available() else 2**20


def _waits(plan: Plan, case: Case) -> Figures:
    """Every operation of an epoch that waits for the device is an error."""

    class Refusing(ResidentTraining):
        def _epoch(self, *arguments: Any) -> Any:
            with _no_waits() if plan.device == "cuda" else nullcontext():
                return super()._epoch(*arguments)

    training = Refusing(case.classifier(), case.cell, case.tokens, None, plan.torch_device)
    losses = list(training.epochs())
    return {"figures": {"not_finite": int(not np.isfinite(losses).all())}, "limits": {"not_finite": 0}}


@contextmanager
def _no_waits() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def _unrecordable(plan: Plan) -> Figures:
    """It is run as it is, with a warning, and what is recorded after it draws its dropout as ever."""
    device, found = plan.torch_device, []
    ones, out = torch.ones(1000, device=device), torch.zeros(1000, device=device)

    def waiting() -> None:
        out.copy_(F.dropout(ones))
        found.append(float(out.sum()))

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        run = replayed(waiting, device)
    run()
    recorded = replayed(lambda: out.copy_(F.dropout(ones)), device)
    drawn = []
    for seed in (1, 2, 1):
        torch.manual_seed(seed)
        recorded()
        drawn.append(out.clone())
    figures = {
        "not_said": int(plan.device == "cuda" and not any("without CUDA graphs" in str(w.message) for w in said)),
        "not_as_it_is": int(run is not waiting),
        "seed_changes_nothing": int(torch.equal(drawn[0], drawn[1])),
        "seed_does_not_repeat": int(not torch.equal(drawn[0], drawn[2])),
    }
    return {"figures": figures, "limits": dict.fromkeys(figures, 0)}
