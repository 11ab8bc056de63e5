"""Inputs behind a URL (s3://, gs://, https:// ...): copied into the cache by fsspec. Results never lie behind one."""

import hashlib
import re
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from glue_bench.errors import DiskError, UserError, first_line
from glue_bench.files import cache_folder, disk_trouble, whole_folder

_URL = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)  # two letters at least; Path makes one slash of two


def is_url(name: str | Path) -> bool:
    """Whether this is no place of a file system that is mounted here."""
    return bool(_URL.match(str(name)))


def refuse_url(folder: str | Path, what: str = "results") -> None:
    """Refuse a URL where files have to be created exclusively, locked and renamed.

    Raises:
        UserError: it is one.
    """
    if is_url(folder):
        raise UserError(
            f"{what} cannot lie at '{folder}': that takes a file system with locks and renames, which an object store "
            "is not; give a folder, and copy it there afterwards"
        )


@cache
def fetched(url: str) -> Path:
    """A local copy of the file or folder behind a URL, as it is at the process's first look.

    Copies lie in the cache, one for each state that was seen.

    Raises:
        UserError: nothing there, it cannot be read, or fsspec lacks a package for such URLs.
        DiskError: the cache is full or cannot be written.
    """
    import fsspec

    try:
        files, root = fsspec.core.url_to_fs(url)
        paths = sorted(files.find(root))
        names = [path.removeprefix(root).strip("/") or PurePosixPath(path).name for path in paths]
        state = "\n".join([url, *(f"{name} {files.ukey(path)}" for name, path in zip(names, paths, strict=True))])
    except ImportError as error:  # its message names the package
        raise UserError(f"cannot read '{url}': {error}") from error
    except Exception as error:  # every file system has errors of its own
        raise _unreadable(url, error) from error
    if not names:
        raise UserError(f"nothing at '{url}'")
    folder = cache_folder() / "fetched" / hashlib.sha256(state.encode()).hexdigest()[:16]
    if not folder.is_dir():
        with whole_folder(folder) as aside:
            for name, path in zip(names, paths, strict=True):
                _copy(files, path, aside / name, url)
    return folder / names[0] if len(names) == 1 and url.rstrip("/").endswith(f"/{names[0]}") else folder


def _copy(files: Any, path: str, place: Path, url: str) -> None:
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        files.get_file(path, str(place))
    except Exception as error:
        said = disk_trouble(error)
        if said:
            raise DiskError(f"cannot copy '{url}' to '{place.parent}': {said}; make room in the cache") from error
        raise _unreadable(url, error) from error


def _unreadable(url: str, error: Exception) -> UserError:
    return UserError(f"cannot read '{url}' ({type(error).__name__}: {first_line(error)})")
