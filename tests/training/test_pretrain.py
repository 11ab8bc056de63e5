"""Pretraining an arm: plain torch's updates, one stream for all arms, honest losses, and runs that
can be killed.
"""

import os
import re
import signal
import sys
from dataclasses import replace
from functools import partial
from itertools import count

import numpy as np
import pytest
import torch
from helpers.tiny_models import ARMS
from helpers.tiny_pretraining import (
    BF16,
    CPU,
    LENGTH,
    STILL,
    Diverging,
    Greedy,
    Signalled,
    Tiny,
    config,
    plainly_trained,
    timeless,
)
from transformers import AutoModelForMaskedLM, AutoTokenizer

from glue_bench.config import PretrainingSettings
from glue_bench.errors import UserError
from glue_bench.model.fresh import seed_of
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.model.start import Start, weights_digest
from glue_bench.model.variants import VARIANTS
from glue_bench.records.values import PretrainingRecord
from glue_bench.training import packing
from glue_bench.training import pretrain as pretrain_module
from glue_bench.training.loop import linear_factor, rate_factor
from glue_bench.training.masked_lm import build_masked_lm
from glue_bench.training.masking import (
    MaskedBatch,
    Vocabulary,
    masked_evaluation_batches,
    training_batch,
)
from glue_bench.training.pretrain import DivergedPretrainingError, Pretrained
from glue_bench.training.tokenizers import tokenizer_digest


def batch_of(tiny: Tiny, step: int):
    """Return the batch of a step."""
    settings = tiny.run.settings
    return training_batch(
        tiny.packed_text["train"],
        Vocabulary.of(tiny.arm.tokenizer),
        rows=settings.rows,
        mask_probability=settings.mask_probability,
        seed=settings.seed,
        step=step,
    )


def full_loss(model: EncoderForMaskedLM, batch) -> torch.Tensor:
    """Return the summed cross-entropy over a batch's targets, from logits of every place."""
    labels = torch.full(batch.ids.shape, -100)
    labels.view(-1)[batch.places] = batch.targets
    return model(batch.ids, batch.mask, batch.segments, labels=labels).loss * len(batch.targets)


def plain_batches(tiny: Tiny, model: EncoderForMaskedLM):
    """Yield the losses of the parts of each step's batch, as functions."""

    def share_of_loss(part, targets: int) -> torch.Tensor:
        return full_loss(model, part) / targets

    settings = tiny.run.settings
    for step in range(settings.steps):
        batch = batch_of(tiny, step)
        torch.manual_seed(seed_of(settings.seed, step, 0))
        parts = batch.parts(settings.micro_batch_size)
        yield [partial(share_of_loss, part, len(batch.targets)) for part in parts]


@pytest.mark.parametrize(
    "arm", [("add", {}), ("untied", {}), ("concat", {}), ("add", {"segments": "scores"})]
)
def test_pretraining_equals_plain_torch(tmp_path, arm):
    """Each step is clipped and as long as its gradient, dropout differs by step, and the last part
    is not full.
    """
    scratch = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.1}
    tiny = Tiny.of(
        tmp_path,
        *arm,
        scratch=scratch,
        steps=9,
        micro_batch_tokens=3 * LENGTH,
        adam_epsilon=1e-2,
        learning_rates=[0.05],
        clip_norm=0.1,
        weight_decay=0.1,
        warmup_ratio=0.3,
        segments="pairs",
    )

    record = tiny.finish().record
    chosen = tiny.run.settings

    model = build_masked_lm(tiny.arm.start, chosen.seed, chosen.dropout)
    losses = plainly_trained(model, chosen, chosen.steps, plain_batches(tiny, model))
    assert [point.train_loss for point in record.losses] == pytest.approx(losses, abs=1e-6)
    assert 0 < record.segment_pairs <= 1

    start = build_masked_lm(tiny.arm.start, 1).state_dict()
    expected = model.state_dict()

    changes = []
    for name, tensor in tiny.weights(9).items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-6, msg=name)
        change = (tensor - start[name]).abs()
        changes.append(change.max().item())
    assert max(changes) > 1e-3


def fresh_state(seed, *arm) -> dict[str, torch.Tensor]:
    start = Start(config(*arm, num_hidden_layers=2), {}, "scratch")
    return build_masked_lm(start, seed).state_dict()


