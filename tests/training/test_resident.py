"""Recorded steps on data that lives on the device: the same updates as the host's loop, and no wait in an epoch.

There may be no GPU here. Without one a step is run instead of replayed, and PyTorch's `meta` device, whose tensors hold
no numbers, takes a GPU's place where the question is whether anything waits for one or meets a tensor of the host.
"""

import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from glue_bench.config import parse_experiment
from glue_bench.model.variants import VARIANTS
from glue_bench.training import engine as engines
from glue_bench.training import finetune as finetuning
from glue_bench.training.device_split import ABSENT, on_device
from glue_bench.training.engine import ENGINES, Engine, Engines, Shape
from glue_bench.training.finetune import build_classifier, finetune
from glue_bench.training.inputs import Inputs
from glue_bench.training.loop import NonFiniteLossError
from glue_bench.training.resident import ResidentTraining
from glue_bench.training.tokens import TokenisedSplit

pytestmark = pytest.mark.usefixtures("small_demo", "fresh_engines")
CPU, META = torch.device("cpu"), torch.device("meta")


@pytest.fixture
def fresh_engines():
    ENGINES.drop()
    yield
    ENGINES.drop()


@pytest.fixture
def inputs_of(tiny):
    """A inputs of tiny cells: two epochs of batches of 16, the last one short."""

    def make(dropout=0.0, **changes) -> Inputs:
        raw = tiny(tasks=["cola"], finetuning={"epochs": 2}, **changes)
        raw["scratch"] |= {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
        return Inputs(parse_experiment(raw))

    return make


def outcomes(inputs, monkeypatch, *, resident, rows_at_once=None):
    """The outcome of every cell, by one of the two ways."""
    with monkeypatch.context() as patch:
        patch.setattr(finetuning, "records_steps", lambda: resident)
        return [
            finetune(cell, inputs.initial(cell.arm), inputs.tokens(cell), rows_at_once=rows_at_once)
            for cell in inputs.experiment.cells()
        ]


def assert_equal_outcomes(mine, theirs):
    for ours, other in zip(mine, theirs, strict=True):
        losses = [[epoch.train_loss for epoch in outcome.record.history] for outcome in (ours, other)]
        np.testing.assert_allclose(*losses, rtol=1e-5)
        for split, logits in ours.predictions.items():
            np.testing.assert_allclose(logits, other.predictions[split], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("arms", [["add", "concat", "untied"], ["shaw", "rotary", "none"]])
def test_updates_and_predictions_are_those_of_the_hosts_loop(inputs_of, monkeypatch, arms):
    inputs = inputs_of(arms=arms)
    host = outcomes(inputs, monkeypatch, resident=False)
    assert_equal_outcomes(outcomes(inputs, monkeypatch, resident=True), host)


def test_so_they_are_of_a_regression_in_parts(inputs_of, monkeypatch):
    inputs = inputs_of(arms=["add"])
    inputs.experiment = inputs.experiment.model_copy(update={"tasks": ["stsb"]})
    host = outcomes(inputs, monkeypatch, resident=False)
    assert_equal_outcomes(outcomes(inputs, monkeypatch, resident=True, rows_at_once=5), host)


def test_cells_of_a_shape_share_an_engine_and_leave_nothing_behind(inputs_of, monkeypatch):
    inputs = inputs_of(arms=["add"], dropout=0.3)
    made = []
    monkeypatch.setattr(engines, "Engine", lambda *arguments: made.append(Engine(*arguments)) or made[-1])
    monkeypatch.setattr(ENGINES, "_has_room", lambda _: True)
    cell = next(inputs.experiment.cells())
    start, tokens = inputs.initial(cell.arm), inputs.tokens(cell)
    monkeypatch.setattr(finetuning, "records_steps", lambda: True)
    first, other, again = (finetune(cell.model_copy(update={"seed": seed}), start, tokens) for seed in (1, 2, 1))
    assert len(made) == 1
    np.testing.assert_array_equal(first.predictions["validation"], again.predictions["validation"])
    assert (first.predictions["validation"] != other.predictions["validation"]).any()


def test_engines_make_room_for_new_ones_oldest_first(inputs_of, monkeypatch):
    inputs = inputs_of(arms=["add", "none"])
    room, calls = iter([False, True]), []
    monkeypatch.setattr(engines, "release_memory", lambda: calls.append("released"))
    kept = Engines(lambda _: calls.append("asked") or next(room))
    cells = list(inputs.experiment.cells())
    configs = [build_classifier(inputs.initial(cell.arm), "cola", 1).config for cell in cells]
    shapes = [
        Shape.of(config, cell.hyperparameters, None, None, CPU) for config, cell in zip(configs, cells, strict=True)
    ]
    first = kept.get(configs[0], shapes[0], cells[0].hyperparameters)
    assert kept.get(configs[0], shapes[0], cells[0].hyperparameters) is first
    calls.clear()
    kept.get(configs[1], shapes[1], cells[1].hyperparameters)
    assert list(kept._made) == [shapes[1]]
    assert calls == ["released", "asked", "released"]  # what is only kept for later is room, too


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # torch imports its own old functions
def test_where_nothing_can_be_compiled_blocks_run_as_they_are(inputs_of, monkeypatch):
    inputs = inputs_of(arms=["add"])
    cell = next(inputs.experiment.cells())
    host = outcomes(inputs, monkeypatch, resident=False)

    def compiled_first(step, *_):
        if any(block._compiled_call_impl for block in training.model.base.blocks):
            raise torch._dynamo.exc.TorchDynamoException("Failed to find C compiler\nmore")
        return step

    monkeypatch.setattr(engines, "replayed", compiled_first)
    model = build_classifier(inputs.initial(cell.arm), "cola", 1)
    training = ResidentTraining(model, cell, inputs.tokens(cell), None)
    engines._compile(training.model)
    with pytest.warns(UserWarning, match=r"blocks run without torch.compile.*: Failed to find C compiler$"):
        losses = list(training.epochs())
    np.testing.assert_allclose(losses, [epoch.train_loss for epoch in host[0].record.history], rtol=1e-5)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # torch imports its own old functions
def test_as_many_versions_of_a_block_are_compiled_as_there_are(inputs_of):
    inputs = inputs_of(arms=["add"])
    model = build_classifier(inputs.initial(inputs.experiment.arms[0]), "cola", 1)
    settings = torch._dynamo.config
    with settings.patch(recompile_limit=8, accumulated_recompile_limit=256):
        engines._compile(model)
        # Above the second limit, which counts over all engines, blocks would run uncompiled without a word.
        assert (settings.recompile_limit, settings.accumulated_recompile_limit) == (engines.VERSIONS, engines.VERSIONS)


def test_what_is_meant_to_be_so_is_not_warned_of(inputs_of, monkeypatch):
    def saying(step, *_):
        warnings.warn("This instance was constructed with capturable=True or some of", stacklevel=1)
        warnings.warn("TensorFloat32 tensor cores for float32 matrix multiplication available", stacklevel=1)
        warnings.warn("Synchronization debug mode is a prototype feature and does not yet detect", stacklevel=1)
        return step

    monkeypatch.setattr(engines, "replayed", saying)
    outcomes(inputs_of(arms=["add"]), monkeypatch, resident=True)


def test_a_loss_that_is_no_number_ends_the_cell(inputs_of):
    inputs = inputs_of(arms=["add"])
    cell = next(inputs.experiment.cells())
    model = build_classifier(inputs.initial(cell.arm), "cola", 1)
    with torch.no_grad():
        model.classifier.bias.fill_(float("inf"))
    with pytest.raises(NonFiniteLossError, match="in epoch 1"):
        list(ResidentTraining(model, cell, inputs.tokens(cell), None).epochs())


def test_bf16_stays_near_float32_and_weights_are_float32(inputs_of, monkeypatch):
    inputs = inputs_of(arms=["untied"])
    cell = next(inputs.experiment.cells())
    losses = []
    for lower in (False, True):
        from glue_bench.training.runtime import accelerator

        monkeypatch.setattr(accelerator(), "native_amp", lower)
        model = build_classifier(inputs.initial(cell.arm), "cola", 1)
        training = ResidentTraining(model, cell, inputs.tokens(cell), None)
        losses.append(list(training.epochs()))
        assert {parameter.dtype for parameter in training.model.parameters()} == {torch.float32}
        assert training.predict("validation").dtype == np.float32
    assert losses[0] != losses[1]
    np.testing.assert_allclose(*losses, rtol=0.02)


class NoHost(TorchDispatchMode):
    """Refuses every operation that a tensor of the host takes part in."""

    def __torch_dispatch__(self, operation, types, arguments=(), options=None):
        found = operation(*arguments, **(options or {}))
        for leaf in tree_leaves((arguments, options, found)):
            if isinstance(leaf, torch.Tensor):
                assert leaf.device.type == "meta", f"{operation} meets a tensor on {leaf.device}"
        return found


class NoOptimizer:
    """AdamW's fused kernel has no `meta` form."""

    def __init__(self, model):
        self.model, self.state = model, {}

    def step(self):
        assert any(parameter.grad is not None for parameter in self.model.parameters())

    def zero_grad(self):
        self.model.zero_grad()


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_epoch_never_waits_for_the_device(inputs_of, monkeypatch, variant):
    monkeypatch.setattr(engines, "make_optimizer", lambda model, *_: NoOptimizer(model))
    inputs = inputs_of(arms=[variant], dropout=0.1)
    cell = next(inputs.experiment.cells())
    model = build_classifier(inputs.initial(cell.arm), "cola", 1)
    training = ResidentTraining(model, cell, inputs.tokens(cell), None, device=META)
    rows, lengths = training._plan(1)
    split = training._split("train")
    training.engine.prepare(lengths, split.labels.dtype)
    chosen, rates = torch.from_numpy(rows).to(META), training._rates(len(lengths))
    with NoHost():
        losses = training._epoch(split, chosen, lengths, rates)
        assert losses.shape == (len(lengths),)
        # What the check is for is found by it: reading a number waits, and a tensor of the host is refused.
        with pytest.raises(RuntimeError):
            losses.mean().item()
        with pytest.raises(AssertionError, match="meets a tensor"):
            losses + torch.ones(len(lengths))


COMPILED = """
import torch
from torch._dynamo.utils import counters

from glue_bench.model.cpu import attention
from glue_bench.model.cpu import dropout
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.transformers_api import EncoderForSequenceClassification
from glue_bench.model.variants import VARIANTS

# As on a GPU: attention and dropout are torch's own.
attention.draws_cheaply = dropout.draws_cheaply = lambda _: False
torch._dynamo.config.recompile_limit = 512
sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 32}
ids, mask = torch.randint(50, (4, 16)), torch.ones(4, 16, dtype=torch.bool)
for variant in VARIANTS:
    torch._dynamo.reset()
    counters.clear()
    model = EncoderForSequenceClassification(EncoderConfig(variant=variant, num_labels=2, **sizes)).train()
    for block in model.base.blocks:
        block.compile(backend="aot_eager", fullgraph=True, dynamic=False)
    seen = []
    for _ in range(3):
        model(ids, mask, torch.zeros_like(ids)).logits.sum().backward()
        seen.append(counters["stats"]["unique_graphs"])
    assert all(parameter.grad is not None for parameter in model.base.blocks.parameters()), variant
    assert len(set(seen)) == 1, (variant, seen)  # a step finds what the first one has compiled
    print(variant, seen[0])
"""


@pytest.mark.slow
def test_blocks_of_every_variant_compile_whole_and_share_what_is_compiled():
    # A process of its own: the tests' checks of shapes are not compiled.
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, check=True)
    graphs = dict(line.split() for line in done.stdout.splitlines())
    assert set(graphs) == set(VARIANTS)
    # Four blocks: one graph for the first three, one for the last, of which only [CLS] is computed.
    assert (graphs["add"], graphs["untied"], graphs["concat"]) == ("2", "2", "2")


def test_lengths_are_padded_to_few_and_never_past_the_positions(inputs_of):
    inputs = inputs_of(arms=["add"])
    cell = next(inputs.experiment.cells())
    config = build_classifier(inputs.initial(cell.arm), "cola", 1).config
    engine = Engine(config, Shape.of(config, cell.hyperparameters, None, None, CPU), cell.hyperparameters)
    assert config.max_position_embeddings == 32
    assert [engine.padded(length, 32) for length in (1, 16, 17, 31, 32)] == [16, 16, 32, 32, 32]
    engine.model.config.max_position_embeddings = 40
    assert [engine.padded(length, 40) for length in (17, 33, 40)] == [32, 40, 40]
    engine.model.config.max_position_embeddings = 8192
    assert [engine.padded(length, 1000) for length in (40, 512, 513, 1000)] == [48, 512, 1008, 1008]
    assert engine.padded(8192, 8192) == 8192


def test_gathering_is_collating():
    lengths = np.array([3, 1, 5])
    split = TokenisedSplit(
        ids=np.arange(1, 10, dtype=np.int32),
        segments=np.array([0, 0, 1, 0, 0, 0, 0, 1, 1], dtype=np.uint8),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        labels=np.array([1, 0, 1]),
    )
    batch = on_device(split, 99, CPU).gather(torch.tensor([2, ABSENT, 1]), 6)
    assert batch.ids[0].tolist() == [5, 6, 7, 8, 9, 99]
    assert batch.ids[2].tolist() == [4, *[99] * 5]
    assert batch.segments[0].tolist() == [0, 0, 0, 1, 1, 0]
    assert batch.mask.sum(dim=1).tolist() == [5, 3, 1]
    assert batch.counted.tolist() == [1, 0, 1]
    assert (batch.labels[0], batch.labels[2]) == (1, 0)
