"""Pretraining an arm: plain torch's updates, one stream for all arms, honest losses, and runs that can be killed."""

import os
import re
import signal
import sys
from dataclasses import replace
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
from glue_bench.training import packing
from glue_bench.training import pretrain as module
from glue_bench.training.loop import linear_factor, rate_factor
from glue_bench.training.masked_lm import build_masked_lm
from glue_bench.training.masking import Vocabulary, masked_evaluation_batches, training_batch
from glue_bench.training.pretrain import DivergedPretrainingError
from glue_bench.training.tokenizers import tokenizer_digest


def batch_of(tiny: Tiny, step: int):
    """What the arm is shown at a step."""
    chosen, vocabulary = tiny.run.settings, Vocabulary.of(tiny.arm.tokenizer)
    how = {
        "rows": chosen.rows,
        "mask_probability": chosen.mask_probability,
        "seed": chosen.seed,
        "step": step,
    }
    return training_batch(tiny.packed_text["train"], vocabulary, **how)


def full_loss(model: EncoderForMaskedLM, batch) -> torch.Tensor:
    """Summed cross-entropy over a batch's targets by the head that runs everywhere."""
    labels = torch.full(batch.ids.shape, -100)
    labels.view(-1)[batch.places] = batch.targets
    return model(batch.ids, batch.mask, batch.segments, labels=labels).loss * len(batch.targets)


def plain_batches(tiny: Tiny, model: EncoderForMaskedLM):
    """The losses of the parts of each step's batch by the head over every place, as functions."""
    for step in range(tiny.run.settings.steps):
        batch = batch_of(tiny, step)
        of_all = len(batch.targets)
        torch.manual_seed(seed_of(tiny.run.settings.seed, step, 0))
        parts = batch.parts(tiny.run.settings.micro_batch_size)
        yield [lambda part=part, of_all=of_all: full_loss(model, part) / of_all for part in parts]


@pytest.mark.parametrize(
    "arm", [("add", {}), ("untied", {}), ("concat", {}), ("add", {"segments": "scores"})], ids=str
)
def test_pretraining_equals_plain_torch(tmp_path, arm):
    """Each step is clipped and as long as its gradient, dropout differs by step, and the last part is not full."""
    scratch = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.1}
    tiny = Tiny.of(
        tmp_path, *arm, scratch=scratch, steps=9, micro_batch_tokens=3 * LENGTH, adam_epsilon=1e-2,
        learning_rates=[0.05], clip_norm=0.1, weight_decay=0.1, warmup_ratio=0.3, segments="pairs",
    )  # fmt: skip
    left = tiny.finish()
    chosen = tiny.run.settings
    model = build_masked_lm(tiny.arm.start, chosen.seed, chosen.dropout)
    losses = plainly_trained(model, chosen, chosen.steps, plain_batches(tiny, model))
    assert [point.train_loss for point in left.record.losses] == pytest.approx(losses, abs=1e-6)
    assert 0 < left.record.segment_pairs <= 1
    start = build_masked_lm(tiny.arm.start, 1).state_dict()
    moved = []
    for name, tensor in tiny.weights(9).items():
        torch.testing.assert_close(tensor, model.state_dict()[name], rtol=0, atol=1e-6, msg=name)
        moved.append((tensor - start[name]).abs().max().item())
    assert max(moved) > 1e-3


def test_arms_share_their_fresh_modules():
    def drawn(seed, *arm):
        return build_masked_lm(
            Start(config(*arm, num_hidden_layers=2), {}, "scratch"), seed
        ).state_dict()

    reference, other = drawn(1), drawn(2)
    for arm in ARMS:
        if "position_start" in arm[1]:  # the option is another start of the table
            continue
        state = drawn(1, *arm)
        shared = [
            name
            for name in state
            if name in reference and state[name].shape == reference[name].shape
        ]
        assert len(shared) > 20
        assert [name for name in shared if not torch.equal(state[name], reference[name])] == [], arm
    differ = {name for name in reference if not torch.equal(other[name], reference[name])}
    assert differ == {name for name in reference if name.endswith("weight") and "norm" not in name}


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_dropout_of_pretraining_is_not_that_of_the_checkpoint(tmp_path, rate):
    tiny = Tiny.of(tmp_path / "its own", steps=3, dropout=rate)
    scratch = {"hidden_dropout_prob": rate, "attention_probs_dropout_prob": rate}
    expected = Tiny.of(tmp_path / "of all", scratch=scratch, steps=3).finish().record
    assert tiny.finish().record.train_loss == expected.train_loss
    kept = AutoModelForMaskedLM.from_pretrained(tiny.checkpoint(3)).config
    assert (kept.hidden_dropout_prob, kept.origin) == (0.1, "pretrained")
    assert not [name for name in tiny.weights(3) if "pooler" in name]
    tokenizer = AutoTokenizer.from_pretrained(tiny.checkpoint(3))
    assert tokenizer_digest(tokenizer) == tokenizer_digest(tiny.arm.tokenizer)


