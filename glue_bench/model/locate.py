"""Find a checkpoint (hub id, folder or file), fingerprint it, and read its weights.

The meaning of weights is not known here.
"""

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
from glue_bench.model.outputs import local_path, refuse_absent
from glue_bench.records.layout import PLAN, model_folder
from glue_bench.remote import fetched, hub_fault, is_url

SAFETENSORS = ("model.safetensors", "model.safetensors.index.json")
WEIGHT_FILES = (*SAFETENSORS, "pytorch_model.bin", "pytorch_model.bin.index.json")
WEIGHTS_KEY = "transformers_weights"
"""A key of config.json that makes transformers read weights from a file with another name."""
ADAPTER = "adapter_config.json"
MAX_WEIGHT_BYTES = 2**34
"""The largest size of one file: several times the size of the largest known encoder."""
EXPERIMENT_SUFFIXES = (".yaml", ".yml")
FETCHED = ["*.json", "*.txt", "*.model"]
"""The files that are fetched beside the weights. Weights of other frameworks are not fetched."""


def locate(name: str, revision: str | None = None, *, weights: bool = True) -> Path:
    """Return the place of a checkpoint.

    It is the folder or file of that name, a copy of a URL's, or a snapshot from the hub.

    Args:
        name: A hub id, a folder, a file or a URL.
        revision: The revision of a hub id.
        weights: Whether weights are needed. They are not needed to read a tokenizer.

    Returns:
        The folder or file.

    Raises:
        UserError: there is no such place; `explain_no_checkpoint` has an objection; the hub cannot
            be reached; or a revision is given for a name that is no hub id.
        DiskError: the hub's cache is full.
    """
    place = _find(name, revision, weights=weights)
    if place.suffix in EXPERIMENT_SUFFIXES and place.is_file():
        advice = f"glue-bench run {name} runs it"
        raise UserError(
            f"'{name}' is no checkpoint, but may be the file of an experiment; {advice}"
        )
    fault = explain_no_checkpoint(place, name) if weights else ""
    if fault:
        raise UserError(fault)
    return place


def _find(name: str, revision: str | None, *, weights: bool) -> Path:
    """Return the place of a checkpoint, without a look at its content."""
    path = local_path(name)
    if revision is not None and (is_url(name) or path.exists()):
        fault = f"revision '{revision}' of '{name}', which is no hub id"
        raise UserError(f"{fault}: leave the revision out")
    if is_url(name):
        return fetched(name)
    if path.exists():
        return path
    refuse_absent(name)
    return _snapshot(name, revision, weights=weights)


def _snapshot(name: str, revision: str | None, *, weights: bool) -> Path:
    """Fetch a checkpoint from the hub, or find it in its cache."""
    from huggingface_hub import errors, snapshot_download

    patterns = [*FETCHED, "model*.safetensors"] if weights else FETCHED
    unreachable = hub_fault()
    # Without the last option, the client (1.31) asks the hub for a full commit hash even if it is
    # switched off.
    options: dict[str, Any] = {"revision": revision, "local_files_only": bool(unreachable)}
    try:
        folder = Path(snapshot_download(name, allow_patterns=patterns, **options))
        # An index of shards does not show that the shards are there: torch's are fetched wherever
        # safetensors are absent.
        has_safetensors = any((folder / file).exists() for file in SAFETENSORS)
        if weights and not has_safetensors:
            snapshot_download(name, allow_patterns=["pytorch_model*.bin*"], **options)
        return folder
    except (errors.HFValidationError, errors.RepositoryNotFoundError) as error:
        fault = "neither a folder here nor a repository of the hub"
        advice = "(a private or gated one needs `hf auth login`)"
        raise UserError(f"no such checkpoint '{name}': {fault} {advice}") from error
    except errors.RevisionNotFoundError as error:
        raise UserError(f"checkpoint '{name}' has no revision '{revision}' on the hub") from error
    # Every network failure of the hub client is one of these.
    except (errors.HTTPError, OSError, RuntimeError) as error:
        if trouble := disk_trouble(error):
            fault = f"cannot keep '{name}' of the hub: {trouble}"
            raise DiskError(f"{fault}; make room in the cache") from error
        cause = unreachable or f"{type(error).__name__}: {first_line(error)}"
        fault = f"no folder '{name}' here, and the hub cannot be reached for it ({cause})"
        raise UserError(f"{fault}; give the folder of a downloaded copy instead") from error


def explain_no_checkpoint(folder: Path, name: str) -> str:
    """Say why a folder is no checkpoint, and what to do, if people often take it for one.

    Return an empty text for any other folder.
    """
    if (folder / ADAPTER).exists():
        peft_model = f"AutoPeftModelForSequenceClassification.from_pretrained('{name}')"
        call = f"{peft_model}.merge_and_unload().save_pretrained('MERGED')"
        advice = f"merge it into its base first, with peft: {call}, and save a tokenizer there"
        return f"'{name}' is an adapter ({ADAPTER}), which is no model by itself; {advice}"

    if (folder / "config.json").exists():
        return ""

    if (folder / PLAN).exists():
        kept_models = sorted(folder.glob(model_folder("*")))
        advice = "it has kept no model: run it again with --set finetuning.keep=best"
        if kept_models:
            advice = f"give one of its models, such as '{kept_models[0]}'"
        return f"'{name}' is a folder of results; {advice}"

    plans = sorted(folder.glob(f"*/{PLAN}"))
    if plans:
        return f"'{name}' holds folders of results, such as '{plans[0].parent}', and no checkpoint"

    folders = [path.parent for path in folder.glob("*/config.json")]
    if not folders:
        return ""

    # These are checkpoints of a Trainer: the last one is meant.
    steps = [path for path in folders if path.name.startswith("checkpoint-")]
    last = max(steps or folders, key=lambda path: (len(path.name), path.name))
    fault = f"'{name}' has no config.json, but checkpoints inside"
    return f"{fault}; give one of them, such as '{last}'"


