"""Where a checkpoint lies, which weights it has, and the digest of its files; what cannot be read is refused."""

import errno
import zipfile
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
import transformers
from huggingface_hub.errors import (
    GatedRepoError,
    HFValidationError,
    HTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from tiny_models import saved

from glue_bench.errors import DiskError, UserError
from glue_bench.model.locate import fingerprint, locate, read_weights

httpx: Any = import_module(HTTPError.__module__)  # httpx or httpx2: whichever the hub client is built on


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    return tmp_path


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_file_that_is_changed_in_place_changes_the_digest(folder: Path, name: str) -> None:
    before = fingerprint(folder)
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[::-1])  # of the same size
    assert fingerprint(folder) != before
    (folder / name).write_bytes(content)
    assert fingerprint(folder) == before


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


def response(status: int) -> Any:
    return httpx.Response(status, request=httpx.Request("GET", "https://huggingface.co/api"))


UNREACHABLE = {
    "nothing cached": LocalEntryNotFoundError("no snapshot"),
    "connection refused": ConnectionError("refused"),
    "proxy": httpx.ProxyError("403 Forbidden"),
    "broken download": httpx.RemoteProtocolError("peer closed connection"),
    "time-out while reading": httpx.ReadTimeout("timed out"),
}


@pytest.mark.parametrize("cause", UNREACHABLE)
def test_hub_out_of_reach(cause: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, UNREACHABLE[cause])
    with pytest.raises(UserError, match=r"no folder 'org/model' here, and the hub cannot be reached.*downloaded copy"):
        locate("org/model")


@pytest.mark.parametrize(
    "error",
    [
        RepositoryNotFoundError("404", response=response(404)),
        HFValidationError("repo id must not end with '.git'"),
    ],
)
def test_no_such_repository(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, error)
    with pytest.raises(UserError, match="no such checkpoint 'org/model': neither a folder here nor a repository"):
        locate("org/model")


def test_no_such_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, RevisionNotFoundError("404", response=response(404)))
    with pytest.raises(UserError, match="checkpoint 'org/model' has no revision 'v9'"):
        locate("org/model", "v9")


def test_gated_repository_is_a_user_error(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, GatedRepoError("401", response=response(401)))
    with pytest.raises(UserError, match="org/model"):
        locate("org/model")


def refuse(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Make every download fail."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)


def test_a_full_disk_is_no_hub_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(DiskError, match=r"cannot keep 'org/model' of the hub: .*; make room in the cache"):
        locate("org/model")


def test_what_the_hub_client_says_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, ConnectionError("no route\nto it"))
    with pytest.raises(UserError, match=r"\(ConnectionError: no route.*\); give the folder"):
        locate("org/model")


@pytest.mark.parametrize("name", ["folder", "https://example.org/bert"])
def test_a_revision_of_no_hub_id_is_refused(name: str, folder: Path) -> None:
    place = str(folder) if name == "folder" else name
    with pytest.raises(UserError, match=f"revision 'v2' of '{place}', which is no hub id: leave the revision out"):
        locate(place, "v2")


def test_a_tokenizer_is_fetched_without_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[list[str]] = []

    def download(*_: object, allow_patterns: list[str], **__: object) -> str:
        asked.append(allow_patterns)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    locate("org/model", weights=False)
    assert asked == [["*.json", "*.txt", "*.model"]]
    locate("org/model")
    assert asked[1:] == [[*asked[0], "model*.safetensors"], ["pytorch_model*.bin*"]]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache of our own; conftest has switched the hub client to offline."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("name", ["no-such-org/no-such-model", "no-such-model"])
def test_the_real_hub_client_offline(name: str) -> None:
    with pytest.raises(UserError, match=f"no folder '{name}' here, and the hub cannot be reached"):
        locate(name)


@pytest.mark.usefixtures("cache")
def test_the_real_hub_client_refuses_the_name() -> None:
    with pytest.raises(UserError, match="no such checkpoint 'my model'"):
        locate("my model")


@pytest.mark.parametrize("revision", [None, "main", "a" * 40])
def test_a_cached_snapshot_is_found_offline(cache: Path, revision: str | None) -> None:
    repository = cache / "models--org--model"
    saved(repository / "snapshots" / ("a" * 40), transformers.BertModel, "bert")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a" * 40)
    assert locate("org/model", revision).resolve() == (repository / "snapshots" / ("a" * 40)).resolve()


def test_weights_that_unpack_to_more_than_the_file_has_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "pytorch_model.bin", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(10**6))
    with pytest.raises(UserError, match="it unpacks to more than it has"):
        read_weights(tmp_path)


def test_a_tensor_that_says_to_be_larger_than_it_is_is_refused(tmp_path):
    torch.save({"a": torch.zeros(1).expand(10**12)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(UserError, match="its a is larger than what is stored of it"):
        read_weights(tmp_path)


@pytest.mark.parametrize("saved_as", [[1], {"a": 1}, {1: torch.zeros(1)}, {"a": torch.zeros(2).to_sparse()}])
def test_what_is_no_tensor_is_refused(tmp_path, saved_as):
    torch.save(saved_as, tmp_path / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"no tensors by their names|is no plain tensor|cannot read weights"):
        read_weights(tmp_path)
