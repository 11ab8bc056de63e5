"""The measurements of benchmarks/gpu.py, in their order."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from common import Settings
from gpu_scale import COMPILED, EAGER, GRAPH, TO_BATCH, Scale
from peers import Masked


@dataclass(frozen=True)
class Step:
    """One measurement: which worker does it, and what the worker is asked."""

    section: str
    name: str
    worker: str
    request: Any

    @property
    def key(self) -> str:
        return f"{self.section}: {self.name}"


@dataclass(frozen=True)
class Request:
    """One round of one contender, as its worker takes it."""

    kind: str
    contender: str
    settings: Any
    steps: int


@dataclass(frozen=True)
class Measurements:
    """All measurements of a scale; `aside` is where checkpoints are made."""

    scale: Scale
    corpus: str
    data: str
    aside: Path

    def steps(self) -> Iterator[Step]:
        """All measurements, in their order."""
        scale = self.scale
        for variant in scale.variants:
            request = Request("agreement", scale.device, variant, scale.agreement_steps)
            yield Step("agreement", variant, "checks", request)
        for variant in ("add", "untied"):
            for graph in (True, False):
                name = f"{variant}, {'graphs' if graph else 'no graphs'}"
                request = Request("resume", scale.device, (variant, graph), scale.agreement_steps)
                yield Step("resume", name, "checks", request)
        for number in range(scale.rounds):
            for size in scale.pretraining:
                yield from self.pretraining_steps(size, number)
        for number in range(scale.rounds):
            for size in scale.finetuning:
                for task in scale.tasks:
                    yield from self.finetuning_steps(size, task, number)
        for graph in (True, False):
            for workers in scale.workers:
                yield self.sharing_step(workers, graph=graph)

    def pretraining_steps(self, size: str, number: int) -> Iterator[Step]:
        """A round of each contender."""
        scale = self.scale
        rows, length = scale.pretraining[size]
        masked = Masked(self.corpus, size, rows, length, scale.device, scale.precision)
        for contender in scale.contenders:
            if contender == TO_BATCH:  # packed text has hardly any padding
                continue
            if contender == COMPILED and number > 0:  # most of a round is compilation
                continue
            settings = replace(masked, graph=contender == GRAPH)
            request = Request("pretraining", contender, settings, scale.pretraining_steps)
            yield Step("pretraining", f"{size}, {contender}, {number}", contender, request)

    def finetuning_steps(self, size: str, task: str, number: int) -> Iterator[Step]:
        """A round of each contender."""
        first_task = next(iter(self.scale.tasks))
        for contender in self.scale.contenders:
            # Most of such a round is compilation, and all rows are padded to one length.
            if contender == COMPILED and (number > 0 or task != first_task):
                continue
            settings = self.cell(size, task, graph=contender == GRAPH)
            steps = self.scale.tasks[task] if number == 0 else min(self.scale.tasks[task], 200)
            request = Request("fine-tuning", contender, settings, steps)
            name = f"{size}, {task}, {contender}, {number}"
            yield Step("fine-tuning", name, contender, request)

    def sharing_step(self, workers: int, *, graph: bool) -> Step:
        """Several workers at once."""
        settings = self.cell(self.scale.sharing_size, "rte", graph=graph)
        contender = GRAPH if graph else EAGER
        request = Request("fine-tuning", contender, settings, self.scale.tasks["rte"])
        return Step("sharing", f"{contender}, {workers} workers", str(workers), request)

    def cell(self, size: str, task: str, *, graph: bool) -> Settings:
        """The fine-tuning of a model of this size; `prepare` makes its checkpoint."""
        folder = str(self.aside / f"{size}-{task}")
        return Settings(
            self.data,
            task,
            folder,
            device=self.scale.device,
            precision=self.scale.precision,
            graph=graph,
        )