def fingerprint(place: Path) -> str:
    """Return the SHA-256 over config.json and the weights, or over the one file.

    These files alone decide the outputs of an encoder.
    """
    if not place.is_dir():
        return _weights_file_digest(place)
    total = hashlib.sha256()
    for path in (place / "config.json", *weight_files(place)):
        digest = _weights_file_digest(path)
        total.update(f"{path.name} {digest}\n".encode())
    return total.hexdigest()


def _weights_file_digest(path: Path) -> str:
    """Return the SHA-256 of one file of a checkpoint."""
    try:
        check_file(path, MAX_WEIGHT_BYTES)
        return file_digest(path)
    except OSError as error:
        advice = "a checkpoint folder has config.json and weights"
        raise UserError(f"cannot read '{path}': {error.strerror}; {advice}") from error


def weight_files(folder: Path) -> list[Path]:
    """Return the files of weights of a checkpoint folder.

    Raises UserError if there are none, if their index is damaged, or if config.json names another
    file of weights, which transformers would read instead.
    """
    settings = folder / "config.json"
    named_file = read_json(settings).get(WEIGHTS_KEY) if settings.exists() else None
    if named_file is not None:
        fault = f"'{settings}' names its weights ({WEIGHTS_KEY}: {quoted(named_file)})"
        advice = f"rename that file to {SAFETENSORS[0]}, and delete the key"
        raise UserError(f"{fault}, which is not read; {advice}")
    paths = [folder / name for name in WEIGHT_FILES if (folder / name).exists()]
    if not paths:
        expected = ", ".join(WEIGHT_FILES)
        raise UserError(f"checkpoint folder '{folder}' has no weights; expected one of {expected}")
    path = paths[0]
    if path.suffix != ".json":
        return [path]
    shards = read_json(path).get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(shard, str) for shard in shards.values()):
        raise UserError(f"'{path}' has no weight_map of names of files; the file may be damaged")
    return [folder / shard for shard in sorted(set(shards.values()))]


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object of a checkpoint folder; raises UserError where there is none."""
    try:
        content = parse_json(read_file(path))
        if not isinstance(content, dict):
            raise ValueError("it is no object")
        return content
    except FileNotFoundError as error:
        raise UserError(f"checkpoint folder '{path.parent}' has no {path.name}") from error
    except OSError as error:
        raise UserError(f"cannot read '{path}': {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"'{path}' is not valid JSON ({error})") from error


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Read all tensors of a checkpoint folder to the CPU, in its names.

    Raises UserError where they cannot be read.
    """
    weights: dict[str, Tensor] = {}
    for path in weight_files(folder):
        try:
            check_file(path, MAX_WEIGHT_BYTES)
            is_safe = path.suffix == ".safetensors"
            loaded = load_file(path) if is_safe else checked_weights(unpickle(path))
            for name, tensor in loaded.items():
                weights[name] = tensor.clone()  # the mapped file may be overwritten
        except Exception as error:
            fault = f"cannot read weights from '{path}': {first_line(error)}"
            advice = "the file may be cut short, copy it again"
            raise UserError(f"{fault}; {advice}") from error
    return weights


def unpickle(path: Path, allowed: Sequence[Any] = ()) -> Any:
    """Read the content of a file of torch.save, without running code.

    The content is tensors, plain values and objects of the classes `allowed`. Raises torch's own
    errors for any other file. Raises ValueError for a file that becomes larger when it is unpacked;
    torch writes no such file.
    """
    check_file(path, MAX_WEIGHT_BYTES)
    if zipfile.is_zipfile(path):
        with opened_zip(path) as archive:
            unpacked_bytes = sum(entry.file_size for entry in archive.infolist())
        if unpacked_bytes > path.stat().st_size:
            raise ValueError("it unpacks to more than it has")
    with warnings.catch_warnings(), torch.serialization.safe_globals(list(allowed)):
        warnings.simplefilter("ignore")  # torch warns before it refuses a file
        return torch.load(path, map_location="cpu", weights_only=True)


def checked_weights(loaded: Any) -> dict[str, Tensor]:
    """Return tensors by their names.

    Raises ValueError if it is anything else, or if a tensor is larger than its storage.
    """
    if not isinstance(loaded, dict) or not all(isinstance(name, str) for name in loaded):
        raise ValueError("it holds no tensors by their names")
    for name, tensor in loaded.items():
        if not _is_plain(tensor):
            raise ValueError(f"its {name} is no plain tensor")
        size = tensor.numel() * tensor.element_size()
        if size > tensor.untyped_storage().nbytes():
            raise ValueError(f"its {name} is larger than what is stored of it")
    return loaded


def _is_plain(value: Any) -> bool:
    """Return whether a value is a dense tensor on the CPU."""
    if not isinstance(value, Tensor):
        return False
    return value.layout == torch.strided and value.device.type == "cpu"