@pytest.mark.parametrize("compute", [CPU, BF16], ids=["float32", "bf16"])
def test_validation_is_the_mean_over_masked_tokens_and_told_by_document(
    tmp_path, monkeypatch, compute
):
    monkeypatch.setattr(packing, "PIECE_TOKENS", 40)
    tiny = Tiny.of(tmp_path, "untied", scratch=STILL, steps=2)
    left = tiny.finish(compute=compute)
    text, vocabulary = (
        tiny.packed_text["validation"],
        Vocabulary.of(tiny.arm.tokenizer),
    )
    model = EncoderForMaskedLM.from_pretrained(tiny.checkpoint(2)).eval()
    batches = list(masked_evaluation_batches(text, vocabulary, 0.15))
    count = sum(len(batch.targets) for batch in batches)
    with compute.autocast(), torch.inference_mode():
        expected = sum(full_loss(model, batch).item() for batch in batches) / count
    assert left.record.validation_loss == pytest.approx(
        expected, rel=1e-5 if compute == CPU else 1e-2
    )
    assert left.validation["loss_sum"].sum() / count == pytest.approx(
        left.record.validation_loss, rel=1e-12
    )
    assert left.validation["count"].sum() == count
    assert len(set(left.validation["count"])) > 1  # pieces do not count alike
    at = list[int]()  # the places of the targets in the text
    for first, batch in enumerate(batches):
        row, column = np.divmod(batch.places.numpy(), batch.ids.shape[1])
        at += (text.offsets[64 * first + row] + column).tolist()
    pieces = np.searchsorted(text.pieces[0], at, side="right") - 1
    assert (np.bincount(pieces, minlength=len(text.pieces[0])) == left.validation["count"]).all()
    assert (left.validation["document"] == text.pieces[1]).all()


def test_a_point_is_the_mean_since_the_last_one_and_no_more_are_measured_than_asked_for(
    tmp_path, monkeypatch
):
    every = Tiny.of(tmp_path / "every", steps=19, validations=10).finish().record.losses
    monkeypatch.setattr(module, "CURVE_POINTS", 7)
    some = Tiny.of(tmp_path / "some", steps=19, validations=10).finish().record.losses
    assert [point.step for point in every] == list(range(1, 20))
    validated = [point.step for point in some if point.validation_loss is not None]
    assert validated == [2, 4, 6, 8, 10, 12, 14, 16, 18, 19]
    steps = [point.step for point in some]
    assert sorted(set(steps) - set(validated)) == [3, 9, 11, 17]
    for first, point in zip([0, *steps], some, strict=False):
        mean = np.mean([each.train_loss for each in every[first : point.step]])
        assert point.train_loss == pytest.approx(mean, rel=1e-5)


def test_where_memory_is_short_it_goes_on_with_half_the_rows(tmp_path, monkeypatch):
    """There is room for two rows, and from the third step on for one."""
    passes = count()
    monkeypatch.setattr(module, "SAVE_SECONDS", 0)
    whole = Tiny.of(tmp_path / "whole", scratch=STILL, steps=4).finish().record
    monkeypatch.setitem(VARIANTS, "greedy", Greedy)
    monkeypatch.setattr(Greedy, "room", property(lambda _: 2 if next(passes) < 11 else 1))
    parted = Tiny.of(tmp_path / "parted", "greedy", scratch=STILL, steps=4).finish().record
    assert (whole.micro_batch_tokens, parted.micro_batch_tokens) == (8 * LENGTH, LENGTH)
    assert (parted.stream, parted.tokens) == (whole.stream, whole.tokens)
    assert [point.step for point in parted.losses] == [1, 2, 3, 4]
    assert parted.train_loss == pytest.approx(whole.train_loss, rel=1e-5)


