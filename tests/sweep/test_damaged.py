"""Damaged files on resume: made anew, run again, or one line that names the file and what to do. Never believed."""

import shutil
import zipfile
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from tiny_sweeps import contents, pretrainings, records

from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.training import pretrain as training

pytestmark = pytest.mark.usefixtures("small_demo")
POWER_CUT = {"empty": b"", "half": b'{"cell', "zeros": b"\0" * 300}


def flip(path: Path, place: int | None = None) -> None:
    """Change one bit, in the middle of a file unless told where."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if place is None else place] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("content", POWER_CUT.values(), ids=POWER_CUT)
def test_a_record_that_is_damaged_is_run_again_and_everything_else_written_anew(sweep, tiny, content):
    folder = sweep(tiny(arms=["add"])).folder
    before = contents(folder)
    path = min(folder.glob("cells/*/record.json"))
    for each in (path, folder / "plan.json"):
        each.write_bytes(content)
    dry = sweep(tiny(arms=["add"]), dry_run=True)
    assert dry.reasons == {"its record is damaged": 1}
    again = sweep(tiny(arms=["add"]))
    assert (again.skipped, again.finished, again.failed) == (1, 1, {})
    assert contents(folder).keys() == before.keys()
    assert (folder / "plan.json").read_bytes() == before["plan.json"]


def test_a_damaged_cache_is_made_anew(sweep, pretrained, monkeypatch, tmp_path):
    """Packed text, tokenised tasks and the trained tokenizer, each with one bit changed."""
    monkeypatch.setenv("GLUE_BENCH_CACHE", str(tmp_path / "cache"))
    whole = records(sweep(pretrained(arms=["add"], name="whole")))
    kinds = {"corpora": "train.ids", "tokens": "train.ids.npy", "tokenizers": "tokenizer.json"}
    paths = [next((tmp_path / "cache" / kind).rglob(name)) for kind, name in kinds.items()]
    before = [path.read_bytes() for path in paths]
    for path in paths:
        flip(path)
    assert records(sweep(pretrained(arms=["add"])))["add cola"].history == whole["add cola"].history
    assert [path.read_bytes() for path in paths] == before


# Weights that cells start from


@pytest.mark.parametrize("what", ["record", "weights", "stamp"])
def test_a_pretraining_that_lost_something_is_made_again_and_recognised(sweep, pretrained, what):
    folder = sweep(pretrained(arms=["add"])).folder
    (before,) = pretrainings(sweep(pretrained(arms=["add"])))
    if what == "record":
        next(folder.glob("pretrainings/*/record.json")).write_bytes(b"")
    elif what == "weights":
        shutil.rmtree(next(folder.glob("checkpoints/*/step-10")))
    else:
        next(folder.glob("checkpoints/*/step-10/weights.digest")).write_text("0" * 64)
    summary = sweep(pretrained(arms=["add"], seeds=[1, 2]))
    assert (summary.finished, sweep.started) == (1, ["add pretraining", "add cola"])
    (after,) = pretrainings(summary)
    assert (after.weights, after.stream) == (before.weights, before.stream)


def test_a_damaged_checkpoint_of_a_pretraining_is_named(sweep, pretrained):
    folder = sweep(pretrained(arms=["add"])).folder
    (path,) = folder.glob("checkpoints/*/step-10/model.safetensors")
    weights = load_file(path)
    weights["base.norm.weight"][0] += 1e-6
    save_file(weights, path, metadata={"format": "pt"})
    for dry_run in (True, False):
        with pytest.raises(UserError) as caught:
            sweep(pretrained(arms=["add"], seeds=[1, 2]), dry_run=dry_run)
        assert str(caught.value) == (
            f"'{path.parent}' is damaged: its weights are not those of its record; delete it, and the same command "
            "makes it again"
        )
    shutil.rmtree(path.parent)
    assert sweep(pretrained(arms=["add"], seeds=[1, 2])).finished == 1


def test_checkpoints_of_two_runs_are_not_taken_for_one(sweep, pretrained):
    """Those of the record are lost; one was made anew elsewhere, with other weights, before that was cut off."""
    values = pretrained({"checkpoints": [3], "finetune_checkpoints": True}, arms=["add"])
    summary = sweep(values)
    store, (made,) = Store(summary.folder), pretrainings(summary)
    name = made.pretraining.id
    shutil.rmtree(store.checkpoint(name, 10))
    (store.checkpoint(name, 3) / "weights.digest").write_text("0" * 64)
    assert sweep(values | {"seeds": [1, 2]}, only=["steps=3"]).finished == 1
    assert sweep.started == ["add pretraining", "add cola"]
    (again,) = pretrainings(summary)
    assert again.weights == made.weights
    assert all(store.holds(name, step, made.weights[step]) for step in (3, 10))


# The state that a pretraining goes on from


@pytest.fixture
def state(sweep, pretrained, moody, monkeypatch) -> Path:
    """What an interrupted pretraining has left to go on from."""
    with monkeypatch.context() as patch:
        patch.setattr(training, "SAVE_SECONDS", 0)
        moody(KeyboardInterrupt(), at=5)
        folder = sweep(pretrained(arms=["moody"])).folder
    moody(None)
    (path,) = folder.glob("checkpoints/*/resume.pt")
    return path


def test_a_bit_of_the_state_to_continue_from_is_noticed(sweep, pretrained, state):
    with zipfile.ZipFile(state) as archive:
        tensor = archive.read(max(archive.infolist(), key=lambda part: part.file_size))
    flip(state, state.read_bytes().index(tensor))
    for dry_run in (True, False):
        with pytest.raises(UserError, match=r"resume.pt' \(.*damaged.*\); delete it to start this arm anew"):
            sweep(pretrained(arms=["moody"]), dry_run=dry_run)
    state.unlink()
    assert sweep(pretrained(arms=["moody"])).finished == 1


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_damaged_checkpoint_of_the_users_own_is_refused_at_the_start(sweep, tiny, make_bert, tmp_path, name):
    place = make_bert(texts=("the old cat chased a dog", "anna helped tom"))
    (place / name).write_bytes((place / name).read_bytes()[:-30])
    with pytest.raises(UserError) as caught:
        sweep(tiny(checkpoint=str(place), arms=["add"], tasks=["cola"]))
    assert str(place / name) in str(caught.value)
    assert not (tmp_path / "runs").exists()
