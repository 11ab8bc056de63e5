"""Training steps of fixed shapes. A GPU launches each as one graph, a CPU its operations."""

import json
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from glue_bench.config import Hyperparameters
from glue_bench.errors import first_line
from glue_bench.model.fresh import seed_of
from glue_bench.model.heads import classification_loss
from glue_bench.model.native import NativeStart
from glue_bench.model.start import Start
from glue_bench.model.variants import OURS, VARIANTS
from glue_bench.training.device import Compute
from glue_bench.training.loop import make_optimizer, update
from glue_bench.training.tokens import Batch, move_to_device

BATCHES_AHEAD = 4  # batches
REHEARSED_STEPS = 3  # steps before a capture, in which libraries allocate what they need
MIN_STEPS = 100  # of a cell: fewer do not pay for the captures
MAX_SHARED = 4  # classifiers with their optimisers on the device: those of an arm by their labels
STEP_SETTINGS = {"weight_decay", "adam_epsilon", "clip_norm"}
Tensors = Mapping[str, Tensor]
Item = TypeVar("Item")


@dataclass(eq=False)
class FixedSteps:
    """Takes training steps whose tensors stay in their places, with a graph for each shape.

    - `model`: on its device; `optimizer` is its own, made with `capturable`.
    - `clip_norm`: the largest norm of the gradient.
    - `loss`: computes the loss of a batch from its tensors on the device.
    - `inputs` and `graphs`: by the shape of a batch's ids.
    """

    # Of this process: after a capture that failed none is tried again.
    is_capturable: ClassVar[bool] = True

    model: Any
    optimizer: torch.optim.Optimizer
    clip_norm: float
    loss: Callable[[Tensors], Tensor]
    compute: Compute
    inputs: dict[torch.Size, dict[str, Tensor]] = field(default_factory=dict)
    graphs: dict[torch.Size, tuple[torch.cuda.CUDAGraph, Tensor]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rate = torch.zeros((), device=self.compute.device)

    def take(self, tensors: Tensors, rate: float, seed: int) -> Tensor:
        """Take one step, and return its loss, which stays on the device.

        Args:
            tensors: the batch, on the host. The shape of its `ids` decides all shapes.
            rate: the learning rate.
            seed: decides all random numbers of the step. A graph draws from the generator of the
                process, as single operations do.
        """
        shape = tensors["ids"].shape
        moved = {
            name: move_to_device(tensor, self.compute.device) for name, tensor in tensors.items()
        }
        if shape not in self.inputs:
            self.inputs[shape] = {name: tensor.clone() for name, tensor in moved.items()}
            self._prepare(shape)
        for name, tensor in self.inputs[shape].items():
            tensor.copy_(moved[name])
        self.rate.fill_(rate)
        torch.manual_seed(seed)
        if shape not in self.graphs:
            return self._launch(shape)
        graph, loss = self.graphs[shape]
        graph.replay()
        return loss.clone()

    def _launch(self, shape: torch.Size) -> Tensor:
        losses = [self.loss(self.inputs[shape])]
        return update(self.model, self.optimizer, self.rate, self.clip_norm, losses)

    def _prepare(self, shape: torch.Size) -> None:
        """Rehearse the step, and capture it on a GPU, without a change of weights or optimiser.

        So every step of a run is launched alike, also the first one of a continued run.
        """
        before = {}
        for parameter, state in self.optimizer.state.items():
            before[parameter] = {name: tensor.clone() for name, tensor in state.items()}
        self.rate.zero_()  # a step of this rate moves no weight
        if self.compute.captures and FixedSteps.is_capturable:
            self._capture(shape)
        else:
            self._launch(shape)
        for parameter, state in self.optimizer.state.items():
            for name, tensor in state.items():
                if parameter in before:
                    tensor.copy_(before[parameter][name])
                else:
                    tensor.zero_()

    def _capture(self, shape: torch.Size) -> None:
        """Capture the step of a shape. A warning says why it fails, if it does."""
        try:
            graph = torch.cuda.CUDAGraph()
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with warnings.catch_warnings(), torch.cuda.stream(stream):
                warnings.filterwarnings("ignore", "This instance was constructed with capturable")
                for _ in range(REHEARSED_STEPS):
                    self._launch(shape)
            torch.cuda.current_stream().wait_stream(stream)
            # Graphs share the memory of what a step computes, because one runs at a time.
            pool = next((other.pool() for other, _ in self.graphs.values()), None)
            with torch.cuda.graph(graph, pool=pool):
                loss = self._launch(shape)
        except Exception as error:  # any operation may refuse to be captured
            FixedSteps.is_capturable = False
            self.optimizer.zero_grad()
            warnings.warn(
                f"a step cannot be captured as a CUDA graph ({first_line(error)}); "
                "its operations are launched one by one",
                stacklevel=2,
            )
            return

        self.graphs[shape] = (graph, loss)


def launches_graphs(steps: FixedSteps | None) -> bool:
    """Return whether a run launched its steps as graphs: the step of a shape was captured."""
    return steps is not None and bool(steps.graphs)


SHARED: dict[str, FixedSteps] = {}
"""The fine-tuning steps of this process, by what a graph holds: the encoder and some settings."""


def takes_fixed_steps(start: Start, settings: Hyperparameters, rows: int) -> bool:
    """Return whether a cell has a variant of ours, and enough steps on `rows` rows of train."""
    if isinstance(start, NativeStart) or VARIANTS.get(start.config.variant) not in OURS:
        return False
    return settings.steps(settings.steps_per_epoch(rows)) >= MIN_STEPS


def shared_steps(model: Any, settings: Hyperparameters, compute: Compute) -> FixedSteps:
    """Return the steps of this process for a cell, with the weights of its model in them.

    The cells of an arm train one model, one after another: a graph holds the places of its weights.
    """
    config = model.config.to_dict()
    del config["id2label"], config["label2id"]
    facts = [config, model.num_labels, settings.model_dump(include=STEP_SETTINGS), str(compute)]
    kind = json.dumps(facts, default=str)
    if kind not in SHARED:
        if len(SHARED) == MAX_SHARED:
            del SHARED[next(iter(SHARED))]
        first = model.to(compute.device)
        optimizer = make_optimizer(first, settings, capturable=True)

        def loss(tensors: Tensors) -> Tensor:
            with compute.autocast():
                logits = first(tensors["ids"], tensors["mask"], tensors["segments"]).logits
            return classification_loss(logits, tensors["labels"])

        SHARED[kind] = FixedSteps(first, optimizer, settings.clip_norm, loss, compute)
    steps = SHARED[kind]
    steps.model.load_state_dict(model.state_dict())
    steps.model.config = model.config
    for state in steps.optimizer.state.values():
        for tensor in state.values():
            tensor.zero_()
    return steps


def take_fixed(steps: FixedSteps, seed: int, batch: Batch, rate: float, step: int) -> Tensor:
    """Take a step of a cell: dropout follows from its seed and the step, whatever ran before."""
    return steps.take(batch.fixed(), rate, seed_of(seed, step, 0))


def make_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """Yield items that a thread makes up to BATCHES_AHEAD before they are asked for."""
    with ThreadPoolExecutor(1) as thread:
        waiting = deque(thread.submit(next, items, None) for _ in range(BATCHES_AHEAD))
        while (item := waiting.popleft().result()) is not None:
            waiting.append(thread.submit(next, items, None))
            yield item
