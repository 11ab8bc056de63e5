"""Pretraining an arm: the same stream and start for all of them, honest losses, and runs that can be killed."""

import gc
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny_pretraining import LENGTH, config, folder, fresh, task
from torch.nn.functional import cross_entropy
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

from glue_bench.errors import UserError
from glue_bench.model.checkpoints import Start, graft, read_checkpoint
from glue_bench.model.transformers_api import EncoderForMaskedLM, EncoderModel
from glue_bench.model.variants import VARIANTS
from glue_bench.training import pretrain as module
from glue_bench.training.loop import NonFiniteLossError
from glue_bench.training.masking import Vocabulary, evaluation_batches, training_batch
from glue_bench.training.pretrain import build_masked_lm, pretrain, trained_origin
from glue_bench.training.pretrained import PretrainingFolder
from glue_bench.training.tokenizers import tokenizer_digest

STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
SEGMENT_PLACES = [("add", {"segments": "none"}), ("untied", {"segments": "scores"}), ("concat", {"segments": "scores"})]
OTHER_OPTIONS = [("four-term", {"terms": ["word-word", "position-position"]}), ("diet-abs", {"rank": 4})]
ARMS = [*((name, {}) for name in VARIANTS), *SEGMENT_PLACES, *OTHER_OPTIONS]
TIMES = {"seconds", "tokens_per_second", "peak_memory_bytes"}


@pytest.fixture(autouse=True, scope="module")
def _frozen_imports():
    """Each run ends with a garbage collection; what the imports made would cost it 0.3 s every time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


class Stopped(Exception):
    """What ends a run from outside."""


def stop_at(step: int):
    def report(point):
        if point["step"] == step:
            raise Stopped

    return report


def weights(place: PretrainingFolder, step: int = 20) -> dict[str, torch.Tensor]:
    return load_file(place.checkpoint(step) / "model.safetensors")


def contents(place: PretrainingFolder) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in place.folder.rglob("*") if path.is_file()}


def timeless(outcome: dict) -> dict:
    """What must not differ between two runs: all but the times."""
    losses = [{key: value for key, value in point.items() if key != "seconds"} for point in outcome["losses"]]
    return {key: value for key, value in outcome.items() if key not in TIMES} | {"losses": losses}


@torch.no_grad()
def full_loss(model, batch) -> tuple[float, int]:
    """Summed cross-entropy over a batch's targets by the head that runs everywhere, and their number."""
    labels = torch.full(batch.ids.shape, -100)
    labels.view(-1)[batch.places] = batch.targets
    return float(model(batch.ids, batch.mask, labels=labels).loss) * len(batch.targets), len(batch.targets)


def first_batch(todo):
    chosen = todo.settings
    return training_batch(
        todo.text["train"],
        Vocabulary.of(todo.tokenizer),
        rows=chosen.rows,
        share=chosen.mask_probability,
        seed=chosen.seed,
        step=0,
    )


# What arms share


def test_all_arms_see_the_same_stream(tmp_path):
    todo = task(steps=3)
    outcomes = [pretrain(fresh(*arm), todo, folder(tmp_path / str(n))) for n, arm in enumerate(ARMS)]
    assert len({outcome["stream"] for outcome in outcomes}) == 1
    assert len({outcome["tokens"] for outcome in outcomes}) == 1
    assert len({outcome["train_loss"] for outcome in outcomes}) > 10


@pytest.mark.parametrize(
    "changes",
    [{"seed": 2}, {"steps": 5}, {"mask_probability": 0.3}, {"batch_tokens": 4 * LENGTH}, {"length": LENGTH - 4}],
    ids=str,
)
def test_another_setting_gives_another_stream(tmp_path, changes):
    first, other = (
        pretrain(fresh(), task(**{"steps": 4} | change), folder(tmp_path / str(change)))["stream"]
        for change in ({}, changes)
    )
    assert first != other


def test_the_stream_is_of_what_the_model_was_given(tmp_path, monkeypatch):
    def altered(*arguments, **options):
        batch = training_batch(*arguments, **options)
        return replace(batch, targets=batch.targets.flip(0)) if options["step"] == 2 else batch

    first = pretrain(fresh(), task(steps=4), folder(tmp_path / "first"))["stream"]
    monkeypatch.setattr(module, "training_batch", altered)
    assert pretrain(fresh(), task(steps=4), folder(tmp_path / "other"))["stream"] != first


