"""A pretraining on disk: runs that can be killed, checkpoints that others can read."""

import json
from dataclasses import replace

import pytest
import torch
from tiny_pretraining import CPU, STILL, Stopped, Tiny, timeless
from torch.nn.functional import cross_entropy
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

from glue_bench.errors import UserError
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.training import pretrain as module
from glue_bench.training import pretrained
from glue_bench.training.inputs import TRAINED
from glue_bench.training.masking import Vocabulary, evaluation_batches
from glue_bench.training.pretrained import PretrainingFolder
from glue_bench.training.tokenizers import tokenizer_digest

# Interruptions


@pytest.mark.parametrize("losses", [20, 2], ids=["a point a step", "two points"])
@pytest.mark.parametrize("arm", [("add", {}), ("concat", {}), ("untied", {"segments": "scores"})], ids=str)
def test_a_run_that_was_interrupted_ends_with_the_same_bits(tmp_path, monkeypatch, arm, losses):
    """Also in the middle of a point's mean, and with other random numbers drawn meanwhile."""
    monkeypatch.setattr(module, "SAVE_SECONDS", 0)
    monkeypatch.setattr(module, "LOSSES", losses)
    whole, broken = (Tiny.of(tmp_path / name, *arm, checkpoints=[9], validations=2) for name in ("whole", "broken"))
    expected = whole.finish()
    for step in (10, 20):
        with pytest.raises(Stopped):
            broken.finish(stop=step)
        torch.manual_seed(step)
    assert broken.place.read_state()["progress"]["step"] == 19
    assert timeless(broken.finish()) == timeless(expected)
    for step in (9, 20):
        assert all(torch.equal(broken.weights(step)[name], tensor) for name, tensor in whole.weights(step).items())