# The option position_start is another start of the table.
@pytest.mark.parametrize("arm", [arm for arm in ARMS if "position_start" not in arm[1]])
def test_arms_share_their_fresh_modules(arm):
    reference = fresh_state(1)
    shared = 0
    for name, tensor in fresh_state(1, *arm).items():
        if name in reference and tensor.shape == reference[name].shape:
            assert torch.equal(tensor, reference[name]), name
            shared += 1
    assert shared > 20


def test_the_seed_decides_all_weights_but_biases_and_norms():
    second = fresh_state(2)
    for name, tensor in fresh_state(1).items():
        is_drawn = name.endswith("weight") and "norm" not in name
        assert torch.equal(tensor, second[name]) != is_drawn, name


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_dropout_of_pretraining_replaces_the_checkpoints(tmp_path, rate):
    scratch = {"hidden_dropout_prob": rate, "attention_probs_dropout_prob": rate}
    expected = Tiny.of(tmp_path / "checkpoint", scratch=scratch, steps=3).finish().record
    record = Tiny.of(tmp_path / "pretraining", steps=3, dropout=rate).finish().record
    assert record.train_loss == expected.train_loss


@pytest.fixture(scope="module")
def without_dropout(tmp_path_factory) -> Tiny:
    """A finished pretraining of three steps, without the dropout of its checkpoint."""
    tiny = Tiny.of(tmp_path_factory.mktemp("without_dropout"), steps=3, dropout=0.0)
    tiny.finish()
    return tiny


def test_a_checkpoint_keeps_the_dropout_of_its_start(without_dropout):
    config = AutoModelForMaskedLM.from_pretrained(without_dropout.checkpoint(3)).config
    assert config.hidden_dropout_prob == 0.1


def test_a_checkpoint_says_that_it_is_pretrained(without_dropout):
    config = AutoModelForMaskedLM.from_pretrained(without_dropout.checkpoint(3)).config
    assert config.origin == "pretrained"


def test_a_checkpoint_has_no_pooler(without_dropout):
    assert [name for name in without_dropout.weights(3) if "pooler" in name] == []


def test_a_checkpoint_has_its_tokenizer_beside_it(without_dropout):
    tokenizer = AutoTokenizer.from_pretrained(without_dropout.checkpoint(3))
    assert tokenizer_digest(tokenizer) == tokenizer_digest(without_dropout.arm.tokenizer)


@pytest.fixture
def short_pieces(monkeypatch) -> None:
    """Divide the validation text into pieces of 40 tokens."""
    monkeypatch.setattr(packing, "PIECE_TOKENS", 40)


def validation_batches(tiny: Tiny) -> list[MaskedBatch]:
    """Return the masked batches of the validation text."""
    vocabulary = Vocabulary.of(tiny.arm.tokenizer)
    text = tiny.packed_text["validation"]
    return list(masked_evaluation_batches(text, vocabulary, tiny.run.settings.mask_probability))


@pytest.mark.parametrize("compute", [CPU, BF16], ids=["float32", "bf16"])
@pytest.mark.usefixtures("short_pieces")
def test_the_validation_loss_is_the_mean_over_masked_tokens(tmp_path, compute):
    tiny = Tiny.of(tmp_path, "untied", scratch=STILL, steps=2)
    loss = tiny.finish(compute=compute).record.validation_loss
    model = EncoderForMaskedLM.from_pretrained(tiny.checkpoint(2)).eval()
    batches = validation_batches(tiny)
    with compute.autocast(), torch.inference_mode():
        total = sum(full_loss(model, batch).item() for batch in batches)
    expected = total / sum(len(batch.targets) for batch in batches)
    assert loss == pytest.approx(expected, rel=1e-5 if compute == CPU else 1e-2)


@pytest.fixture
def validated(tmp_path, short_pieces) -> tuple[Tiny, Pretrained]:  # noqa: ARG001
    """A finished pretraining of two steps, and its outcome."""
    tiny = Tiny.of(tmp_path, "untied", scratch=STILL, steps=2)
    return tiny, tiny.finish()


def test_the_losses_of_pieces_have_the_validation_loss_as_their_mean(validated):
    _, outcome = validated
    counts = outcome.validation["count"]
    mean = outcome.validation["loss_sum"].sum() / counts.sum()
    assert len(set(counts)) > 1  # else a mean of means would do
    assert mean == pytest.approx(outcome.record.validation_loss, rel=1e-12)


