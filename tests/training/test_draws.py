"""What an arm starts from is decided by the arm alone: the same bits alone, after other work and in another process."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from option_sets import ARMS as VARIANT_ARMS
from tiny_pretraining import fresh as scratch
from transformers import ElectraConfig, ElectraModel

from glue_bench.model.checkpoints import graft, read_checkpoint
from glue_bench.model.plugins import PLUGINS
from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.additive import Add
from glue_bench.model.variants.base import Additive, Grafted
from glue_bench.testing import load_plugins
from glue_bench.training.pretrain import build_masked_lm

PLUGIN = """
import numpy as np
import torch
from torch import nn

from glue_bench.model.variants.base import EncoderInput, Grafted, Variant

DRAWN_WHEN_LOADED = torch.randn(1).item()


class Own(Variant):
    name = "own"

    def __init__(self, dims):
        super().__init__(dims)
        noise = np.random.rand()
        self.places = nn.Parameter(torch.randn(dims.max_positions, dims.embedding_size) + noise + DRAWN_WHEN_LOADED)
        self.bilinear = nn.Bilinear(2, 2, 1)

    def forward(self, token_ids, segment_ids):
        words = self.words_and_segments(token_ids, segment_ids)
        product = self.bilinear(words[..., :2].contiguous(), words[..., 2:4].contiguous())
        return EncoderInput(words + self.places[: token_ids.shape[1]] + product)


class OwnGraft(Own):
    name = "own-graft"

    def graft(self, base):
        super().graft(base)
        noise = torch.rand(1) + np.random.rand()
        with torch.no_grad():
            self.places.copy_(base.positions + noise * torch.randn_like(base.positions))
        return Grafted(exact=False)
"""

ARMS = [*VARIANT_ARMS, ("own", {}), ("own-graft", {})]

Arm = tuple[str, dict[str, Any]]

Made = Callable[..., Any]


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("plugin") / "own.py"
    path.write_text(PLUGIN)
    torch.rand(3)
    load_plugins([path])
    yield path
    for name in list(PLUGINS):
        del VARIANTS[name], PLUGINS[name]


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ELECTRA checkpoint with tables narrower than its blocks, where grafts leave more to chance."""
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 32}
    folder = tmp_path_factory.mktemp("electra")
    ElectraModel(ElectraConfig(vocab_size=250, hidden_size=16, embedding_size=8, **sizes)).save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    """The number of threads is put back."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def unfilled_memory_is_nan() -> Iterator[None]:
    """Memory of torch that nobody has filled; in this block it could else hold anything, a right number too."""
    torch.use_deterministic_algorithms(True)  # fills it: torch.utils.deterministic.fill_uninitialized_memory
    yield
    torch.use_deterministic_algorithms(False)


def other_work() -> None:
    """All that a process may have done before: numbers drawn, another number of threads."""
    torch.rand(11)
    np.random.rand(5)  # noqa: NPY002
    torch.set_num_threads(2 if torch.get_num_threads() == 1 else 1)


def drawn_next() -> tuple[float, float]:
    """What torch's and numpy's generators would give next. Python's is moved by the type checks of the tests."""
    kept = torch.random.get_rng_state(), np.random.get_state()  # noqa: NPY002
    numbers = torch.rand(1).item(), np.random.rand()  # noqa: NPY002
    torch.random.set_rng_state(kept[0])
    np.random.set_state(kept[1])  # noqa: NPY002
    return numbers


def digest(weights: dict[str, torch.Tensor]) -> str:
    total = hashlib.sha256()
    for name in sorted(weights):
        total.update(name.encode() + weights[name].contiguous().numpy().tobytes())
    return total.hexdigest()


def starts(folder: Path, arms: list[Arm]) -> list[str]:
    """A digest of what each arm starts from."""
    checkpoint = read_checkpoint(str(folder))
    return [digest(graft(checkpoint, variant, options).weights) for variant, options in arms]


@pytest.mark.parametrize("shape", ["wide", "narrow"])
@pytest.mark.usefixtures("plugin")
def test_a_start_is_the_same_after_other_work_and_in_any_order(shape: str, narrow: Path, make_bert: Made) -> None:
    folder = narrow if shape == "narrow" else make_bert()
    first = starts(folder, ARMS)
    other_work()
    before = drawn_next()
    assert starts(folder, ARMS[::-1])[::-1] == first
    assert drawn_next() == before


def test_a_graft_computes_with_one_thread(make_bert: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """The SVD of `concat-split` rounds by the number of threads, on tables of a real size."""
    found = []

    class Asks(Add):
        def graft(self, base: Additive) -> Grafted:
            found.append(torch.get_num_threads())
            return super().graft(base)

    monkeypatch.setitem(VARIANTS, "asks", Asks)
    torch.set_num_threads(2)
    graft(read_checkpoint(str(make_bert())), "asks", {})
    assert (found, torch.get_num_threads()) == ([1], 2)


@pytest.mark.usefixtures("plugin", "unfilled_memory_is_nan")
@pytest.mark.parametrize("family", ["bert", "electra"])  # with a pooler, and without one
@pytest.mark.parametrize("arm", ARMS, ids=str)
def test_every_number_of_a_classifier_is_of_its_start_or_drawn(
    arm: Arm, family: str, narrow: Path, make_bert: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is drawn that a start's weights replace, and nothing is left without a value."""
    start = graft(read_checkpoint(str(make_bert() if family == "bert" else narrow)), *arm)
    model = start.classifier(("one", "other"), 1)
    numbers = {**model.state_dict(), **dict(model.named_buffers())}
    next_numbers = drawn_next()
    assert not [name for name, values in numbers.items() if not values.isfinite().all()]
    monkeypatch.setattr("glue_bench.model.checkpoints.unfilled", lambda kind, config: kind(config))
    filled = start.classifier(("one", "other"), 1)
    for name, values in {**filled.state_dict(), **dict(filled.named_buffers())}.items():
        torch.testing.assert_close(numbers[name], values, rtol=0, atol=0)
    assert drawn_next() == next_numbers


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize("arm", ARMS, ids=str)
def test_fresh_weights_of_a_pretraining_are_decided_by_its_seed(arm: Arm) -> None:
    for sizes in ({}, {"embedding_size": 8}):
        first = digest(build_masked_lm(scratch(*arm, **sizes), 1).state_dict())
        other_work()
        before = drawn_next()
        assert digest(build_masked_lm(scratch(*arm, **sizes), 1).state_dict()) == first
        assert digest(build_masked_lm(scratch(*arm, **sizes), 2).state_dict()) != first
        assert drawn_next() == before