def test_shared_modules_start_equal_in_all_arms():
    models = [build_masked_lm(fresh(*arm, num_hidden_layers=2), 1).state_dict() for arm in ARMS]
    reference = models[list(VARIANTS).index("add")]
    for (variant, options), state in zip(ARMS, models, strict=True):
        shared = [name for name in state if name in reference and state[name].shape == reference[name].shape]
        assert len(shared) > 20
        for name in shared:
            assert torch.equal(state[name], reference[name]), (variant, options, name)
    other = build_masked_lm(fresh(num_hidden_layers=2), 2).state_dict()
    differ = {name for name in reference if not torch.equal(other[name], reference[name])}
    assert differ == {name for name in reference if name.endswith("weight") and "norm" not in name}


@pytest.mark.parametrize("arm", ARMS, ids=str)
def test_the_seed_alone_decides_fresh_weights(arm):
    torch.manual_seed(5)
    first = build_masked_lm(fresh(*arm), 1).state_dict()
    torch.manual_seed(6)
    again = build_masked_lm(fresh(*arm), 1).state_dict()
    assert all(torch.equal(again[name], tensor) for name, tensor in first.items())


def test_no_two_modules_start_with_the_same_numbers():
    state = build_masked_lm(fresh("untied", num_hidden_layers=2), 1).state_dict()
    starts = [tuple(state[name].flatten()[16:24].tolist()) for name in state if state[name].ndim == 2]
    assert len(set(starts)) == len(starts) - 1  # the decoder is the words


def test_weights_that_a_start_has_are_kept(tmp_path):
    pretrain(fresh(), task(steps=4), folder(tmp_path))
    start = graft(read_checkpoint(str(tmp_path / "step-4")), "add", {})
    model = build_masked_lm(start, 7)
    assert all(torch.equal(model.base.state_dict()[name], tensor) for name, tensor in start.weights.items())
    assert {"dense.weight", "head_norm.weight", "decoder.bias"} <= set(start.head)
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in start.head.items())
    assert model.decoder.weight is model.base.variant.words.weight


@pytest.mark.parametrize("arm", ARMS, ids=str)
def test_every_weight_that_learns_gets_a_gradient(arm):
    """Else data parallelism waits for it for ever."""
    model = build_masked_lm(fresh(*arm), 1)
    batch = first_batch(task())
    model(batch.ids, batch.mask, places=batch.places).logits.sum().backward()
    assert [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None] == []
    assert {name.split(".")[1] for name, p in model.named_parameters() if not p.requires_grad} == {"pooler"}


# Losses


def test_the_loss_falls(tmp_path):
    losses = pretrain(fresh(hidden_size=32), task(steps=60, learning_rate=1e-2), folder(tmp_path))["losses"]
    validations = [point["validation_loss"] for point in losses if point["validation_loss"] is not None]
    assert len(validations) == 2
    assert losses[0]["train_loss"] == pytest.approx(np.log(65), abs=0.3)  # nothing known yet
    assert max(losses[-1]["train_loss"], *validations) < np.log(12) + 0.3  # which twelve words there are


def test_the_losses_are_those_of_the_full_head(tmp_path):
    todo = task(steps=1, learning_rate=1e-12, weight_decay=0.0)
    outcome = pretrain(fresh("untied", **STILL), todo, folder(tmp_path))
    model = build_masked_lm(fresh("untied", **STILL), todo.settings.seed).eval()
    total, count = full_loss(model, first_batch(todo))
    assert outcome["train_loss"] == pytest.approx(total / count, rel=1e-5)
    held_out = evaluation_batches(todo.text["validation"], Vocabulary.of(todo.tokenizer), 0.15, 1)
    parts = [full_loss(model, batch) for batch in held_out]
    expected = sum(total for total, _ in parts) / sum(count for _, count in parts)
    assert outcome["validation_loss"] == pytest.approx(expected, rel=1e-5)


