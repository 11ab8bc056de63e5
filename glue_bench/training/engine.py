"""A model, its optimiser and its steps at fixed addresses, used by one cell after another of the same shape.

On a GPU a step of a small batch is over before the next one has been launched from Python. So steps are recorded as
CUDA graphs, one for each of a few lengths that batches are padded to, over blocks that torch.compile has fused. What
is recorded belongs to the addresses of weights and moments: a cell does not bring its own, it overwrites these.
"""

import logging
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from glue_bench.config import Hyperparameters
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.transformers_api import EncoderForSequenceClassification
from glue_bench.training.device_split import DeviceBatch
from glue_bench.training.loop import make_optimizer
from glue_bench.training.memory import release_memory
from glue_bench.training.replay import Step, replayed

LENGTHS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""What batches are padded to. Multiples of 16, so that half-precision rows of scores stay aligned."""
# Of a block that may be compiled, in a process: lengths x variants x places in the encoder. Where a variant computes
# something of its own in every block, twelve blocks at six lengths are 72. Past this number blocks run uncompiled, and
# nothing says so.
VERSIONS = 4096
KEPT_SHARE = 0.5  # of a GPU's memory that has to be free when another engine is made


@dataclass(frozen=True)
class Shape:
    """What steps are recorded for: equal shapes share an engine. `autocast` None is float32 throughout."""

    config: str
    batch_size: int
    rows_at_once: int
    weight_decay: float
    adam_epsilon: float
    clip_norm: float
    autocast: torch.dtype | None
    device: torch.device

    @classmethod
    def of(
        cls,
        config: EncoderConfig,
        settings: Hyperparameters,
        rows_at_once: int | None,
        autocast: torch.dtype | None,
        device: torch.device,
    ) -> "Shape":
        """The shape of a cell's steps."""
        return cls(
            config.to_json_string(),
            settings.batch_size,
            rows_at_once or settings.batch_size,
            settings.weight_decay,
            settings.adam_epsilon,
            settings.clip_norm,
            autocast,
            device,
        )