def test_the_counts_of_pieces_are_those_of_the_targets_in_them(validated):
    tiny, outcome = validated
    text = tiny.packed_text["validation"]
    places: list[int] = []  # the places of the targets in the text
    for number, batch in enumerate(validation_batches(tiny)):
        rows, columns = np.divmod(batch.places.numpy(), batch.ids.shape[1])
        places += (text.offsets[64 * number + rows] + columns).tolist()

    starts, _ = text.pieces
    pieces = np.searchsorted(starts, places, side="right") - 1
    expected = np.bincount(pieces, minlength=len(starts))
    assert outcome.validation["count"].tolist() == expected.tolist()


def test_the_losses_of_pieces_have_the_numbers_of_their_documents(validated):
    tiny, outcome = validated
    _, documents = tiny.packed_text["validation"].pieces
    assert outcome.validation["document"].tolist() == documents.tolist()


def test_a_point_is_the_mean_since_the_last_one_and_no_more_are_measured_than_asked_for(
    tmp_path, monkeypatch
):
    full_curve = Tiny.of(tmp_path / "full", steps=19, validations=10).finish().record.losses
    monkeypatch.setattr(pretrain_module, "TRAINING_POINTS", 7)
    curve = Tiny.of(tmp_path / "short", steps=19, validations=10).finish().record.losses
    assert [point.step for point in full_curve] == list(range(1, 20))
    validated = [point.step for point in curve if point.validation_loss is not None]
    expected = [2, 4, 6, 8, 10, 12, 14, 16, 18, 19]
    assert validated == expected
    steps = [point.step for point in curve]
    assert sorted(set(steps) - set(validated)) == [3, 9, 11, 17]
    losses = [point.train_loss for point in full_curve]
    for first, point in zip([0, *steps], curve, strict=False):
        mean = np.mean(losses[first : point.step])
        assert point.train_loss == pytest.approx(mean, rel=1e-5)


def test_where_memory_is_short_it_goes_on_with_half_the_rows(tmp_path, monkeypatch):
    """There is memory for two rows, and from the third step on for one row."""
    passes = count()
    monkeypatch.setattr(pretrain_module, "SAVE_SECONDS", 0)
    unlimited = Tiny.of(tmp_path / "unlimited", scratch=STILL, steps=4).finish().record
    monkeypatch.setitem(VARIANTS, "greedy", Greedy)
    monkeypatch.setattr(Greedy, "room", property(lambda _: 2 if next(passes) < 11 else 1))
    limited = Tiny.of(tmp_path / "limited", "greedy", scratch=STILL, steps=4).finish().record
    assert unlimited.micro_batch_tokens == 8 * LENGTH
    assert limited.micro_batch_tokens == LENGTH
    assert limited.stream == unlimited.stream
    assert limited.tokens == unlimited.tokens
    assert [point.step for point in limited.losses] == [1, 2, 3, 4]
    assert limited.train_loss == pytest.approx(unlimited.train_loss, rel=1e-5)


def test_a_run_that_diverges_has_a_record_of_its_costs(tmp_path, monkeypatch):
    monkeypatch.setitem(VARIANTS, "diverging", Diverging)
    monkeypatch.setattr(Diverging, "in_training", False)
    message = "validation loss is nan at step 10"
    with pytest.raises(DivergedPretrainingError, match=message) as caught:
        Tiny.of(tmp_path, "diverging").finish()
    record = caught.value.record
    assert [point.step for point in record.losses] == list(range(1, 10))
    assert record.steps == 10
    assert record.tokens > record.losses[-1].tokens
    assert record.seconds >= record.losses[-1].seconds


def test_a_batch_without_a_word_that_the_tokenizer_knows_is_no_divergence(tmp_path):
    (tmp_path / "rest.txt").write_text("\n".join(["Z " * LENGTH] * 120))
    tiny = Tiny.of(tmp_path, corpus=[str(tmp_path)], batch_tokens=LENGTH, steps=8)
    assert np.isfinite(tiny.finish().record.train_loss)


def test_the_rate_is_linear_or_stays_between_warm_up_and_decay():
    usual = {
        "corpus": ["x"],
        "steps": 10,
        "batch_tokens": 32,
        "length": 16,
        "learning_rates": [1.0],
    }
    for ratio in (0.0, 0.25, 1.0):
        linear = PretrainingSettings(**usual, warmup_ratio=ratio)
        for step in range(10):
            assert rate_factor(linear, step) == linear_factor(step, 10, ratio)
    trapezoid = PretrainingSettings(
        **usual, schedule="trapezoid", warmup_ratio=0.25, decay_share=0.2
    )
    factors = [rate_factor(trapezoid, step) for step in range(10)]
    expected = [0, 1 / 3, 2 / 3, 1, 1, 1, 1, 1, 1, 0.5]
    assert factors == pytest.approx(expected)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Tiny, PretrainingRecord]:
    tiny = Tiny.of(tmp_path_factory.mktemp("finished"))
    return tiny, tiny.finish().record