def test_a_run_that_diverges_says_what_was_spent(tmp_path, monkeypatch):
    monkeypatch.setitem(VARIANTS, "diverging", Diverging)
    monkeypatch.setattr(Diverging, "in_training", False)
    with pytest.raises(
        DivergedPretrainingError, match="validation loss is nan at step 10"
    ) as caught:
        Tiny.of(tmp_path, "diverging").finish()
    record = caught.value.record
    assert [point.step for point in record.losses] == list(range(1, 10))
    assert record.steps == 10
    assert record.tokens > record.losses[-1].tokens
    assert record.seconds >= record.losses[-1].seconds


def test_a_batch_without_a_word_that_the_tokenizer_knows_is_no_divergence(tmp_path):
    (tmp_path / "rest.txt").write_text("\n".join(["Z " * LENGTH] * 120))
    left = Tiny.of(tmp_path, corpus=[str(tmp_path)], batch_tokens=LENGTH, steps=8).finish()
    assert np.isfinite(left.record.train_loss)


def test_the_rate_is_that_of_fine_tuning_or_stays_between_warm_up_and_decay():
    usual = {
        "corpus": ["x"],
        "steps": 10,
        "batch_tokens": 32,
        "length": 16,
        "learning_rates": [1.0],
    }
    for ratio in (0.0, 0.25, 1.0):
        linear = PretrainingSettings(**usual, warmup_ratio=ratio)
        assert all(
            rate_factor(linear, step) == linear_factor(step, 10, ratio) for step in range(10)
        )
    trapezoid = PretrainingSettings(
        **usual, schedule="trapezoid", warmup_ratio=0.25, decay_share=0.2
    )
    factors = [rate_factor(trapezoid, step) for step in range(10)]
    assert factors == pytest.approx([0, 1 / 3, 2 / 3, 1, 1, 1, 1, 1, 1, 0.5])


def test_the_facts_are_complete(tmp_path):
    tiny = Tiny.of(tmp_path)
    facts, text = tiny.finish().record, tiny.packed_text
    weights = {
        name.removeprefix("base."): tensor
        for name, tensor in tiny.weights().items()
        if name.startswith("base")
    }
    assert facts.weights == {20: weights_digest(weights)}
    assert facts.micro_batch_tokens == 8 * LENGTH
    assert facts.corpus_tokens == int(text["train"].lengths.sum())
    assert facts.validation_tokens == int(text["validation"].lengths.sum())
    assert (
        facts.tokens
        == facts.losses[-1].tokens
        == sum(batch_of(tiny, step).tokens for step in range(20))
    )
    assert facts.tokens_per_second == pytest.approx(facts.tokens / facts.seconds, rel=0.01)
    assert facts.peak_memory_bytes is None or facts.peak_memory_bytes > 1e7
    made = facts.environment
    assert (made.device, made.precision, made.threads) == ("cpu", "float32", 1)
    assert facts.seconds >= facts.losses[-1].seconds > 0
    search = Tiny.of(tmp_path / "search")
    left = replace(search, run=search.run.model_copy(update={"is_search": True})).finish().record
    assert (left.weights, left.validation_loss) == ({}, facts.validation_loss)


@pytest.mark.parametrize(
    ("losses", "arm"), [(20, ("concat", {})), (2, ("untied", {"segments": "scores"}))]
)
def test_a_run_that_was_interrupted_ends_with_the_same_bits(tmp_path, monkeypatch, losses, arm):
    """Also in the middle of a point's mean, and with other random numbers drawn meanwhile."""
    monkeypatch.setattr(module, "SAVE_SECONDS", 0)
    monkeypatch.setattr(module, "CURVE_POINTS", losses)
    whole, broken = (
        Tiny.of(tmp_path / name, *arm, checkpoints=[9], validations=2)
        for name in ("whole", "broken")
    )
    expected = whole.finish()
    for step in (10, 20):
        broken.stop_at(step)
        torch.manual_seed(step)
    assert broken.place.read_state()["progress"]["step"] == 20
    assert timeless(broken.finish()) == timeless(expected)
    for step in (9, 20):
        assert all(
            torch.equal(broken.weights(step)[name], tensor)
            for name, tensor in whole.weights(step).items()
        )