class Engine:
    """Steps for cells of one shape. Between two cells: `prepare`, `load`, then `step` after `step`."""

    def __init__(self, config: EncoderConfig, shape: Shape, settings: Hyperparameters) -> None:
        self.shape = shape
        with shape.device:
            self.model = EncoderForSequenceClassification(config)
        self.rate = torch.zeros((), device=shape.device)
        self.optimizer = make_optimizer(self.model, settings, self.rate)
        self.loss = torch.zeros((), device=shape.device)
        self._steps: dict[int, tuple[DeviceBatch, Step]] = {}
        self._pool = torch.cuda.graph_pool_handle() if shape.device.type == "cuda" else None
        if shape.device.type == "cuda":
            _compile(self.model)

    def padded(self, length: int, most: int) -> int:
        """The length that a batch is padded to whose longest example has `length` tokens, of at most `most`."""
        longest = self.model.config.max_position_embeddings
        beyond = min(-(-most // LENGTHS[0]) * LENGTHS[0], longest)
        return next((fixed for fixed in LENGTHS if length <= fixed <= longest), beyond)

    def prepare(self, lengths: Iterable[int], labels: torch.dtype) -> None:
        """Record the steps of padded lengths that have none yet. It changes the weights; `load` comes after it."""
        self.model.train()
        for length in sorted(set(lengths) - set(self._steps), reverse=True):  # the largest first: others fit its memory
            batch = self._empty(length, labels)
            self._steps[length] = batch, self._recorded(self._update_of(batch))

    @torch.no_grad()
    def load(self, model: EncoderForSequenceClassification) -> None:
        """Copy a model's weights into this one and set every moment to zero, in place."""
        self.model.load_state_dict(model.state_dict())
        for state in self.optimizer.state.values():
            for moment in state.values():
                moment.zero_()

    def step(self, batch: DeviceBatch, rate: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """One update at a learning rate; returns the batch's mean loss, to be copied before the next step."""
        fixed, run = self._steps[batch.ids.shape[1]]
        torch._foreach_copy_([*fixed.tensors, self.rate], [*batch.tensors, rate])
        run()
        return self.loss

    @torch.inference_mode()
    def logits(self, batch: DeviceBatch) -> Float[Tensor, "b c"]:
        """Logits float32, in evaluation mode."""
        with self._autocast(), torch.compiler.set_stance("force_eager"):  # a shape may come only once
            return self.model(batch.ids, batch.mask, batch.segments).logits.float()

    def _empty(self, length: int, labels: torch.dtype) -> DeviceBatch:
        rows, device = self.shape.batch_size, self.shape.device
        whole = torch.zeros(rows, length, dtype=torch.long, device=device)
        mask = torch.ones(rows, length, dtype=torch.bool, device=device)
        return DeviceBatch(
            whole, whole.clone(), mask, torch.zeros(rows, dtype=labels, device=device), torch.ones(rows, device=device)
        )

    def _recorded(self, step: Step) -> Step:
        """The step recorded, over compiled blocks if this machine can compile."""
        with warnings.catch_warnings():
            # All are meant to be so: the runs before a recording, float32 without TF32, and that waits are refused.
            warnings.filterwarnings("ignore", message="This instance was constructed with capturable=True")
            warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores for float32")
            warnings.filterwarnings("ignore", message="Synchronization debug mode is a prototype feature")
            try:
                return replayed(step, self.shape.device, self._pool)
            except RuntimeError as error:
                if not isinstance(error, torch._dynamo.exc.TorchDynamoException):
                    raise
                reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
            warnings.warn(f"blocks run without torch.compile, which is slower: {reason}", stacklevel=2)
            for block in self.model.base.blocks:
                block._compiled_call_impl = None
            return replayed(step, self.shape.device, self._pool)

    def _update_of(self, batch: DeviceBatch) -> Step:
        def update() -> None:
            self.loss.copy_(self._backward(batch))
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.shape.clip_norm)
            self.optimizer.step()
            self.optimizer.zero_grad()  # gradients go back to the memory that all recordings share

        return update

    def _backward(self, batch: DeviceBatch) -> Tensor:
        """Gradients of the mean loss over the rows that are there; returns that loss."""
        total, loss = batch.counted.sum(), torch.zeros_like(self.loss)
        for part in batch.parts(self.shape.rows_at_once):
            with self._autocast():
                logits = self.model(part.ids, part.mask, part.segments).logits
            share = (row_losses(logits, part.labels) * part.counted).sum() / total
            share.backward()
            loss = loss + share.detach()
        return loss

    def _autocast(self) -> AbstractContextManager[object]:
        if self.shape.autocast is None:
            return nullcontext()
        # Without the cache: a copy of a weight that outlives a recording would be read by the next one.
        return torch.autocast(self.shape.device.type, dtype=self.shape.autocast, cache_enabled=False)


class Engines:
    """The engines of a process, the least recently used first, as many as the device has room for."""

    def __init__(self, has_room: Callable[[torch.device], bool]) -> None:
        self._has_room = has_room
        self._made: OrderedDict[Shape, Engine] = OrderedDict()

    def get(self, config: EncoderConfig, shape: Shape, settings: Hyperparameters) -> Engine:
        """The engine of a shape, made if there is none."""
        if shape not in self._made:
            if self._made:
                release_memory()  # what torch keeps for later would count as taken
            while self._made and not self._has_room(shape.device):
                self._made.popitem(last=False)
                release_memory()  # an engine and its steps know each other: only the collector frees them
            self._made[shape] = Engine(config, shape, settings)
        self._made.move_to_end(shape)
        return self._made[shape]

    def __len__(self) -> int:
        return len(self._made)

    def drop(self) -> None:
        """Forget all engines: after an error nothing is known of what they hold."""
        self._made.clear()


def half_is_free(device: torch.device) -> bool:
    """Whether a GPU has room for another engine beside those that it holds, of whichever process."""
    if device.type != "cuda":
        return False
    free, total = torch.cuda.mem_get_info(device)
    return free > KEPT_SHARE * total


ENGINES = Engines(half_is_free)


def row_losses(logits: Float[Tensor, "b c"], labels: Tensor) -> Float[Tensor, " b"]:
    """The loss of each row; `classification_loss` is their mean."""
    if logits.shape[1] == 1:
        return F.mse_loss(logits[:, 0].float(), labels.float(), reduction="none")
    return F.cross_entropy(logits.float(), labels, reduction="none")


def _compile(model: EncoderForSequenceClassification) -> None:
    """Fuse what a block does. Block by block: all of them share what is compiled once for a length."""
    settings = torch._dynamo.config
    settings.recompile_limit = max(VERSIONS, settings.recompile_limit)
    settings.accumulated_recompile_limit = max(VERSIONS, settings.accumulated_recompile_limit)
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)
    for block in model.base.blocks:
        block.compile(dynamic=False)