def test_a_state_past_a_checkpoint_that_is_wanted_since_is_no_use(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SAVE_SECONDS", 0)
    tiny = Tiny.of(tmp_path)
    with pytest.raises(Stopped):
        tiny.finish(stop=12)
    left = Tiny.of(tmp_path, checkpoints=[5, 15]).finish()
    assert [*left.facts["weights"]] == [5, 15, 20]
    assert all(tiny.place.holds(step, digest) for step, digest in left.facts["weights"].items())
    assert [point["step"] for point in left.facts["losses"]] == list(range(1, 21))


def test_states_are_saved_when_their_time_has_come(tmp_path, monkeypatch):
    seldom = Tiny.of(tmp_path / "seldom")
    with pytest.raises(Stopped):
        seldom.finish(stop=19)
    assert seldom.place.read_state() is None
    seldom.finish()
    assert seldom.place.read_state()["progress"]["step"] == 20  # its record is not written yet
    monkeypatch.setattr(module, "SAVE_SECONDS", 0)
    always = Tiny.of(tmp_path / "always")
    with pytest.raises(Stopped):
        always.finish(stop=4)
    assert always.place.read_state()["progress"]["step"] == 3


# The folder


def refused(call, folder: PretrainingFolder) -> str:
    """The message, and that nothing was touched."""

    def contents():
        return {path: path.read_bytes() for path in folder.folder.rglob("*") if path.is_file()}

    before = contents()
    with pytest.raises(UserError) as caught:
        call()
    assert contents() == before
    return str(caught.value)


@pytest.fixture
def interrupted(tmp_path, monkeypatch):
    """A pretraining with a state to go on from."""
    tiny = Tiny.of(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(module, "SAVE_SECONDS", 0)
        with pytest.raises(Stopped):
            tiny.finish(stop=4)
    return tiny


def test_the_state_of_another_rate_is_no_use(interrupted):
    """Another search may have chosen another one."""
    other = replace(interrupted, run=interrupted.run.model_copy(update={"rate": 1e-5}))
    assert other.place.resumed_state(CPU, 1e-5) is None
    expected = interrupted.place.resumed_state(CPU, interrupted.run.learning_rate)
    assert expected["progress"]["step"] == 3


def test_a_run_of_a_search_keeps_no_weights(tmp_path):
    tiny = Tiny.of(tmp_path)
    search = replace(tiny, run=tiny.run.model_copy(update={"is_search": True}))
    left = search.finish()
    assert left.facts["weights"] == {}
    assert left.facts["validation_loss"] > 0
    assert not search.checkpoint().exists()


def test_the_state_of_another_device_or_precision_is_refused(interrupted):
    place, bf16 = interrupted.place, replace(CPU, bf16=True)
    assert refused(lambda: interrupted.finish(compute=bf16), place) == (
        f"'{place.folder / 'resume.pt'}' was computed on cpu in float32, but this run computes on cpu in bf16; "
        "give --device cpu --precision float32, or delete it to start this arm anew"
    )
    gpu = replace(bf16, device=torch.device("cuda"))
    assert "but this run computes on cuda in bf16" in refused(lambda: place.resumed_state(gpu, 3e-3), place)


@pytest.mark.parametrize("damage", ["empty", "cut", "half", "garbage", "text"])
def test_a_damaged_state_is_refused(interrupted, damage):
    path = interrupted.place.folder / "resume.pt"
    whole = path.read_bytes()
    path.write_bytes(
        {
            "empty": b"",
            "cut": whole[:-1],
            "half": whole[: len(whole) // 2],
            "garbage": b"garbage\n" * 20,
            "text": b"half a state",
        }[damage]
    )
    message = refused(interrupted.finish, interrupted.place)
    assert message.startswith(f"cannot read '{path}' (")
    assert message.endswith("); delete it to start this arm anew")
    assert "\n" not in message


@pytest.mark.parametrize("error", [MemoryError(), OSError(12, "Cannot allocate memory")], ids=type)
def test_a_state_for_which_memory_is_short_is_not_damaged(interrupted, monkeypatch, error):
    def short(*_, **__):
        raise error

    monkeypatch.setattr(torch, "load", short)
    with pytest.raises(type(error)):
        interrupted.place.read_state()


def test_what_may_not_be_read_is_not_to_be_deleted(interrupted, monkeypatch):
    def denied(path, *_):
        raise PermissionError(13, "Permission denied", str(path))

    place = interrupted.place
    monkeypatch.setattr(pretrained, "opened_zip", denied)
    message = refused(place.read_state, place)
    assert message.startswith("cannot read '")
    assert "Permission denied" in message
    assert "delete" not in message


def test_what_a_kill_left_half_written_goes_with_the_state(interrupted):
    folder = interrupted.place.folder
    (folder / ".resume.pt.x1").write_bytes(b"half")
    (folder / ".making-x2").mkdir()
    (folder / ".making-x2" / "model.safetensors").write_bytes(b"half")
    interrupted.finish()
    interrupted.place.drop_state()
    interrupted.place.drop_state()
    assert sorted(path.name for path in folder.iterdir()) == ["step-20"]


# Checkpoints


def test_checkpoints_of_the_steps_asked_for_are_kept_and_replace_those_of_an_earlier_run(tmp_path):
    """As where the record was deleted, and the state with it, or a checkpoint is wanted since."""
    tiny = Tiny.of(tmp_path, checkpoints=[10, 5])
    tiny.finish()
    names = ["resume.pt", "step-10", "step-20", "step-5"]
    assert sorted(path.name for path in tiny.place.folder.iterdir()) == names
    assert not torch.equal(tiny.weights(5)["dense.weight"], tiny.weights(10)["dense.weight"])
    before = tiny.files()
    tiny.place.drop_state()
    for step in (5, 10, 20):
        (tiny.checkpoint(step) / "model.safetensors").write_bytes(b"of a run that has no record")
    tiny.finish()
    weights = {name: content for name, content in before.items() if name.endswith("model.safetensors")}
    assert {name: tiny.files()[name] for name in weights} == weights


@pytest.mark.parametrize("variant", ["add", "concat", "untied", "disentangled"])
def test_a_checkpoint_is_transformers(tmp_path, variant):
    tiny = Tiny.of(tmp_path, variant, scratch=STILL)
    left, where = tiny.finish(), str(tiny.checkpoint(20))
    assert not [name for name in tiny.weights() if "pooler" in name]
    assert json.loads((tiny.checkpoint(20) / "config.json").read_text())["origin"] == TRAINED["scratch"]
    model = AutoModelForMaskedLM.from_pretrained(where).eval()
    assert isinstance(model, EncoderForMaskedLM)
    assert model.config.variant == variant
    tokenizer, total, count = tiny.inputs.tokenizer(tiny.arm), 0.0, 0
    with torch.inference_mode():
        for batch in evaluation_batches(tiny.inputs.text(tiny.arm)["validation"], Vocabulary.of(tokenizer), 0.15):
            logits = model(batch.ids, batch.mask, places=batch.places).logits
            total += float(cross_entropy(logits, batch.targets, reduction="sum"))
            count += len(batch.targets)
    assert left.facts["validation_loss"] == pytest.approx(total / count, rel=1e-5)
    base = AutoModel.from_pretrained(where)
    assert isinstance(base, EncoderModel)
    loaded = {name: tensor for name, tensor in base.state_dict().items() if not name.startswith("pooler.")}
    assert all(torch.equal(tensor, model.base.state_dict()[name]) for name, tensor in loaded.items())
    assert tokenizer_digest(AutoTokenizer.from_pretrained(where)) == tokenizer_digest(tokenizer)
