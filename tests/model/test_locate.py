"""A checkpoint's digest is that of its files as they are now; files that have not changed are hashed once."""

import hashlib
import os
import time
from pathlib import Path
from typing import Any

import pytest

from glue_bench.model.locate import fingerprint

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