def test_a_point_is_the_mean_since_the_last_one(tmp_path, monkeypatch):
    every = pretrain(fresh(), task(), folder(tmp_path / "every"))["losses"]
    monkeypatch.setattr(module, "LOSSES", 4)
    fourth = pretrain(fresh(), task(), folder(tmp_path / "fourth"))["losses"]
    assert [point["step"] for point in every] == list(range(1, 21))
    assert [point["step"] for point in fourth] == [5, 10, 15, 20]
    for number, point in enumerate(fourth):
        mean = np.mean([one["train_loss"] for one in every[5 * number : 5 * number + 5]])
        assert point["train_loss"] == pytest.approx(mean, rel=1e-5)
    assert [point["validation_loss"] is None for point in fourth] == [True, False, True, False]


def test_validation_and_points_do_not_change_training(tmp_path, monkeypatch):
    often = folder(tmp_path / "often")
    pretrain(fresh(), task(validations=20), often)
    monkeypatch.setattr(module, "LOSSES", 1)
    seldom = folder(tmp_path / "seldom")
    pretrain(fresh(), task(validations=1), seldom)
    assert all(torch.equal(weights(often)[name], tensor) for name, tensor in weights(seldom).items())


# With a large epsilon Adam's steps are proportional to the gradient, so that a wrong one shows.
@pytest.mark.parametrize("micro", [1, 3, 8])
@pytest.mark.parametrize("variant", ["add", "untied"])
def test_micro_batches_give_the_gradient_of_the_whole(tmp_path, micro, variant):
    plain = {"steps": 3, "adam_epsilon": 1.0, "learning_rate": 1.0, "warmup_ratio": 0.0, "clip_norm": 1e6}
    whole, parts = folder(tmp_path / "whole"), folder(tmp_path / "parts")
    expected = pretrain(fresh(variant, **STILL), task(**plain), whole)
    outcome = pretrain(fresh(variant, **STILL), task(**plain, micro_batch_tokens=micro * LENGTH), parts)
    assert outcome["stream"] == expected["stream"]
    for one, other in zip(outcome["losses"], expected["losses"], strict=True):
        assert one["train_loss"] == pytest.approx(other["train_loss"], rel=1e-5)
    moved = False
    start = build_masked_lm(fresh(variant, **STILL), 1).state_dict()
    for name, tensor in weights(whole, 3).items():
        torch.testing.assert_close(weights(parts, 3)[name], tensor, rtol=1e-4, atol=1e-6)
        moved = moved or not torch.allclose(tensor, start[name], atol=1e-3)
    assert moved


def test_a_loss_that_is_no_number_ends_the_run(tmp_path):
    start = Start(config(), {"norm.weight": torch.full((16,), float("nan"))}, "pretrained")
    place = folder(tmp_path)
    with pytest.raises(NonFiniteLossError, match="masked-LM loss is nan at step 1"):
        pretrain(start, task(), place)
    assert not place.checkpoint(20).exists()


# Interruptions


@pytest.mark.parametrize("arm", [("add", {}), ("concat", {}), ("untied", {"segments": "scores"})], ids=str)
def test_a_run_that_was_interrupted_ends_with_the_same_bits(tmp_path, arm):
    todo = task(checkpoints=[9])
    whole, broken = folder(tmp_path / "whole"), folder(tmp_path / "broken")
    expected = pretrain(fresh(*arm), todo, whole)
    for step in (7, 8, 15):
        with pytest.raises(Stopped):
            pretrain(fresh(*arm), todo, broken, stop_at(step), save_seconds=0)
        torch.manual_seed(step)
    assert broken.read_state()["progress"]["step"] == 14
    steps = []
    outcome = pretrain(fresh(*arm), todo, broken, lambda point: steps.append(point["step"]))
    assert steps == list(range(15, 21))
    assert timeless(outcome) == timeless(expected)
    for step in (9, 20):
        for name, tensor in weights(whole, step).items():
            assert torch.equal(weights(broken, step)[name], tensor)


