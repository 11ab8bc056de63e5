"""Random numbers decided by names, so that arms which share a module start with equal weights in it."""

import hashlib

import torch
from transformers import PreTrainedModel


def initialise(model: PreTrainedModel, seed: int) -> None:
    """Fresh weights, each module's decided by (seed, its name): what one variant adds shifts no other's numbers."""
    done: set[int] = set()
    for name, module in model.named_modules():
        own = [parameter for parameter in module.parameters(recurse=False) if id(parameter) not in done]
        if not own or id(getattr(module, "weight", None)) in done:  # a decoder tied to the words
            continue
        done.update(map(id, own))
        torch.manual_seed(_number(seed, name))
        model._init_weights(module)


def seed_step(seed: int, step: int, process: int) -> None:
    """Dropout's numbers of one step of one process; a continued run needs no generator's state."""
    torch.manual_seed(_number(seed, step, process))


def _number(*parts: object) -> int:
    digest = hashlib.sha256(" ".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8]) >> 1
