"""Inputs behind a URL (s3://, gs://, https:// ...), which fsspec copies into the cache.

Results never lie behind a URL.
"""

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from glue_bench.errors import DiskError, UserError, first_line
from glue_bench.files import IN_THE_CACHE, cache_folder, clear_abandoned, disk_trouble, whole_folder

VERSIONS = ("ETag", "Content-MD5", "Digest", "Last-Modified", "size")
"""Facts of a web server that change with a file. fsspec itself takes files there for constant."""
_URL = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)
"""The beginning of a URL: a scheme of at least two letters. Path makes one slash of two."""


def is_url(name: str | Path) -> bool:
    """Whether a name is a URL, and not a place in a mounted file system."""
    return bool(_URL.match(str(name)))


def refuse_url(folder: str | Path, content: str = "results") -> None:
    """Raise UserError for a URL where files have to be created exclusively, locked and renamed."""
    if is_url(folder):
        raise UserError(
            f"{content} cannot lie at '{folder}': that takes a file system with locks and renames, "
            "which an object store is not; give a folder, and copy it there afterwards"
        )


@cache
def fetched(url: str) -> Path:
    """Return a local copy of the file or folder behind a URL, in its state at the first call.

    Copies lie in the cache, one for each state.

    Raises:
        UserError: nothing is there, it cannot be read, or fsspec lacks a package for such URLs.
        DiskError: the cache cannot be written.
    """
    import fsspec

    folder = cache_folder() / "fetched"
    try:
        files, root = fsspec.core.url_to_fs(url)
        names: dict[str, str] = {}
        for path in sorted(files.find(root)):
            name = path.removeprefix(root).strip("/") or Path(path).name
            if ".." in Path(name).parts:
                raise ValueError(f"it has a file '{name}'")
            names[path] = name
        state = _state(files, url, names)
        folder = folder / hashlib.sha256(state.encode()).hexdigest()[:16]
        if names and not folder.is_dir():
            clear_abandoned(folder.parent)
            with whole_folder(folder) as aside:
                for path, name in names.items():
                    target = aside / name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    files.get_file(path, str(target))
                files.invalidate_cache()
                if _state(files, url, names) != state:
                    raise ValueError("it has changed while it was copied; run again")
    except ImportError as error:  # its message names the package
        raise UserError(f"cannot read '{url}': {error}") from error
    except Exception as error:  # every file system has errors of its own
        trouble = disk_trouble(error)
        if trouble:
            raise DiskError(
                f"cannot copy '{url}' to '{folder}': {trouble}; {IN_THE_CACHE}"
            ) from error
        raise UserError(
            f"cannot read '{url}' ({type(error).__name__}: {first_line(error)})"
        ) from error
    if not names:
        raise UserError(f"nothing at '{url}'")
    first_name = next(iter(names.values()))
    is_file = len(names) == 1 and url.rstrip("/").endswith(f"/{first_name}")
    return folder / first_name if is_file else folder


def _state(files: Any, url: str, names: Mapping[str, str]) -> str:
    """Describe the state of files by facts that change with their content.

    Args:
        files: The file system of fsspec.
        url: The URL that was asked for.
        names: The name below the URL by the path of each file.
    """
    lines = [url]
    for path, name in names.items():
        facts = files.info(path)
        versions = [f"{key}={facts[key]}" for key in VERSIONS if key in facts]
        lines.append(" ".join([name, files.ukey(path), *versions]))
    return "\n".join(lines)