def test_the_mean_of_a_point_survives_an_interruption(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LOSSES", 2)
    expected = pretrain(fresh(), task(), folder(tmp_path / "whole"))
    batches = []

    def failing(*arguments, **options):
        batches.append(options["step"])
        if batches == list(range(8)):
            raise Stopped
        return training_batch(*arguments, **options)

    monkeypatch.setattr(module, "training_batch", failing)
    broken = folder(tmp_path / "broken")
    with pytest.raises(Stopped):
        pretrain(fresh(), task(), broken, save_seconds=0)
    assert timeless(pretrain(fresh(), task(), broken)) == timeless(expected)
    assert batches[8:] == list(range(7, 20))


def test_a_run_that_had_ended_only_says_so_again(tmp_path, monkeypatch):
    place = folder(tmp_path)
    first = pretrain(fresh(), task(), place)
    before = contents(place)
    monkeypatch.setattr(module, "training_batch", None)
    again = pretrain(fresh(), task(), place)
    assert timeless(again) == timeless(first)
    assert again["seconds"] == first["seconds"]
    assert contents(place) == before


def test_a_state_past_a_checkpoint_that_is_wanted_since_is_no_use(tmp_path):
    place = folder(tmp_path)
    with pytest.raises(Stopped):
        pretrain(fresh(), task(), place, stop_at(12), save_seconds=0)
    outcome = pretrain(fresh(), task(checkpoints=[5, 15]), place)
    assert not place.lacks([5, 15, 20])
    assert [point["step"] for point in outcome["losses"]] == list(range(1, 21))


def test_states_are_saved_when_their_time_has_come(tmp_path, monkeypatch):
    saved = []
    monkeypatch.setattr(PretrainingFolder, "save_state", lambda _, state: saved.append(state["progress"]["step"]))
    pretrain(fresh(), task(steps=3), folder(tmp_path / "never"))
    assert saved == [3]  # the last one: its record is not written yet
    monkeypatch.setattr(module, "SAVE_SECONDS", 0)
    pretrain(fresh(), task(steps=3), folder(tmp_path / "always"))
    assert saved == [3, 1, 2, 3]


def test_seconds_are_those_of_training_alone(tmp_path, monkeypatch):
    clock = [0.0]

    def taking(seconds, what):
        def slow(*arguments, **options):
            clock[0] += seconds
            return what(*arguments, **options)

        return slow

    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    monkeypatch.setattr(module, "training_batch", taking(0.5, training_batch))
    monkeypatch.setattr(module, "evaluation_batches", taking(100, evaluation_batches))
    for name in ("save_checkpoint", "save_state"):
        monkeypatch.setattr(PretrainingFolder, name, taking(1000, getattr(PretrainingFolder, name)))
    outcome = pretrain(fresh(), task(checkpoints=[5]), folder(tmp_path), save_seconds=3)
    assert clock[0] > 5000
    assert outcome["seconds"] == 10
    assert outcome["tokens_per_second"] == round(outcome["tokens"] / 10, 1)
    assert [point["seconds"] for point in outcome["losses"]] == [0.5 * step for step in range(1, 21)]


# The folder


def refused(call, place: PretrainingFolder) -> str:
    """The message, and that nothing was touched."""
    before = contents(place)
    with pytest.raises(UserError) as caught:
        call()
    assert contents(place) == before
    return str(caught.value)


def test_a_folder_of_another_configuration_is_refused(tmp_path):
    place = folder(tmp_path, variant="add", seed=1, corpus="a")
    place.prepare()
    other = PretrainingFolder(tmp_path, {"variant": "add", "seed": 2, "data": "a"})
    message = refused(other.prepare, place)
    assert f"'{tmp_path}' holds a pretraining of another configuration (it differs in corpus, data, seed)" in message
    assert "move it away, or choose another folder with --results" in message


@pytest.mark.parametrize("damaged", [b"", b'{"variant": "a', b"[1]", b"null"], ids=repr)
def test_a_damaged_identity_is_refused(tmp_path, damaged):
    place = folder(tmp_path)
    (tmp_path / "identity.json").write_bytes(damaged)
    assert "identity.json' is damaged (" in refused(place.prepare, place)


def interrupted(path, **identity) -> PretrainingFolder:
    place = folder(path, **identity)
    with pytest.raises(Stopped):
        pretrain(fresh(), task(), place, stop_at(4), save_seconds=0)
    return place


def test_the_state_of_another_configuration_is_refused(tmp_path):
    place = interrupted(tmp_path, seed=1)
    place.identity["seed"] = 2
    message = refused(lambda: pretrain(fresh(), task(), place), place)
    expected = f"'{tmp_path / 'resume.pt'}' is the state of another configuration; delete it to start this arm anew"
    assert message == expected
    torch.save([1, 2], tmp_path / "resume.pt")
    assert refused(lambda: pretrain(fresh(), task(), place), place) == expected


@pytest.mark.parametrize("damage", ["empty", "cut", "half", "garbage"])
def test_a_damaged_state_is_refused(tmp_path, damage):
    place = interrupted(tmp_path)
    path = tmp_path / "resume.pt"
    whole = path.read_bytes()
    damaged = {"empty": b"", "cut": whole[:-1], "half": whole[: len(whole) // 2], "garbage": b"garbage\n" * 20}
    path.write_bytes(damaged[damage])
    message = refused(lambda: pretrain(fresh(), task(), place), place)
    assert message.startswith(f"cannot read '{path}' (")
    assert message.endswith("); delete it to start this arm anew")
    assert "\n" not in message


def test_what_a_kill_left_half_written_goes_with_the_state(tmp_path):
    place = interrupted(tmp_path)
    (tmp_path / ".resume.pt.x1").write_bytes(b"half")
    (tmp_path / ".making-x2").mkdir()
    (tmp_path / ".making-x2" / "model.safetensors").write_bytes(b"half")
    pretrain(fresh(), task(), place)
    place.drop_state()
    place.drop_state()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["identity.json", "step-20"]


# Checkpoints


@pytest.mark.parametrize(
    ("before", "after"), [("scratch", "pretrained"), ("grafted", "adapted"), ("pretrained", "pretrained"),
                          ("adapted", "adapted")]
)  # fmt: skip
def test_pretraining_changes_the_origin(tmp_path, before, after):
    start = replace(fresh(), origin=before)
    assert trained_origin(before) == after
    pretrain(start, task(steps=1), folder(tmp_path))
    stored = json.loads((tmp_path / "step-1" / "config.json").read_text())
    assert stored["origin"] == after
    assert graft(read_checkpoint(str(tmp_path / "step-1")), "add", {}).origin == after


@pytest.mark.parametrize("variant", ["add", "concat", "untied", "disentangled"])
def test_a_checkpoint_is_transformers(tmp_path, variant):
    todo = task()
    place = folder(tmp_path)
    outcome = pretrain(fresh(variant, hidden_dropout_prob=0.0), todo, place)
    where = str(place.checkpoint(20))
    assert not [name for name in weights(place) if "pooler" in name]
    model = AutoModelForMaskedLM.from_pretrained(where).eval()
    assert isinstance(model, EncoderForMaskedLM)
    assert model.config.variant == variant
    held_out = evaluation_batches(todo.text["validation"], Vocabulary.of(todo.tokenizer), 0.15, 1)
    total = count = 0
    with torch.inference_mode():
        for batch in held_out:
            logits = model(batch.ids, batch.mask, places=batch.places).logits
            total += float(cross_entropy(logits, batch.targets, reduction="sum"))
            count += len(batch.targets)
    assert outcome["validation_loss"] == pytest.approx(total / count, rel=1e-5)
    base = AutoModel.from_pretrained(where)
    assert isinstance(base, EncoderModel)
    assert all(
        torch.equal(tensor, model.base.state_dict()[name])
        for name, tensor in base.state_dict().items()
        if not name.startswith("pooler.")
    )
    assert tokenizer_digest(AutoTokenizer.from_pretrained(where)) == tokenizer_digest(todo.tokenizer)


def test_checkpoints_of_the_steps_asked_for_are_kept(tmp_path):
    place = folder(tmp_path)
    pretrain(fresh(), task(checkpoints=[10, 5]), place)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "identity.json", "resume.pt", "step-10", "step-20", "step-5",
    ]  # fmt: skip
    assert not torch.equal(weights(place, 5)["dense.weight"], weights(place, 10)["dense.weight"])


def test_an_outcome_says_what_was_spent(tmp_path):
    todo = task()
    outcome = pretrain(fresh(), todo, folder(tmp_path))
    assert outcome["steps"] == 20
    assert outcome["processes"] == 1
    assert 0 < outcome["tokens"] <= 20 * 8 * LENGTH
    assert outcome["corpus_tokens"] == int(todo.text["train"].lengths.sum())
    assert outcome["validation_tokens"] == int(todo.text["validation"].lengths.sum())
    assert outcome["tokens"] == outcome["losses"][-1]["tokens"]
    assert outcome["peak_memory_bytes"] is None or outcome["peak_memory_bytes"] > 1e7
    assert len(outcome["stream"]) == 64
