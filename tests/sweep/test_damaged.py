"""Damaged files on resume: made anew, run again, or one line that names the file and what to do. Never believed."""

import functools
import io
import zipfile
from pathlib import Path

import pytest
import torch
from rich.console import Console
from started import TABLES
from stored import documents

from glue_bench.api import run
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.sweep import run as module
from glue_bench.sweep.claims import Claims
from glue_bench.training import pretrain as training

pytestmark = pytest.mark.usefixtures("small_demo")

POWER_CUT = {"empty": b"", "half": b'{"schema_version": 1, "cell', "zeros": b"\0" * 300}


def flip(path: Path, place: int | None = None) -> None:
    """Change one bit, in the middle of a file unless told where."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if place is None else place] ^= 1
    path.write_bytes(content)


def tables(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in TABLES]


@pytest.fixture
def plain(tiny, tmp_path):
    """Run the tiny experiment; what it printed is `plain.said`."""

    def run_it(**changes):
        console = Console(file=io.StringIO(), width=300)
        try:
            return run(tiny(**changes), results=tmp_path / "runs", console=console)
        finally:
            run_it.said = console.file.getvalue()

    return run_it


@pytest.mark.parametrize("content", POWER_CUT.values(), ids=POWER_CUT)
def test_a_record_that_is_no_json_is_told_of_and_its_cell_run_again(plain, content, finished, tiny):
    folder = finished(tiny(arms=["add"])).folder
    whole, record = tables(folder), min((folder / "records").iterdir())
    for path in (record, folder / "plan.json", next((folder / "labels").iterdir())):
        path.write_bytes(content)
    again = plain(arms=["add"])
    assert (again.skipped, again.finished, again.failed) == (1, 1, {})
    assert f"records/{record.name} is damaged; its cell is run again" in plain.said
    assert tables(folder) == whole
    assert documents(Store(folder))
    digest = documents(Store(folder))[0]["data"]["digest"]
    assert Store(folder).read_labels("cola", digest)
    plain(arms=["add"])
    assert "damaged" not in plain.said


def test_a_record_that_was_edited_is_neither_believed_nor_overwritten(plain, glue_bench, finished, tiny):
    folder = finished(tiny(arms=["add"])).folder
    record = min((folder / "records").iterdir())
    record.write_bytes(record.read_bytes().replace(b'"seed": 1', b'"seed": 2'))
    edited = record.read_bytes()
    assert plain(arms=["add"]).skipped == 2
    assert record.read_bytes() == edited
    said = glue_bench("leaderboard", folder).out
    assert f"{record.name}: edited since the run wrote it; delete it and run again" in said


@pytest.mark.parametrize("content", POWER_CUT.values(), ids=POWER_CUT)
def test_damaged_failures_plans_and_predictions_are_one_line(plain, glue_bench, refused, content, finished, tiny):
    folder = finished(tiny(tasks=["cola"], seeds=[1, 2])).folder
    record, other = sorted((folder / "records").iterdir())[:2]
    record.unlink()
    (folder / "failures" / record.name).write_bytes(content)
    said = glue_bench("status", folder)
    assert (said.status, said.out.count("delete it and run again")) == (0, 1)
    assert f"failed: {record.stem}: " in said.out
    (folder / "predictions" / f"{other.stem}.safetensors").write_bytes(content)
    assert (
        f"predictions/{other.stem}.safetensors: changed since the run wrote it" in glue_bench("statistics", folder).out
    )
    (folder / "plan.json").write_bytes(content)
    for verb in ("status", "leaderboard"):
        assert "plan.json: not " in refused(verb, folder)
    assert plain(tasks=["cola"], seeds=[1, 2]).finished == 1
    assert not list((folder / "failures").iterdir())


@pytest.mark.parametrize("content", [b"", b"\xff\0"])
def test_a_claim_that_holds_nothing_is_waited_for_and_taken_over(plain, monkeypatch, content, finished, tiny):
    folder = finished(tiny(arms=["add"])).folder
    record = min((folder / "records").iterdir())
    record.unlink()
    (folder / "claims").mkdir()
    (folder / "claims" / record.stem).write_bytes(content)
    monkeypatch.setattr(module, "Claims", functools.partial(Claims, stale_seconds=0.5))
    again = plain(arms=["add"])
    assert (again.finished, again.failed) == (1, {})
    assert "another sweep is at work on what is left; waiting for it" in plain.said
    assert not (folder / "claims").exists()


def test_a_damaged_cache_is_made_anew(sweep, monkeypatch, tmp_path):
    """Packed text, tokenised tasks and the trained tokenizer, each with one bit changed."""
    monkeypatch.setenv("GLUE_BENCH_CACHE", str(tmp_path / "cache"))
    whole = tables(sweep(name="whole").folder)
    kinds = {"corpora": "train.ids", "tokens": "train.ids.npy", "tokenizers": "tokenizer.json"}
    paths = [next((tmp_path / "cache" / kind).rglob(name)) for kind, name in kinds.items()]
    before = [path.read_bytes() for path in paths]
    for path in paths:
        flip(path)
    assert tables(sweep().folder)[1:] == whole[1:]  # the first one names the experiment
    assert [path.read_bytes() for path in paths] == before


def test_a_damaged_record_of_a_pretraining_is_made_again(sweep, finished, values):
    folder = finished(values(arms=["add"])).folder
    (record,) = (folder / "pretraining").glob("*.json")
    record.write_bytes(b"")
    assert sweep(arms=["add"], seeds=[1, 2]).finished == 1
    assert "step 10 of 10" in sweep.said
    assert len(documents(Store(folder), "pretraining")) == 1


def test_a_damaged_checkpoint_of_a_pretraining_is_named_and_made_again(sweep, finished, values):
    folder = finished(values(arms=["add"])).folder
    (weights,) = folder.glob("checkpoints/*/step-10/model.safetensors")
    was = weights.read_bytes()
    flip(weights)
    with pytest.raises(UserError) as caught:
        sweep(arms=["add"], seeds=[1, 2])
    said = f"'{weights}' is damaged: its checksum is not that of what was written; delete its folder"
    assert str(caught.value).startswith(said)
    for path in weights.parent.iterdir():
        path.unlink()
    weights.parent.rmdir()
    assert sweep(arms=["add"], seeds=[1, 2]).finished == 1
    assert weights.read_bytes() == was


@pytest.fixture
def state(sweep, monkeypatch) -> Path:
    """What an interrupted pretraining has left to go on from."""
    batch = training.training_batch

    def interrupted(*arguments, **options):
        if options["step"] == 5:
            raise KeyboardInterrupt
        return batch(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(training, "SAVE_SECONDS", 0)
        patch.setattr(training, "training_batch", interrupted)
        folder = sweep(arms=["add"]).folder
    (path,) = folder.glob("checkpoints/*/resume.pt")
    return path


def test_a_bit_of_the_state_to_continue_from_is_noticed(sweep, state):
    with zipfile.ZipFile(state) as archive:
        tensor = archive.read(max(archive.infolist(), key=lambda part: part.file_size))
    flip(state, state.read_bytes().index(tensor))
    with pytest.raises(UserError, match=r"resume.pt' \(.*damaged.*\); delete it to start this arm anew"):
        sweep(arms=["add"])
    state.unlink()
    assert sweep(arms=["add"]).finished == 1


@pytest.mark.usefixtures("no_tables")
def test_a_state_of_another_precision_fails_its_own_arm_and_ends_no_sweep(sweep, state):
    elsewhere = {"computed": {"device": "cpu", "precision": "bf16"}}
    torch.save(torch.load(state) | elsewhere, state)
    summary = sweep(arms=["add", "none"])
    assert summary.finished == 1
    assert summary.failed
    assert all("give --device cpu --precision bf16, or delete it" in error for error in summary.failed.values())


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_damaged_checkpoint_of_the_users_own_is_refused_at_the_start(
    tiny, write_yaml, make_bert, refused, tmp_path, name
):
    place = make_bert(texts=("the old cat chased a dog", "anna helped tom"))
    (place / name).write_bytes((place / name).read_bytes()[:-30])
    config = write_yaml(tiny(checkpoint=str(place), arms=["add"], tasks=["cola"]))
    said = refused("run", config, "--results", tmp_path / "runs")
    assert str(place / name) in said.replace("\n", "")
    assert not (tmp_path / "runs").exists()
