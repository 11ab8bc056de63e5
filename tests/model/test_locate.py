"""A checkpoint's digest is that of its files as they are now; files that have not changed are hashed once."""

import hashlib
import os
import time
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from tiny_models import encoder_config, random_model

from glue_bench.model import checkpoints
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.locate import fingerprint, locate

DAY = 24 * 3600


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A day old, so that its times are settled."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    age(tmp_path)
    return tmp_path


def age(folder: Path) -> None:
    for path in folder.iterdir():
        os.utime(path, (time.time() - DAY, time.time() - DAY))


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that have been hashed."""
    names: list[str] = []
    digest = hashlib.file_digest

    def counted(file: Any, kind: str) -> Any:
        names.append(Path(file.name).name)
        return digest(file, kind)

    monkeypatch.setattr(hashlib, "file_digest", counted)
    return names


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_file_that_is_changed_in_place_changes_the_digest(folder: Path, name: str, hashed: list[str]) -> None:
    before = fingerprint(folder)
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[::-1])  # of the same size
    assert fingerprint(folder) != before
    (folder / name).write_bytes(content)
    assert fingerprint(folder) == before
    assert hashed.count(name) == 3


def test_two_changes_within_a_tick_of_the_clock_are_seen(folder: Path) -> None:
    weights, now = folder / "model.safetensors", time.time_ns()
    found = []
    for content in (b"weights", b"weighty"):
        weights.write_bytes(content)
        os.utime(weights, ns=(now, now))
        found.append(fingerprint(folder))
    assert found[0] != found[1]


def test_a_file_that_has_not_changed_is_hashed_once(folder: Path, hashed: list[str]) -> None:
    assert fingerprint(folder) == fingerprint(folder) == fingerprint(folder)
    assert sorted(hashed) == ["config.json", "model.safetensors"]


def test_a_relative_path_is_that_of_the_folder_of_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for name in ("one", "two"):
        place = tmp_path / name / "bert"
        place.mkdir(parents=True)
        (place / "config.json").write_text("{}")
        (place / "model.safetensors").write_text(name)
        age(place)
        monkeypatch.chdir(place.parent)
        found.append(fingerprint(Path("bert")))
    assert found[0] != found[1]


TORCHS_SHARDS = ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin", "pytorch_model.bin.index.json"]


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        (TORCHS_SHARDS, TORCHS_SHARDS),
        (["pytorch_model.bin"], ["pytorch_model.bin"]),
        (["model.safetensors", "pytorch_model.bin"], ["model.safetensors"]),
        (
            ["model-1.safetensors", "model.safetensors.index.json", "pytorch_model.bin"],
            ["model-1.safetensors", "model.safetensors.index.json"],
        ),
        ([*TORCHS_SHARDS, "model.fp16.safetensors"], [*TORCHS_SHARDS, "model.fp16.safetensors"]),
    ],
)
def test_all_weights_of_one_form_are_fetched_from_the_hub(
    files: list[str], wanted: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(_: str, *, revision: str | None, allow_patterns: list[str]) -> str:  # noqa: ARG001
        for name in [*files, "tf_model.h5"]:
            if any(fnmatch(name, pattern) for pattern in allow_patterns):
                (tmp_path / name).touch()
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    locate("org/model")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(wanted)


def test_configuration_and_weights_are_of_one_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A branch of the hub may move between two look-ups."""
    random_model(EncoderModel, encoder_config("add")).save_pretrained(tmp_path)
    asked = []

    def once(name: str, revision: str | None) -> Path:
        asked.append((name, revision))
        return tmp_path

    monkeypatch.setattr(checkpoints, "locate", once)
    checkpoints.read_checkpoint("org/model", "main")
    assert asked == [("org/model", "main")]
