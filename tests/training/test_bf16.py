"""bf16 on a CPU: the same training as in float32, up to the rounding of products, with weights that stay float32."""

import pytest
import torch

from glue_bench.config import parse_experiment
from glue_bench.model.variants import VARIANTS
from glue_bench.training.finetune import build_classifier, finetune
from glue_bench.training.inputs import Inputs
from glue_bench.training.loop import HostTraining
from glue_bench.training.runtime import accelerator, computing

pytestmark = pytest.mark.usefixtures("small_demo")


@pytest.fixture
def inputs_of(tiny):
    def make(**changes) -> Inputs:
        return Inputs(parse_experiment(tiny(tasks=["cola"], **changes)))

    return make


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_every_variant_trains_as_in_float32(inputs_of, name):
    outcomes = {}
    for precision in ("float32", "bf16"):
        with computing("cpu", precision):
            inputs = inputs_of(arms=[name])
            (cell,) = inputs.experiment.cells()
            outcomes[precision] = finetune(cell, inputs.initial(cell.arm), inputs.tokens(cell))
    full, half = (outcomes[precision].predictions["validation"] for precision in ("float32", "bf16"))
    losses = [outcomes[precision].record.history[0].train_loss for precision in ("float32", "bf16")]
    assert losses[1] == pytest.approx(losses[0], rel=0.02)
    assert not (full == half).all()
    assert abs(full - half).max() < 0.05


def test_the_same_cell_gives_the_same_bits_whatever_ran_before(inputs_of):
    with computing("cpu", "bf16"):
        inputs = inputs_of(scratch={"hidden_dropout_prob": 0.1})
        first, other = inputs.experiment.cells()
        found = [
            finetune(cell, inputs.initial(cell.arm), inputs.tokens(cell)).predictions["validation"]
            for cell in (first, other, first)
        ]
    assert (found[0] == found[2]).all()
    assert not (found[0] == found[1]).all()


@pytest.mark.parametrize("name", ["add", "untied-relative"])
def test_a_model_of_bf16_weights_trains_with_dropout(inputs_of, name):
    inputs = inputs_of(arms=[name], scratch={"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1})
    (cell,) = inputs.experiment.cells()
    model = build_classifier(inputs.initial(cell.arm), cell.task, cell.seed).bfloat16().train()
    ids = torch.randint(5, 90, (4, 12))
    loss = model(ids, labels=torch.tensor([0, 1, 0, 1])).loss
    loss.backward()
    assert loss.isfinite()
    assert {parameter.grad.dtype for parameter in model.parameters() if parameter.grad is not None} == {torch.bfloat16}


def test_weights_and_moments_stay_float32(inputs_of):
    with computing("cpu", "bf16"):
        inputs = inputs_of()
        cell = next(inputs.experiment.cells())
        model = build_classifier(inputs.initial(cell.arm), cell.task, cell.seed)
        training = HostTraining(model, cell, inputs.tokens(cell), None)
        epochs = training.epochs()
        next(epochs)
        (optimizer,) = accelerator()._optimizers
        states = [moment for state in optimizer.state.values() for moment in state.values()]
        assert {tensor.dtype for tensor in [*model.parameters(), *states]} == {torch.float32}


def test_a_finished_cell_leaves_nothing_behind(inputs_of):
    """Nor would the garbage collector have to be waited for."""
    import gc
    import weakref

    with computing("cpu", "bf16"):
        inputs = inputs_of()
        cell = next(inputs.experiment.cells())
        model = build_classifier(inputs.initial(cell.arm), cell.task, cell.seed)
        training, seen = HostTraining(model, cell, inputs.tokens(cell), None), weakref.ref(model)
        gc.disable()
        try:
            list(training.epochs())
            training.predict("validation")
            del model, training
            assert seen() is None
        finally:
            gc.enable()
