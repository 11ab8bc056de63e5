"""A pretraining on disk: runs that can be killed, folders that are never mixed up, checkpoints that others can read."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from tiny_pretraining import Stopped, contents, folder, fresh, pretrain, stop_at, task, timeless, weights
from torch.nn.functional import cross_entropy
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

from glue_bench.errors import UserError
from glue_bench.model.checkpoints import graft, read_checkpoint
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.training import pretrain as module
from glue_bench.training import pretrained
from glue_bench.training.loop import NonFiniteLossError
from glue_bench.training.masking import Vocabulary, evaluation_batches, training_batch
from glue_bench.training.pretrain import trained_origin
from glue_bench.training.pretrained import PretrainingFolder
from glue_bench.training.tokenizers import tokenizer_digest

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
    outcome = pretrain(fresh(*arm), todo, broken, lambda point: steps.append(point.step))
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


def test_a_last_update_that_diverges_is_a_divergence_and_says_what_was_spent(tmp_path, monkeypatch):
    """The losses of all updates are finite, also where a killed run went on: each point is there once."""
    place, step = folder(tmp_path), module._PretrainingRun._step

    def last_is_nan(self, batch):
        loss = step(self, batch)
        if self.state.step == 19:
            with torch.no_grad():
                self.inner.base.norm.weight.fill_(float("nan"))
        return loss

    monkeypatch.setattr(module._PretrainingRun, "_step", last_is_nan)
    with pytest.raises(Stopped):
        pretrain(fresh(), task(), place, stop_at(12), save_seconds=0)
    with pytest.raises(NonFiniteLossError, match="validation loss is nan at step 20") as caught:
        pretrain(fresh(), task(), place)
    spent = caught.value.spent
    assert [point["step"] for point in spent["losses"]] == list(range(1, 20))
    assert (spent["steps"], spent["tokens"] > spent["losses"][-1]["tokens"]) == (20, True)
    assert spent["seconds"] >= spent["losses"][-1]["seconds"]


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


def test_the_state_of_another_device_or_precision_is_refused(tmp_path, monkeypatch):
    place = interrupted(tmp_path)
    monkeypatch.setattr(pretrained, "precision_name", lambda: "bf16")
    assert refused(lambda: pretrain(fresh(), task(), place), place) == (
        f"'{tmp_path / 'resume.pt'}' was computed on cpu in float32, but this run computes on cpu in bf16; "
        "give --device cpu --precision float32, or delete it to start this arm anew"
    )
    gpu = SimpleNamespace(device=torch.device("cuda"))
    monkeypatch.setattr(pretrained, "accelerator", lambda: gpu)
    assert "on cpu in float32, but this run computes on cuda in bf16" in refused(place.resumed_state, place)
    place.read_state()  # a sweep's main process looks at what workers go on from


def test_a_state_that_does_not_say_where_it_was_computed_goes_on(tmp_path):
    expected = pretrain(fresh(), task(), folder(tmp_path / "whole"))
    place = interrupted(tmp_path / "broken")
    state = place.read_state()
    assert state.pop("computed") == {"device": "cpu", "precision": "float32"}
    torch.save(state, place.folder / "resume.pt")
    assert timeless(pretrain(fresh(), task(), place)) == timeless(expected)


@pytest.mark.parametrize("damage", ["empty", "cut", "half", "garbage", "text"])
def test_a_damaged_state_is_refused(tmp_path, damage):
    place = interrupted(tmp_path)
    path = tmp_path / "resume.pt"
    whole = path.read_bytes()
    damaged = {
        "empty": b"",
        "cut": whole[:-1],
        "half": whole[: len(whole) // 2],
        "garbage": b"garbage\n" * 20,
        "text": b"half a state",
    }
    path.write_bytes(damaged[damage])
    message = refused(lambda: pretrain(fresh(), task(), place), place)
    assert message.startswith(f"cannot read '{path}' (")
    assert message.endswith("); delete it to start this arm anew")
    assert "\n" not in message


@pytest.mark.parametrize("error", [MemoryError(), OSError(12, "Cannot allocate memory")], ids=type)
def test_a_state_for_which_memory_is_short_is_not_damaged(tmp_path, monkeypatch, error):
    def short(*_, **__):
        raise error

    place = interrupted(tmp_path)
    monkeypatch.setattr(torch, "load", short)
    with pytest.raises(type(error)):
        place.read_state()


def test_what_may_not_be_read_is_not_to_be_deleted(tmp_path, monkeypatch):
    def denied(path, *_):
        raise PermissionError(13, "Permission denied", str(path))

    place = folder(tmp_path)
    for name, call in (("opened_zip", place.read_state), ("read_file", place.prepare)):
        (tmp_path / "resume.pt").touch()
        monkeypatch.setattr(pretrained, name, denied)
        message = refused(call, place)
        assert message.startswith("cannot read '")
        assert "Permission denied" in message
        assert "delete" not in message


def test_memory_that_is_short_is_no_fault_of_the_disk(tmp_path, monkeypatch):
    def short(*_):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(pretrained, "write_checksums", short)
    with pytest.raises(OSError, match="Cannot allocate memory"):
        pretrain(fresh(), task(steps=1), folder(tmp_path))


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


def test_a_checkpoint_of_an_earlier_run_is_replaced(tmp_path):
    """As where the record was deleted, and the state with it, or a checkpoint is wanted since."""
    place = folder(tmp_path)
    pretrain(fresh(), task(steps=2), place)
    before = weights(place, 2)["dense.weight"]
    place.drop_state()
    pretrain(fresh(), task(steps=2, learning_rate=1e-2), place)
    assert not torch.equal(weights(place, 2)["dense.weight"], before)


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
    held_out = evaluation_batches(todo.text["validation"], Vocabulary.of(todo.tokenizer), 0.15)
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
