"""Find a checkpoint (hub id, folder or file), fingerprint it, read its weights. Knows nothing of their meaning."""

import hashlib
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from glue_bench.errors import DiskError, UserError, first_line, quoted
from glue_bench.files import (
    check_file,
    disk_trouble,
    file_digest,
    opened_zip,
    parse_json,
    read_file,
)
from glue_bench.remote import fetched, is_url

SAFETENSORS = ("model.safetensors", "model.safetensors.index.json")
WEIGHT_FILES = (*SAFETENSORS, "pytorch_model.bin", "pytorch_model.bin.index.json")
NAMES_WEIGHTS = "transformers_weights"  # a key by which transformers reads a file of another name
ADAPTER = "adapter_config.json"
LARGEST_WEIGHTS = (
    2**34
)  # bytes of a file of weights: several times what the largest known encoder takes
WANTED = [
    "*.json",
    "*.txt",
    "*.model",
]  # beside the weights, of which other frameworks' copies are not fetched


def locate(name: str, revision: str | None = None, *, weights: bool = True) -> Path:
    """Where checkpoint `name` lies: the folder or file of that name, a copy of a URL's, or a snapshot from the hub.

    Without `weights` a snapshot may lack them: a tokenizer needs none. Raises UserError where there is no such place,
    or it is `unlike_a_checkpoint`, the hub cannot be reached, or a revision is of what is no hub id; DiskError where
    the hub's cache is full.
    """
    place = _find(name, revision, weights=weights)
    if weights and (other := unlike_a_checkpoint(place, name)):
        raise UserError(other)
    return place


def _find(name: str, revision: str | None, *, weights: bool) -> Path:
    """The place of a checkpoint, whatever lies there."""
    path = Path(name).expanduser()
    if revision is not None and (is_url(name) or path.exists()):
        raise UserError(
            f"revision '{revision}' of '{name}', which is no hub id: leave the revision out"
        )
    if is_url(name):
        return fetched(name)
    if path.exists():
        return path
    if path.suffix == ".pt":
        raise UserError(f"no checkpoint file '{name}'")
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise UserError(
            f"no checkpoint folder '{name}'; give a folder with config.json and weights, or a hub id"
        )
    from huggingface_hub import constants, errors, snapshot_download

    # Without the last, the client (1.31) asks the hub for a full commit hash even where it is switched off.
    where: dict[str, Any] = {"revision": revision, "local_files_only": constants.HF_HUB_OFFLINE}
    try:
        wanted = [*WANTED, "model*.safetensors"] if weights else WANTED
        folder = Path(snapshot_download(name, allow_patterns=wanted, **where))
        # An index of shards says nothing of the shards: torch's are fetched wherever safetensors are absent.
        if weights and not any((folder / file).exists() for file in SAFETENSORS):
            snapshot_download(name, allow_patterns=["pytorch_model*.bin*"], **where)
        return folder
    except (errors.HFValidationError, errors.RepositoryNotFoundError) as error:
        wrong = "neither a folder here nor a repository of the hub (a private or gated one needs `hf auth login`)"
        raise UserError(f"no such checkpoint '{name}': {wrong}") from error
    except errors.RevisionNotFoundError as error:
        raise UserError(f"checkpoint '{name}' has no revision '{revision}' on the hub") from error
    except (
        errors.HTTPError,
        OSError,
        RuntimeError,
    ) as error:  # every network failure of the hub client is one of them
        if trouble := disk_trouble(error):
            raise DiskError(
                f"cannot keep '{name}' of the hub: {trouble}; make room in the cache"
            ) from error
        why = f"the hub cannot be reached for it ({type(error).__name__}: {first_line(error)})"
        raise UserError(
            f"no folder '{name}' here, and {why}; give the folder of a downloaded copy instead"
        ) from error


def unlike_a_checkpoint(folder: Path, name: str) -> str:
    """What a folder is, and what to do, if it is one that is often taken for a checkpoint; empty for any other."""
    if (folder / ADAPTER).exists():
        merged = (
            f"AutoPeftModelForSequenceClassification.from_pretrained('{name}').merge_and_unload()"
        )
        advice = (
            f"merge it into its base first, with peft: {merged}.save_pretrained('MERGED'), "
            "and save a tokenizer there"
        )
        return f"'{name}' is an adapter ({ADAPTER}), which is no model by itself; {advice}"
    if (folder / "config.json").exists():
        return ""
    inside = [path.parent for path in folder.glob("*/config.json")]
    if not inside:
        return ""
    steps = [
        path for path in inside if path.name.startswith("checkpoint-")
    ]  # those of a Trainer: the last is meant
    last = max(steps or inside, key=lambda path: (len(path.name), path.name))
    return (
        f"'{name}' has no config.json, but checkpoints inside; give one of them, such as '{last}'"
    )


