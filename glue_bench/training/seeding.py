"""Random numbers of one training step, decided by its number."""

import torch

from glue_bench.model.fresh import number


def seed_step(seed: int, step: int, process: int) -> None:
    """Dropout's numbers of one step of one process; a continued run needs no generator's state."""
    torch.manual_seed(number(seed, step, process))
