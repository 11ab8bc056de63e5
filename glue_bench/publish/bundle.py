"""Experiments in one archive for others, and what is in one that anybody may have made.

A bundle has the plan (with the experiment's configuration), records, predictions, gold labels, failures and tables.
Models, checkpoints and half-written files stay behind. The same content gives the same bytes, also where folders of an
experiment are links. No path of the machine is in it: plans have none, and in errors the last name alone stays.
"""

import hashlib
import re
import shutil
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any, Literal

from glue_bench.errors import UserError
from glue_bench.files import (
    ELSEWHERE,
    ENCRYPTED,
    LARGEST_ARRAYS,
    UNREADABLE,
    check_file,
    file_digest,
    opened_zip,
    plain_entry,
    read_file,
    results_written_to,
    whole_file,
)
from glue_bench.pages.files import TABLES
from glue_bench.pages.papers import PAPERS
from glue_bench.records.base import Digest, Sealed, Text, Value, Whole
from glue_bench.records.store import Store
from glue_bench.records.values import Failure, Plan

MANIFEST = "manifest.json"
LARGEST_BUNDLE, LARGEST_MANIFEST = 2**40, 2**26
NO_BUNDLE = "not a bundle that `glue-bench export` wrote"
DAMAGED = "the bundle is damaged; get it anew"
PAGES = (*TABLES, *(f"{name}.md" for name in PAPERS))
"""The tables that an experiment's folder may have; any other file there is its owner's."""
_NAME = r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,239}"
PLACE = re.compile(
    rf"{_NAME}/(plan\.json|{'|'.join(map(re.escape, PAGES))}|(failures/{_NAME}\.json)|(labels/{_NAME}\.safetensors)"
    rf"|cells/{_NAME}/(record\.json|(logits|tests)\.safetensors)"
    rf"|pretrainings/{_NAME}/(record\.json|(losses|sums)\.safetensors))"
)
"""What a bundle may have a file of, and nowhere else."""
INSIDE = ("*", "failures/*", "labels/*", "cells/*/*", "pretrainings/*/*")
"""Where files of an experiment lie that a bundle may have. Unlike `rglob`, these patterns enter linked folders."""
PATHS = ("/", "~", ".")
"""How paths begin in plans that were written while these still had them."""
_ROOT = r"(?:file://|[A-Za-z]:)?(?!//)[/\\~]"
ABSOLUTE = re.compile(
    rf"""(?<=['"]){_ROOT}[^'"\n]*[/\\]"""
    rf"""|(?<![\w./~\\-]){_ROOT}[^\s'"]*[/\\]"""
)
"""The folders of an absolute path in a text: it may have blanks between quotes."""


class Summed(Value):
    """Size and SHA-256 of a file."""

    bytes: Whole
    sha256: Digest


class Manifest(Sealed):
    """What a bundle says of itself; `files` are by EXPERIMENT/FILE."""

    format: Literal["glue-bench bundle"] = "glue-bench bundle"
    glue_bench: Text
    files: dict[Text, Summed]

    @property
    def experiments(self) -> list[str]:
        """The names of the experiments in it."""
        return sorted({name.partition("/")[0] for name in self.files})


