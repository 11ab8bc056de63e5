"""An experiment's files in one archive for others, and the manifest that says what belongs into it.

A bundle has records, predictions, gold labels, failures, pretrainings, the plan (with the experiment's configuration)
and tables. Checkpoints, claims and half-written files stay behind. The same content gives the same bytes.
"""

import hashlib
import io
import json
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

from glue_bench.data.archive import plain_entry
from glue_bench.errors import UserError
from glue_bench.files import read_file, whole_file
from glue_bench.records.disk import LARGEST_ARRAYS, dump, record_digest
from glue_bench.records.plan import NO_PLAN
from glue_bench.records.store import Store
from glue_bench.records.value import SCHEMA_VERSION, StoredValue, Whole

FORMAT = "glue-bench bundle"
MANIFEST = "manifest.json"
KINDS: dict[str, str | tuple[str, ...]] = {
    "records": ".json",
    "failures": ".json",
    "pretraining": (".json", ".safetensors"),
    "intrinsic": (".json", ".safetensors"),
    "predictions": ".safetensors",
    "test_predictions": ".safetensors",
    "labels": ".safetensors",
}
"""Folders of an experiment that belong into a bundle, and the suffixes of their files."""
TEXTS = (".md", ".csv")


def write_bundle(stores: Iterable[Store], path: Path) -> dict[str, Any]:
    """Write the experiments' files and their manifest, which is returned. `path` is either whole or as it was.

    The manifest has each file's size and SHA-256, and in short what the experiments hold, by the files in the bundle: a
    sweep may be under way. Nothing is compressed: logits hardly can be, and compressors differ between builds of zlib.

    Raises:
        UserError: two experiments have one name, or a file cannot be read or written.
    """
    by_name = _named(stores)
    sums: dict[str, dict[str, Any]] = {}
    for store in by_name.values():
        store.read_plan()  # what is wrong with it is said with its own path
    try:
        with (
            whole_file(path) as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive,
            tempfile.TemporaryDirectory() as copies,
        ):
            for name, content in _contents(by_name):
                sums[name] = summed(content)
                archive.writestr(plain_entry(name), content)
                if name.endswith(".json"):
                    (copy := Path(copies, name)).parent.mkdir(parents=True, exist_ok=True)
                    copy.write_bytes(content)
            manifest = {
                "format": FORMAT,
                "schema_version": SCHEMA_VERSION,
                "glue_bench": version("glue-bench"),
                "experiments": {name: describe(Store(Path(copies, name))) for name in by_name},
                "files": sums,
            }
            manifest["digest"] = record_digest(manifest)
            archive.writestr(plain_entry(MANIFEST), dump(manifest))
    except OSError as error:
        raise UserError(f"cannot write '{path}': {error.strerror or error}") from error
    return manifest


def describe(store: Store) -> dict[str, Any]:
    """An experiment in short: how many cells and records, their data, and where they were made."""
    plan, (records, _) = store.read_plan() or NO_PLAN, store.scan_records()
    made = Counter(json.dumps(record.environment.document(), sort_keys=True) for record in records)
    return {
        "experiment": plan.experiment,
        "planned": len(plan.cells),
        "records": len(records),
        "failures": len(store.read_failures()),
        "data": {record.cell.task: record.data.document() for record in records},
        "environments": [{"records": count, **json.loads(text)} for text, count in sorted(made.items())],
    }


def files_of(store: Store) -> dict[str, Path]:
    """The files of an experiment that belong into a bundle, by their path inside the experiment's folder.

    Arrays without a record are those of a cell, or of a pretraining, that is just being written.
    """
    texts = [path for path in store.folder.iterdir() if path.suffix in TEXTS]
    found = {path.name: path for path in [store.folder / "plan.json", *texts] if path.is_file()}
    complete = {
        **dict.fromkeys(("predictions", "test_predictions"), ("records", store.has_record)),
        "pretraining": ("pretraining", store.has_pretraining),
        "intrinsic": ("intrinsic", store.intrinsic.has),
    }
    # A sweep under way writes arrays before their record, so that those of a listed record are there to be listed.
    for suffix in (".json", ".safetensors"):
        for kind in (kind for kind, suffixes in KINDS.items() if suffix in suffixes):
            for path in (store.folder / kind).glob(f"*{suffix}"):
                if suffix == ".safetensors" and kind in complete:
                    records, has = complete[kind]
                    if f"{records}/{path.stem}.json" not in found or not has(path.stem):
                        continue
                found[f"{kind}/{path.name}"] = path
    return {name: found[name] for name in sorted(found) if not found[name].name.startswith(".")}


def summed(content: bytes | IO[bytes]) -> dict[str, Any]:
    """Size and SHA-256 of a file, of which only a part is in memory at a time."""
    total, size, file = hashlib.sha256(), 0, io.BytesIO(content) if isinstance(content, bytes) else content
    while block := file.read(2**20):
        total.update(block)
        size += len(block)
    return {"bytes": size, "sha256": total.hexdigest()}


class Summed(StoredValue):
    """Size and SHA-256 of a file."""

    bytes: Whole
    sha256: str


class Manifest(StoredValue):
    """What a bundle says of itself."""

    format: str
    schema_version: Whole
    glue_bench: str
    experiments: dict[str, dict[str, Any]]
    files: dict[str, Summed]
    digest: str


def is_place(name: str) -> bool:
    """Whether a bundle may have a file of this name: EXPERIMENT/FILE or EXPERIMENT/KIND/FILE, and nowhere else."""
    parts = name.split("/")
    plain = all(0 < len(part.encode(errors="replace")) <= 240 for part in parts)
    plain &= not any(part.startswith(".") or set(part) & set('\\:\0<>|"?*') for part in parts)
    if not plain or len(parts) not in (2, 3):
        return False
    if len(parts) == 2:
        return parts[1] == "plan.json" or parts[1].endswith(TEXTS)
    return parts[2].endswith(KINDS.get(parts[1], "\0"))


def _named(stores: Iterable[Store]) -> dict[str, Store]:
    several = sorted(((store.folder.resolve().name, store) for store in stores), key=lambda named: named[0])
    names = [name for name, _ in several]
    if len(set(names)) < len(names):
        raise UserError(f"two of the folders have one name ({', '.join(names)}); give each experiment once")
    for name in names:
        if not is_place(f"{name}/plan.json"):
            raise UserError(f"'{name}' cannot be the name of a folder on every system; rename it")
    return dict(several)


def _contents(stores: Mapping[str, Store]) -> Iterator[tuple[str, bytes]]:
    for experiment, store in stores.items():
        for name, path in files_of(store).items():
            try:
                yield f"{experiment}/{name}", read_file(path, LARGEST_ARRAYS)
            except FileNotFoundError:  # a failure, whose cell has been finished by a sweep under way
                continue
            except OSError as error:
                raise UserError(f"cannot read '{path}': {error.strerror}") from error
