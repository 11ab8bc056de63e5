"""Whether stored results are true: a bundle against its manifest, and every experiment in it or in a folder."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glue_bench.audit.bundle import MANIFEST, describe, is_place
from glue_bench.audit.checks import Check, check_experiment
from glue_bench.audit.unpack import DAMAGED, compare, read_manifest, unpacked
from glue_bench.errors import UserError
from glue_bench.records.store import Store, experiments_in

BUNDLE = "bundle"


@dataclass(frozen=True)
class Verified:
    """An experiment, or the bundle around several, and what was checked of it."""

    name: str
    checks: tuple[Check, ...]

    @property
    def faults(self) -> list[str]:
        """Every fault with its file."""
        return [fault for check in self.checks for fault in check.faults]


def verify(path: str | Path) -> list[Verified]:
    """Check a bundle, an unpacked one, an experiment's folder, or a folder of experiments.

    Raises:
        UserError: there is no such file or folder, or it is none of these.
    """
    path = Path(path)
    if path.is_dir():
        return _verify_folder(path, _manifest_in(path))
    if not path.exists():
        raise UserError(f"no file or folder '{path}'")
    with unpacked(path) as bundle:
        return _verify_bundle(bundle.folder, bundle.manifest, bundle.faults)


def _manifest_in(folder: Path) -> Mapping[str, Any] | None:
    """The manifest of an unpacked bundle."""
    file = folder / MANIFEST
    return read_manifest(file.read_bytes(), folder) if file.is_file() else None


def _verify_folder(folder: Path, manifest: Mapping[str, Any] | None) -> list[Verified]:
    if manifest is None:
        return [Verified(str(store.folder), tuple(check_experiment(store))) for store in experiments_in(folder)]

    def read(name: str) -> bytes:
        if not is_place(name):
            raise UserError("a bundle has no file of such a name")
        return (folder / name).read_bytes()

    files = (file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    names = [name for name in files if name != MANIFEST]
    return _verify_bundle(folder, manifest, tuple(compare(manifest, names, read)))


def _verify_bundle(folder: Path, manifest: Mapping[str, Any], faults: tuple[str, ...]) -> list[Verified]:
    """The bundle itself, then each experiment, whose faults are told by their paths in the bundle."""
    stores = {name: Store(folder / name) for name in manifest["experiments"] if is_place(f"{name}/plan.json")}
    within = [Verified(name, tuple(_named(name, check_experiment(store)))) for name, store in stores.items()]
    faults = (*faults, *_undescribed(stores, manifest))
    files = f"{len(manifest['files'])} files, by glue-bench {manifest['glue_bench']}"
    return [Verified(BUNDLE, (Check("digests", files, faults),)), *within]


def _named(experiment: str, checks: list[Check]) -> Iterator[Check]:
    for check in checks:
        yield Check(check.name, check.found, tuple(f"{experiment}/{fault}" for fault in check.faults))


def _undescribed(stores: Mapping[str, Store], manifest: Mapping[str, Any]) -> Iterator[str]:
    for name, told in manifest["experiments"].items():
        try:
            right = name in stores and describe(stores[name]) == told
        except (UserError, OSError):
            right = False
        if not right:
            yield f"{MANIFEST}: what it says of {name} is not what is there; {DAMAGED}"
