"""The running of benchmarks/gpu.py: each measurement in its worker, kept as soon as it is there."""

import json
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import common
from checks import compared, continued
from common import Settings, Worker
from glue_bench.files import write_atomically
from glue_bench.records.environment import versions
from gpu_scale import COMPILED, EAGER, GRAPH, TO_BATCH
from gpu_steps import Request, Step
from peers import make_masked_ours, make_masked_peer, make_ours, make_peer

Result = dict[str, Any]


def read(path: Path) -> Result:
    """The measurements of earlier runs."""
    if path.exists():
        return json.loads(path.read_text())
    return {"steps": {}, "seconds": {}}


class Run:
    """One call of the command: the workers that measure, and the file that keeps what they find."""

    def __init__(self, budgets: dict[str, float], data: str, output: Path, kept: Result) -> None:
        self.budgets = budgets
        self.data = data
        self.output = output
        self.kept = kept
        self.workers: dict[str, Worker] = {}

    def measure(self, steps: list[Step], seconds: float | None) -> None:
        """Make the measurements that are not there, as far as time goes; keep each at once."""
        began = time.perf_counter()
        self.kept |= {"environment": versions().document()}
        try:
            for step in steps:
                spent = self.kept["seconds"].get(step.section, 0.0)
                if "result" in self.kept["steps"].get(step.key, {}):
                    continue
                if spent > self.budgets[step.section]:
                    continue
                if seconds and time.perf_counter() - began > seconds:
                    return
                step_began = time.perf_counter()
                outcome = self.outcome(step)
                taken = time.perf_counter() - step_began
                outcome |= {"seconds": round(taken, 2)}
                self.kept["steps"][step.key] = outcome
                self.kept["seconds"][step.section] = round(spent + taken, 2)
                write_atomically(self.output, f"{json.dumps(self.kept, indent=1)}\n".encode())
                print(f"{step.key}: {taken:.1f} s", outcome.get("error", ""), flush=True)
        finally:
            for worker in self.workers.values():
                worker.close()

    def outcome(self, step: Step) -> Result:
        """The result of a measurement, or its error. A worker that failed is started anew."""
        try:
            self.prepare(step.request)
            if step.section == "sharing":
                return {"result": self.shared(int(step.worker), step.request)}
            if step.worker not in self.workers:
                self.workers[step.worker] = Worker(make_any)
            return {"result": self.workers[step.worker].round(step.request)}
        except (RuntimeError, OSError) as error:
            worker = self.workers.pop(step.worker, None)
            if worker:
                worker.close()
            return {"error": str(error).strip().splitlines()[-1]}

    def prepare(self, request: Request) -> None:
        """Make the checkpoint of a cell, if it is not there."""
        if isinstance(request.settings, Settings):
            folder = Path(request.settings.checkpoint)
            if not folder.exists():
                size = folder.name.rsplit("-", 1)[0]
                task = request.settings.task
                common.checkpoint_folder(size, self.data, task, folder)

    def shared(self, count: int, request: Request) -> Result:
        """Rows per second of so many workers at once, after a round of each that is not timed."""
        workers = [Worker(make_any) for _ in range(count)]
        try:
            with ThreadPoolExecutor(count) as threads:
                list(threads.map(lambda worker: worker.round(request), workers))
                began = time.perf_counter()
                results = list(threads.map(lambda worker: worker.round(request), workers))
                seconds = time.perf_counter() - began
        finally:
            for worker in workers:
                worker.close()
        rows = count * request.steps * request.settings.batch_size
        training = [rows / count / result["training_seconds"] for result in results]
        return {"rows_per_second": rows / seconds, "training_rows_per_second": sum(training)}


def make_any() -> Callable[[Any], Result]:
    """What a worker does: the rounds of any request."""
    from glue_bench.training import fixed_steps, pretrain

    fixed_steps.MIN_STEPS = 1  # rounds are shorter than cells
    pretrain.TRAINING_POINTS = 1  # each point waits for the device, in so few steps too often
    made: dict[tuple[str, str, Any], Callable[[int], Result]] = {}

    def work(request: Any) -> Result:
        if request.kind == "agreement":
            return compared(request.settings, request.steps, request.contender)
        if request.kind == "resume":
            variant, graph = request.settings
            return continued(variant, request.steps, request.contender, graph=graph)
        key = (request.kind, request.contender, request.settings)
        if key not in made:
            made[key] = make(*key)
        result = made[key](request.steps)
        if request.contender == GRAPH and request.settings.device == "cuda":
            result["captured"] = fixed_steps.FixedSteps.is_capturable
        return result

    return work


def make(kind: str, contender: str, settings: Any) -> Callable[[int], Result]:
    """A contender's rounds."""
    is_ours = contender in (GRAPH, EAGER)
    compiled = contender == COMPILED
    if kind == "pretraining":
        if is_ours:
            return make_masked_ours(settings, tempfile.gettempdir())
        return make_masked_peer(settings, compiled=compiled)
    if is_ours:
        return make_ours(settings)
    padding = "dynamic" if contender == TO_BATCH else "fixed"
    return make_peer(settings, padding, compiled=compiled)