def test_the_record_has_the_digest_of_the_encoder_in_its_checkpoint(finished):
    tiny, record = finished
    encoder_weights = {
        name.removeprefix("base."): tensor
        for name, tensor in tiny.weights().items()
        if name.startswith("base")
    }
    expected = {20: weights_digest(encoder_weights)}
    assert record.weights == expected


def test_the_record_counts_tokens(finished):
    tiny, record = finished
    text = tiny.packed_text
    tokens = sum(batch_of(tiny, step).tokens for step in range(20))
    assert record.tokens == tokens
    assert record.losses[-1].tokens == tokens
    assert record.micro_batch_tokens == 8 * LENGTH
    assert record.corpus_tokens == int(text["train"].lengths.sum())
    assert record.validation_tokens == int(text["validation"].lengths.sum())


def test_the_record_has_the_costs_of_the_run(finished):
    _, record = finished
    expected = record.tokens / record.seconds
    assert record.tokens_per_second == pytest.approx(expected, rel=0.01)
    assert record.peak_memory_bytes is None or record.peak_memory_bytes > 1e7
    assert record.seconds >= record.losses[-1].seconds > 0


def test_the_record_has_the_environment_of_the_run(finished):
    _, record = finished
    assert record.environment.device == "cpu"
    assert record.environment.precision == "float32"
    assert record.environment.threads == 1
    assert record.environment.graphs is False


def test_a_run_of_a_search_keeps_no_weights(finished, tmp_path):
    tiny = Tiny.of(tmp_path)
    job = tiny.run.model_copy(update={"is_search": True})
    record = replace(tiny, run=job).finish().record
    assert record.weights == {}
    assert record.validation_loss == finished[1].validation_loss


def assert_same_weights(first: Tiny, second: Tiny, step: int) -> None:
    """Check that two runs have left the same bits after a step."""
    weights = second.weights(step)
    for name, tensor in first.weights(step).items():
        assert torch.equal(weights[name], tensor), name


@pytest.mark.parametrize(
    ("points", "arm"), [(20, ("concat", {})), (2, ("untied", {"segments": "scores"}))]
)
def test_a_run_that_was_interrupted_ends_with_the_same_bits(tmp_path, monkeypatch, points, arm):
    """It may be interrupted between two points, and draw other random numbers meanwhile."""
    monkeypatch.setattr(pretrain_module, "SAVE_SECONDS", 0)
    monkeypatch.setattr(pretrain_module, "TRAINING_POINTS", points)
    unbroken = Tiny.of(tmp_path / "unbroken", *arm, checkpoints=[9], validations=2)
    broken = Tiny.of(tmp_path / "broken", *arm, checkpoints=[9], validations=2)
    expected = unbroken.finish()
    for step in (10, 20):
        broken.stop_at(step)
        torch.manual_seed(step)
    assert broken.folder.read_state()["progress"]["step"] == 20
    assert timeless(broken.finish()) == timeless(expected)
    for step in (9, 20):
        assert_same_weights(unbroken, broken, step)


def end_process(*_):
    """End this process as submitit's handler does when the time of a Slurm job is over."""
    sys.exit(-1)


@pytest.mark.parametrize(
    ("number", "handler"),
    [
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGTERM, signal.default_int_handler),
        (signal.SIGUSR2, end_process),
    ],
)
@pytest.mark.parametrize(
    ("in_training", "nth", "step"), [(True, 7, 7), (True, 9, 9), (True, 20, 20), (False, 1, 10)]
)
def test_what_a_signal_ends_goes_on_from_that_step(
    tmp_path, monkeypatch, number, handler, in_training, nth, step
):
    """The signal comes in the middle of a step, of the one before a checkpoint, of the last, or in
    a validation.
    """
    monkeypatch.setitem(VARIANTS, "signalled", Signalled)
    unbroken = Tiny.of(tmp_path / "unbroken", "signalled", checkpoints=[9])
    broken = Tiny.of(tmp_path / "broken", "signalled", checkpoints=[9])
    expected = unbroken.finish()
    passes = count(1)

    def send(is_training):
        if is_training == in_training and next(passes) == nth:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(Signalled, "sends", staticmethod(send))
    before = signal.signal(number, handler)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        broken.finish()
    signal.signal(number, before)
    assert broken.folder.read_state()["progress"]["step"] == step
    assert timeless(broken.finish()) == timeless(expected)
    for kept_step in (9, 20):
        assert_same_weights(unbroken, broken, kept_step)


