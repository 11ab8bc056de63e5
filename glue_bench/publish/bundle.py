"""Bundles: experiments in one archive for others, written here, and opened whoever wrote them.

A bundle has the plan (with the experiment's configuration), records, predictions, gold labels,
failures, tables, and the text of plugins. Nothing of it is run when a bundle is read. Models,
checkpoints and half-written files stay behind. The same content gives the same bytes, also if
folders of an experiment are links. No path of the machine is in it: plans have none, and of the
paths in errors only the last name stays.
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

from glue_bench.config import Experiment
from glue_bench.errors import UserError
from glue_bench.files import (
    ELSEWHERE,
    ENCRYPTED,
    MAX_ARRAY_BYTES,
    UNREADABLE,
    check_file,
    file_digest,
    opened_zip,
    read_file,
    results_written_to,
    whole_file,
    zip_entry,
)
from glue_bench.pages.files import WRITTEN_TABLES
from glue_bench.pages.published import PAPERS
from glue_bench.records.base import Digest, Sealed, Text, Value, Whole
from glue_bench.records.layout import BUNDLED_FILE, FAILURES, PLAN, bundled_files
from glue_bench.records.store import Store
from glue_bench.records.values import Failure, Plan

MANIFEST = "manifest.json"
MAX_BUNDLE_BYTES = 2**40
MAX_MANIFEST_BYTES = 2**26
NO_BUNDLE = "not a bundle that `glue-bench export` wrote"
DAMAGED_BUNDLE = "the bundle is damaged; get it anew"
TABLE_FILES = (*WRITTEN_TABLES, *(f"{name}.md" for name in PAPERS))
"""The tables that an experiment's folder may have. Any other file beside them is its owner's."""
_FILE_NAME = r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,239}"
BUNDLED_PATH = re.compile(rf"{_FILE_NAME}/({'|'.join(map(re.escape, TABLE_FILES))}|{BUNDLED_FILE})")
"""The paths that files of a bundle may have."""
PATH_STARTS = ("/", "~", ".")
"""How paths begin in the plans of earlier versions, which had the paths of checkpoints."""
_ROOT = r"(?:file://|[A-Za-z]:)?(?!//)[/\\~]"
ABSOLUTE_FOLDERS = re.compile(
    rf"""(?<=['"]){_ROOT}[^'"\n]*[/\\]"""
    rf"""|(?<![\w./~\\-]){_ROOT}[^\s'"]*[/\\]"""
)
"""The folders of an absolute path in a text. Between quotes a path may have blanks."""


class FileSum(Value):
    """The size and the SHA-256 of a file."""

    bytes: Whole
    sha256: Digest


class Manifest(Sealed):
    """The content of a bundle; `files` are by EXPERIMENT/FILE."""

    format: Literal["glue-bench bundle"] = "glue-bench bundle"
    glue_bench: Text
    files: dict[Text, FileSum]

    @property
    def experiments(self) -> list[str]:
        """The names of the experiments in it."""
        return sorted({name.partition("/")[0] for name in self.files})


def write_bundle(stores: Iterable[Store], path: Path) -> Manifest:
    """Write the files of experiments and their manifest into one zip, and return the manifest.

    Nothing is compressed: logits hardly can be, and compressors differ between builds of zlib.

    Args:
        stores: The experiments.
        path: The zip to write. It is either whole or as it was before.

    Raises:
        UserError: two experiments have one name, a plan is damaged, or a file cannot be read or
            written.
    """
    files: dict[str, Path] = {}
    for store in stores:
        store.plan()  # raises its own error, with the path of the plan
        folder = store.folder.resolve()
        if f"{folder.name}/{PLAN}" in files:
            raise UserError(
                f"two of the folders have one name ({folder.name}); give each experiment once"
            )
        if not BUNDLED_PATH.fullmatch(f"{folder.name}/{PLAN}"):
            raise UserError(
                f"'{folder.name}' cannot be the name of a folder on every system; rename it"
            )
        files |= _bundled_files(folder)

    sums: dict[str, FileSum] = {}
    with (
        results_written_to(path.parent, ELSEWHERE),
        whole_file(path) as file,
        zipfile.ZipFile(file, "w") as archive,
    ):
        for name, source in sorted(files.items()):
            try:
                content = read_file(source, MAX_ARRAY_BYTES)
            except FileNotFoundError:
                # A sweep under way has replaced the file, or finished a job that had failed.
                continue
            content = _public_content(name, content)
            sha256 = hashlib.sha256(content).hexdigest()
            sums[name] = FileSum(bytes=len(content), sha256=sha256)
            archive.writestr(zip_entry(name), content)

        manifest = Manifest(glue_bench=version("glue-bench"), files=sums).seal()
        archive.writestr(zip_entry(MANIFEST), manifest.file())

    return manifest


def _bundled_files(folder: Path) -> dict[str, Path]:
    """Return the files of an experiment that a bundle has, by their paths in the bundle."""
    files = bundled_files(folder)
    for name in TABLE_FILES:
        if (folder / name).is_file():
            files[name] = folder / name
    return {f"{folder.name}/{place}": path for place, path in files.items()}


def _public_content(name: str, content: bytes) -> bytes:
    """Take the paths of this machine out of the content of a plan or a failure."""
    part = name.split("/")[1]
    try:
        if part == PLAN:
            return _public_plan(content)
        if part == FAILURES:
            return _public_failure(content)
    except ValueError:  # the file is damaged; `verify` reports it
        pass
    return content


def _public_plan(content: bytes) -> bytes:
    """Name checkpoints and tokenizers by the last names of their paths, as new plans do."""
    plan = Plan.read(content)
    public = _public_experiment(plan.experiment)
    if public == plan.experiment:
        return content
    return plan.model_copy(update={"experiment": public}).seal().file()


def _public_experiment(experiment: Experiment) -> Experiment:
    """Return an experiment in which places on a disk are only names."""
    arms = []
    for arm in experiment.arms:
        tokenizer = _last_name(arm.tokenizer) if arm.tokenizer else arm.tokenizer
        names = {"checkpoint": _last_name(arm.checkpoint), "tokenizer": tokenizer}
        arms.append(arm.model_copy(update=names))
    changes: dict[str, Any] = {"arms": arms}
    pretraining = experiment.pretraining
    if pretraining and pretraining.tokenizer:
        tokenizer = _last_name(pretraining.tokenizer)
        changes["pretraining"] = pretraining.model_copy(update={"tokenizer": tokenizer})
    return experiment.model_copy(update=changes)


def _last_name(place: str) -> str:
    """Return `./NAME` for a path, as tables name it.

    Anything else, such as an id of the hub, stays as it is.
    """
    return f"./{PurePath(place).name}" if place.startswith(PATH_STARTS) else place


def _public_failure(content: bytes) -> bytes:
    failure = Failure.read(content)
    texts = {
        "error": ABSOLUTE_FOLDERS.sub("", failure.error),
        "traceback": ABSOLUTE_FOLDERS.sub("", failure.traceback),
    }
    return failure.model_copy(update=texts).file()


@dataclass(frozen=True)
class OpenedBundle:
    """The content of a bundle in a folder, and its manifest.

    `faults` has a line about each file that does not fit the manifest.
    """

    folder: Path
    manifest: Manifest
    faults: tuple[str, ...]


@contextmanager
def open_bundle(path: Path) -> Iterator[OpenedBundle]:
    """Unpack a bundle into a temporary folder. Files that are not in its manifest are not unpacked.

    Raises UserError if the file is no zip or has no manifest that can be read, or if there is no
    room to unpack it.
    """
    with TemporaryDirectory(prefix="glue-bench-verify-") as folder:
        try:
            check_file(path, MAX_BUNDLE_BYTES)
            with opened_zip(path) as archive:
                bundle = _unpack_bundle(archive, path, Path(folder))
        except UNREADABLE as error:
            raise UserError(
                f"'{path}' is {NO_BUNDLE}, or damaged ({str(error).lower()})"
            ) from error
        yield bundle


def _unpack_bundle(archive: zipfile.ZipFile, path: Path, folder: Path) -> OpenedBundle:
    """Unpack the manifest and the files that it names, and compare each file with it."""
    entries = archive.infolist()
    _check_entries(entries, path)
    counts = Counter(entry.filename for entry in entries)
    if not counts.pop(MANIFEST, 0):
        raise UserError(f"'{path}' is {NO_BUNDLE}: it has no {MANIFEST}")

    try:
        content = read_file(_unpack_entry(archive, MANIFEST, folder), MAX_MANIFEST_BYTES)
        manifest = Manifest.read(content)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path}: {MANIFEST} is no manifest, or was changed after it was written; "
            f"{DAMAGED_BUNDLE}"
        ) from error

    faults = []
    for name, count in counts.items():
        if count > 1:
            faults.append(f"{name}: {count} times in the bundle; {DAMAGED_BUNDLE}")
    for name in counts:
        if name not in manifest.files:
            faults.append(f"{name}: not in the manifest; take it away")

    for name, expected in manifest.files.items():
        if not BUNDLED_PATH.fullmatch(name):
            faults.append(f"{name}: a bundle has no file of such a name; {DAMAGED_BUNDLE}")
        elif name not in counts:
            faults.append(f"{name}: missing; {DAMAGED_BUNDLE}")
        else:
            try:
                file = _unpack_entry(archive, name, folder)
                actual = FileSum(bytes=file.stat().st_size, sha256=file_digest(file))
                if actual != expected:
                    faults.append(
                        f"{name}: not what the manifest has a digest of; {DAMAGED_BUNDLE}"
                    )
            except UNREADABLE as error:
                faults.append(f"{name}: cannot be read ({error}); {DAMAGED_BUNDLE}")

    return OpenedBundle(folder, manifest, tuple(faults))


def _check_entries(entries: Iterable[zipfile.ZipInfo], path: Path) -> None:
    """Raise UserError if an archive could unpack to more bytes than it has itself."""
    unpacked_bytes = 0
    for entry in entries:
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & ENCRYPTED:
            raise UserError(f"{path}: {entry.filename} is compressed or encrypted; {NO_BUNDLE}")
        unpacked_bytes += entry.file_size
    if unpacked_bytes > path.stat().st_size:
        raise UserError(f"{path}: its files are larger than the archive; {NO_BUNDLE}")


def _unpack_entry(archive: zipfile.ZipFile, name: str, folder: Path) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(name) as entry, file.open("wb") as copy:
        shutil.copyfileobj(entry, copy)
    return file
