"""Whether stored results are true: a bundle against its manifest, and every experiment in it or in a folder."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from glue_bench.audit.bundle import MANIFEST, describe, is_place
from glue_bench.audit.checks import Check, check_experiment
from glue_bench.audit.unpack import DAMAGED, compare, read_manifest, unpacked
from glue_bench.errors import UserError
from glue_bench.files import check_file, read_file
from glue_bench.records.disk import LARGEST_ARRAYS
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

    Example:
        >>> [fault for each in glue_bench.verify("demo.zip") for fault in each.faults]  # doctest: +SKIP

    Raises:
        UserError: there is no such file or folder, or it is none of these.
    """
    path = Path(path).expanduser()
    if (path / MANIFEST).is_file():
        manifest = read_manifest(read_file(path / MANIFEST), path)
        files = [file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()]

        def opened(name: str) -> IO[bytes]:
            check_file(path / name, LARGEST_ARRAYS)
            return (path / name).open("rb")

        names = [name for name in files if name != MANIFEST]
        faults = compare(manifest, names, opened)
        return _verify_bundle(path, manifest, tuple(faults))
    if path.is_dir():
        return [Verified(str(store.folder), tuple(check_experiment(store))) for store in experiments_in(path)]
    if not path.exists():
        raise UserError(f"no file or folder '{path}'")
    with unpacked(path) as bundle:
        return _verify_bundle(bundle.folder, bundle.manifest, bundle.faults)


def _verify_bundle(folder: Path, manifest: Mapping[str, Any], faults: tuple[str, ...]) -> list[Verified]:
    """The bundle itself, then each experiment, whose faults are told by their paths in the bundle."""
    stores = {name: Store(folder / name) for name in manifest["experiments"] if is_place(f"{name}/plan.json")}
    within = []
    for name, store in stores.items():
        checks = check_experiment(store)
        told = [replace(check, faults=tuple(f"{name}/{fault}" for fault in check.faults)) for check in checks]
        within.append(Verified(name, tuple(told)))
    faults = (*faults, *_undescribed(stores, manifest))
    files = f"{len(manifest['files'])} files, by glue-bench {manifest['glue_bench']}"
    return [Verified(BUNDLE, (Check("digests", files, faults),)), *within]


def _undescribed(stores: Mapping[str, Store], manifest: Mapping[str, Any]) -> Iterator[str]:
    for name, told in manifest["experiments"].items():
        try:
            right = name in stores and describe(stores[name]) == told
        except (UserError, OSError):
            right = False
        if not right:
            yield f"{MANIFEST}: what it says of {name} is not what is there; {DAMAGED}"
    for name in sorted({file.partition("/")[0] for file in manifest["files"]} - manifest["experiments"].keys()):
        yield f"{MANIFEST}: it has files of {name}, and says nothing of that experiment; {DAMAGED}"