def test_a_second_ctrl_c_cuts_a_step_in_two_and_leaves_the_last_whole_state(tmp_path, monkeypatch):
    monkeypatch.setitem(VARIANTS, "signalled", Signalled)
    monkeypatch.setattr(pretrain_module, "SAVE_SECONDS", 0)
    tiny = Tiny.of(tmp_path, "signalled")
    passes = count(1)

    def send(is_training):
        if is_training and next(passes) == 7:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Signalled, "sends", staticmethod(send))
    with pytest.raises(KeyboardInterrupt):
        tiny.finish()
    assert tiny.folder.read_state()["progress"]["step"] == 6


def test_a_state_past_a_checkpoint_that_is_wanted_since_is_not_continued(tmp_path, monkeypatch):
    monkeypatch.setattr(pretrain_module, "SAVE_SECONDS", 0)
    tiny = Tiny.of(tmp_path)
    tiny.stop_at(12)
    record = Tiny.of(tmp_path, checkpoints=[5, 15]).finish().record
    assert [*record.weights] == [5, 15, 20]
    for step, digest in record.weights.items():
        assert tiny.inputs.store.checkpoints.has(tiny.run.id, step, digest)
    assert [point.step for point in record.losses] == list(range(1, 21))


@pytest.fixture
def stopped(tmp_path, monkeypatch) -> Tiny:
    """A run that was stopped at its fourth step."""
    monkeypatch.setattr(pretrain_module, "SAVE_SECONDS", 0)
    tiny = Tiny.of(tmp_path)
    tiny.stop_at(4)
    return tiny


def test_a_state_of_another_rate_is_not_continued(stopped):
    """Another search may have chosen the rate of the state."""
    rate = stopped.run.learning_rate
    assert stopped.folder.resumed_state(CPU, rate, ())["progress"]["step"] == 4
    assert stopped.folder.resumed_state(CPU, 1e-5, ()) is None


def test_a_state_of_another_device_is_refused(stopped):
    gpu = replace(BF16, device=torch.device("cuda"))
    with pytest.raises(UserError, match="but this run computes on cuda in bf16"):
        stopped.folder.resumed_state(gpu, stopped.run.learning_rate, ())


def test_a_state_of_another_precision_is_refused_and_left_as_it_is(stopped):
    before = stopped.files()
    with pytest.raises(UserError) as caught:
        stopped.finish(compute=BF16)
    assert str(caught.value) == (
        f"'{stopped.folder.resume}' was computed on cpu in float32, "
        "but this run computes on cpu in bf16; give --device cpu --precision float32, "
        "or delete it to start this arm anew"
    )
    assert stopped.files() == before


@pytest.mark.parametrize("share", [0, 0.5, 0.99])
def test_a_damaged_state_is_refused_and_left_as_it_is(stopped, share):
    path = stopped.folder.resume
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    before = stopped.files()
    with pytest.raises(UserError, match=re.escape(f"cannot read '{path}' (")) as caught:
        stopped.finish()
    assert str(caught.value).endswith("; delete it to start this arm anew")
    assert stopped.files() == before


def test_the_asked_checkpoints_are_kept_and_replace_an_earlier_runs(tmp_path):
    """As where the record was deleted, and the state with it, or a checkpoint is wanted since."""
    tiny = Tiny.of(tmp_path, checkpoints=[10, 5])
    tiny.finish()
    before = tiny.files()
    names = sorted(path.name for path in tiny.folder.folder.iterdir())
    assert names == ["resume.pt", "step-10", "step-20", "step-5"]
    after_5 = tiny.weights(5)["dense.weight"]
    after_10 = tiny.weights(10)["dense.weight"]
    assert not torch.equal(after_5, after_10)
    tiny.inputs.store.checkpoints.end(tiny.run.id)
    files = [tiny.checkpoint(step) / "model.safetensors" for step in (5, 10, 20)]
    for file in files:
        file.write_bytes(b"of a run that has no record")
    tiny.finish()
    for file in files:
        assert file.read_bytes() == before[str(file)]