def end_process(*_):
    """As submitit's handler does when the time of a Slurm job is over."""
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
    """The signal comes in the middle of a step, of the one before a checkpoint, of the last, or in a validation."""
    monkeypatch.setitem(VARIANTS, "signalled", Signalled)
    whole, broken = (
        Tiny.of(tmp_path / name, "signalled", checkpoints=[9]) for name in ("whole", "broken")
    )
    expected = whole.finish()
    passes = count(1)

    def send(is_training):
        if is_training == in_training and next(passes) == nth:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(Signalled, "sends", staticmethod(send))
    before = signal.signal(number, handler)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        broken.finish()
    signal.signal(number, before)
    assert broken.place.read_state()["progress"]["step"] == step
    assert timeless(broken.finish()) == timeless(expected)
    for kept in (9, 20):
        assert all(
            torch.equal(broken.weights(kept)[name], tensor)
            for name, tensor in whole.weights(kept).items()
        )


def test_a_second_ctrl_c_cuts_a_step_in_two_and_leaves_the_last_whole_state(tmp_path, monkeypatch):
    monkeypatch.setitem(VARIANTS, "signalled", Signalled)
    monkeypatch.setattr(module, "SAVE_SECONDS", 0)
    tiny, passes = Tiny.of(tmp_path, "signalled"), count(1)

    def send(is_training):
        if is_training and next(passes) == 7:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Signalled, "sends", staticmethod(send))
    with pytest.raises(KeyboardInterrupt):
        tiny.finish()
    assert tiny.place.read_state()["progress"]["step"] == 6


def test_a_state_past_a_checkpoint_that_is_wanted_since_is_no_use(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SAVE_SECONDS", 0)
    tiny = Tiny.of(tmp_path)
    tiny.stop_at(12)
    left = Tiny.of(tmp_path, checkpoints=[5, 15]).finish()
    assert [*left.record.weights] == [5, 15, 20]
    assert all(
        tiny.inputs.store.checkpoints.has(tiny.run.id, step, digest)
        for step, digest in left.record.weights.items()
    )
    assert [point.step for point in left.record.losses] == list(range(1, 21))


def test_a_state_of_another_computer_or_damaged_is_refused_and_one_of_another_rate_no_use(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "SAVE_SECONDS", 0)
    tiny = Tiny.of(tmp_path)
    tiny.stop_at(4)
    path = tiny.place.folder / "resume.pt"
    whole, rate = path.read_bytes(), tiny.run.learning_rate
    assert tiny.place.resumed_state(CPU, rate)["progress"]["step"] == 4
    assert tiny.place.resumed_state(CPU, 1e-5) is None  # another search may have chosen it
    with pytest.raises(UserError, match="but this run computes on cuda in bf16"):
        tiny.place.resumed_state(replace(BF16, device=torch.device("cuda")), rate)
    other = f"'{path}' was computed on cpu in float32, but this run computes on cpu in bf16; "
    for content, compute, said in [
        (
            whole,
            BF16,
            f"{other}give --device cpu --precision float32, or delete it to start this arm anew",
        ),
        *(
            (whole[: int(kept * len(whole))], CPU, f"cannot read '{path}' (")
            for kept in (0, 0.5, 0.99)
        ),
    ]:
        path.write_bytes(content)
        before = tiny.files()
        with pytest.raises(UserError, match=re.escape(said)) as caught:
            tiny.finish(compute=compute)
        assert str(caught.value).endswith(
            "; delete it to start this arm anew" if content != whole else said
        )
        assert tiny.files() == before


def test_checkpoints_of_the_steps_asked_for_are_kept_and_replace_those_of_an_earlier_run(tmp_path):
    """As where the record was deleted, and the state with it, or a checkpoint is wanted since."""
    tiny = Tiny.of(tmp_path, checkpoints=[10, 5])
    tiny.finish()
    before = tiny.files()
    assert {path.name for path in tiny.place.folder.iterdir()} == {
        "resume.pt",
        "step-5",
        "step-10",
        "step-20",
    }
    assert not torch.equal(tiny.weights(5)["dense.weight"], tiny.weights(10)["dense.weight"])
    tiny.place.end()
    files = [tiny.checkpoint(step) / "model.safetensors" for step in (5, 10, 20)]
    for file in files:
        file.write_bytes(b"of a run that has no record")
    tiny.finish()
    assert all(file.read_bytes() == before[str(file)] for file in files)