def write_bundle(stores: Iterable[Store], path: Path) -> Manifest:
    """Write the experiments' files and their manifest, which is returned. `path` is either whole or as it was.

    Nothing is compressed: logits hardly can be, and compressors differ between builds of zlib. Raises UserError where
    two experiments have one name, a plan is damaged, or a file cannot be read or written.
    """
    files: dict[str, Path] = {}
    for store in stores:
        store.plan()  # what is wrong with it is said with its own path
        folder = store.folder.resolve()
        if f"{folder.name}/plan.json" in files:
            raise UserError(
                f"two of the folders have one name ({folder.name}); give each experiment once"
            )
        if not PLACE.fullmatch(f"{folder.name}/plan.json"):
            raise UserError(
                f"'{folder.name}' cannot be the name of a folder on every system; rename it"
            )
        paths = [path for pattern in INSIDE for path in folder.glob(pattern) if path.is_file()]
        named = {path.relative_to(folder.parent).as_posix(): path for path in paths}
        files |= {name: path for name, path in named.items() if PLACE.fullmatch(name)}
    sums: dict[str, Summed] = {}
    with (
        results_written_to(path.parent, ELSEWHERE),
        whole_file(path) as file,
        zipfile.ZipFile(file, "w") as archive,
    ):
        for name, source in sorted(files.items()):
            try:
                content = _public(name, read_file(source, LARGEST_ARRAYS))
            except (
                FileNotFoundError
            ):  # a sweep under way has replaced it, or finished what had failed
                continue
            sums[name] = Summed(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
            archive.writestr(plain_entry(name), content)
        manifest = Manifest(glue_bench=version("glue-bench"), files=sums).seal()
        archive.writestr(plain_entry(MANIFEST), manifest.file())
    return manifest


def _public(name: str, content: bytes) -> bytes:
    """The content of a file as a bundle has it: plans and errors do not say where a person keeps files."""
    part = name.split("/")[1]
    try:
        if part == "plan.json":
            return _public_plan(content)
        if part == "failures":
            return _public_failure(content)
    except ValueError:  # damaged, which `verify` says
        pass
    return content


def _public_plan(content: bytes) -> bytes:
    """A plan that names checkpoints and tokenizers by the last names of their paths, as new plans do."""
    plan = Plan.read(content)
    experiment = plan.experiment
    arms = []
    for arm in experiment.arms:
        names = {
            "checkpoint": _last_name(arm.checkpoint),
            "tokenizer": arm.tokenizer and _last_name(arm.tokenizer),
        }
        arms.append(arm.model_copy(update=names))
    changes: dict[str, Any] = {"arms": arms}
    pretraining = experiment.pretraining
    if pretraining and pretraining.tokenizer:
        name = _last_name(pretraining.tokenizer)
        changes["pretraining"] = pretraining.model_copy(update={"tokenizer": name})
    public = experiment.model_copy(update=changes)
    return (
        content
        if public == experiment
        else plan.model_copy(update={"experiment": public}).seal().file()
    )


def _last_name(place: str) -> str:
    """`./name` of a path that tables name by its last name, too; any other place as it is."""
    return f"./{PurePath(place).name}" if place.startswith(PATHS) else place


def _public_failure(content: bytes) -> bytes:
    failure = Failure.read(content)
    texts = {"error": failure.error, "traceback": failure.traceback}
    return failure.model_copy(
        update={field: ABSOLUTE.sub("", text) for field, text in texts.items()}
    ).file()


@dataclass(frozen=True)
class Opened:
    """A bundle's content in a folder, its manifest, and a line about each file that is not as the manifest has it."""

    folder: Path
    manifest: Manifest
    faults: tuple[str, ...]


@contextmanager
def opened_bundle(path: Path) -> Iterator[Opened]:
    """A bundle. Files that are not in its manifest are not unpacked.

    Raises UserError where it is no zip or has no manifest that can be read, or there is no room to unpack it.
    """
    with TemporaryDirectory(prefix="glue-bench-verify-") as folder:
        try:
            check_file(path, LARGEST_BUNDLE)
            with opened_zip(path) as archive:
                opened = _unpacked(archive, path, Path(folder))
        except UNREADABLE as error:
            raise UserError(
                f"'{path}' is {NO_BUNDLE}, or damaged ({str(error).lower()})"
            ) from error
        yield opened


def _unpacked(archive: zipfile.ZipFile, path: Path, folder: Path) -> Opened:
    """The manifest and what it names, each file compared with it. Nothing unpacks to more than the archive has."""
    entries = archive.infolist()
    for entry in entries:
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & ENCRYPTED:
            raise UserError(f"{path}: {entry.filename} is compressed or encrypted; {NO_BUNDLE}")
    if sum(entry.file_size for entry in entries) > path.stat().st_size:
        raise UserError(f"{path}: its files are larger than the archive; {NO_BUNDLE}")

    def unpack(name: str) -> Path:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with archive.open(name) as file, (folder / name).open("wb") as copy:
            shutil.copyfileobj(file, copy)
        return folder / name

    counts = Counter(entry.filename for entry in entries)
    if not counts.pop(MANIFEST, 0):
        raise UserError(f"'{path}' is {NO_BUNDLE}: it has no {MANIFEST}")
    try:
        manifest = Manifest.read(read_file(unpack(MANIFEST), LARGEST_MANIFEST))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path}: {MANIFEST} is no manifest, or was changed after it was written; {DAMAGED}"
        ) from error
    faults = [
        f"{name}: {count} times in the bundle; {DAMAGED}"
        for name, count in counts.items()
        if count > 1
    ]
    faults += [
        f"{name}: not in the manifest; take it away"
        for name in counts
        if name not in manifest.files
    ]
    for name, expected in manifest.files.items():
        if not PLACE.fullmatch(name):
            faults.append(f"{name}: a bundle has no file of such a name; {DAMAGED}")
        elif name not in counts:
            faults.append(f"{name}: missing; {DAMAGED}")
        else:
            try:
                file = unpack(name)
                if (file.stat().st_size, file_digest(file)) != (expected.bytes, expected.sha256):
                    faults.append(f"{name}: not what the manifest has a digest of; {DAMAGED}")
            except UNREADABLE as error:
                faults.append(f"{name}: cannot be read ({error}); {DAMAGED}")
    return Opened(folder, manifest, tuple(faults))