def fingerprint(place: Path) -> str:
    """SHA-256 over config.json and the weights, or over the one file: they alone decide what an encoder computes."""
    total = hashlib.sha256()
    for path in [place / "config.json", *weight_files(place)] if place.is_dir() else [place]:
        try:
            check_file(path, LARGEST_WEIGHTS)
            digest = file_digest(path)
        except OSError as error:
            needs = "a checkpoint folder has config.json and weights"
            raise UserError(f"cannot read '{path}': {error.strerror}; {needs}") from error
        if not place.is_dir():
            return digest
        total.update(f"{path.name} {digest}\n".encode())
    return total.hexdigest()


def weight_files(folder: Path) -> list[Path]:
    """The files of weights of a checkpoint folder; raises UserError where there are none, or their index is damaged.

    Raises it also where config.json names another file of weights, which transformers would read in their place.
    """
    settings = folder / "config.json"
    if settings.exists() and (other := read_json(settings).get(NAMES_WEIGHTS)) is not None:
        advice = f"rename that file to {SAFETENSORS[0]}, and delete the key"
        raise UserError(
            f"'{settings}' names its weights ({NAMES_WEIGHTS}: {quoted(other)}), which is not read; {advice}"
        )
    path = next((folder / name for name in WEIGHT_FILES if (folder / name).exists()), None)
    if path is None:
        raise UserError(
            f"checkpoint folder '{folder}' has no weights; expected one of {', '.join(WEIGHT_FILES)}"
        )
    if path.suffix != ".json":
        return [path]
    shards = read_json(path).get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(shard, str) for shard in shards.values()):
        raise UserError(f"'{path}' has no weight_map of names of files; the file may be damaged")
    return [folder / shard for shard in sorted(set(shards.values()))]


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of a checkpoint folder; raises UserError where there is none."""
    try:
        if isinstance(content := parse_json(read_file(path)), dict):
            return content
        raise ValueError("it is no object")
    except FileNotFoundError as error:
        raise UserError(f"checkpoint folder '{path.parent}' has no {path.name}") from error
    except OSError as error:
        raise UserError(f"cannot read '{path}': {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"'{path}' is not valid JSON ({error})") from error


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint folder on the CPU, in its names; raises UserError where they cannot be read."""
    weights: dict[str, Tensor] = {}
    for path in weight_files(folder):
        try:
            check_file(path, LARGEST_WEIGHTS)
            loaded = (
                load_file(path)
                if path.suffix == ".safetensors"
                else checked_weights(unpickle(path))
            )
            weights |= {
                name: tensor.clone() for name, tensor in loaded.items()
            }  # a mapped file may be overwritten
        except Exception as error:
            advice = "the file may be cut short, copy it again"
            raise UserError(
                f"cannot read weights from '{path}': {first_line(error)}; {advice}"
            ) from error
    return weights


def unpickle(path: Path, allowed: Sequence[Any] = ()) -> Any:
    """What a file of torch.save holds: tensors, plain values and objects of the classes `allowed`; no code is run.

    Raises whatever torch does of another file; ValueError for one that unpacks to more than it has, as none of torch's.
    """
    check_file(path, LARGEST_WEIGHTS)
    if zipfile.is_zipfile(path):
        with opened_zip(path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > path.stat().st_size:
                raise ValueError("it unpacks to more than it has")
    with warnings.catch_warnings(), torch.serialization.safe_globals(list(allowed)):
        warnings.simplefilter("ignore")  # torch warns of what it then refuses
        return torch.load(path, map_location="cpu", weights_only=True)


def checked_weights(loaded: Any) -> dict[str, Tensor]:
    """Tensors by their names; raises ValueError for anything else, and for a tensor larger than its storage."""
    if not isinstance(loaded, dict) or not all(isinstance(name, str) for name in loaded):
        raise ValueError("it holds no tensors by their names")
    for name, tensor in loaded.items():
        if (
            not isinstance(tensor, Tensor)
            or tensor.layout != torch.strided
            or tensor.device.type != "cpu"
        ):
            raise ValueError(f"its {name} is no plain tensor")
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise ValueError(f"its {name} is larger than what is stored of it")
    return loaded
