"""Inputs behind a URL (s3://, gs://, https:// ...): copied into the cache by fsspec. Results never lie behind one."""

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from glue_bench.errors import DiskError, UserError, first_line
from glue_bench.files import IN_THE_CACHE, cache_folder, clear_abandoned, disk_trouble, whole_folder

VERSIONS = ("ETag", "Content-MD5", "Digest", "Last-Modified", "size")
"""What a web server says of the content of a file; fsspec itself takes files on the web for unchanging."""
_URL = re.compile(
    r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE
)  # two letters at least; Path makes one slash of two


def is_url(name: str | Path) -> bool:
    """Whether this is no place of a file system that is mounted here."""
    return bool(_URL.match(str(name)))


def refuse_url(folder: str | Path, what: str = "results") -> None:
    """Raise UserError for a URL where files have to be created exclusively, locked and renamed."""
    if is_url(folder):
        raise UserError(
            f"{what} cannot lie at '{folder}': that takes a file system with locks and renames, which an object store "
            "is not; give a folder, and copy it there afterwards"
        )


@cache
def fetched(url: str) -> Path:
    """A local copy of the file or folder behind a URL, as it is at the process's first look.

    Copies lie in the cache, one for each state that was seen. Raises UserError where nothing is there, it cannot be
    read, or fsspec lacks a package for such URLs; DiskError where the cache cannot be written.
    """
    import fsspec

    folder = cache_folder() / "fetched"
    try:
        files, root = fsspec.core.url_to_fs(url)
        names = {
            path: path.removeprefix(root).strip("/") or Path(path).name
            for path in sorted(files.find(root))
        }
        if outside := [name for name in names.values() if ".." in Path(name).parts]:
            raise ValueError(f"it has a file '{outside[0]}'")
        state = _state(files, url, names)
        folder = folder / hashlib.sha256(state.encode()).hexdigest()[:16]
        if names and not folder.is_dir():
            clear_abandoned(folder.parent)
            with whole_folder(folder) as aside:
                for path, name in names.items():
                    (aside / name).parent.mkdir(parents=True, exist_ok=True)
                    files.get_file(path, str(aside / name))
                files.invalidate_cache()
                if _state(files, url, names) != state:
                    raise ValueError("it has changed while it was copied; run again")
    except ImportError as error:  # its message names the package
        raise UserError(f"cannot read '{url}': {error}") from error
    except Exception as error:  # every file system has errors of its own
        if trouble := disk_trouble(error):
            raise DiskError(
                f"cannot copy '{url}' to '{folder}': {trouble}; {IN_THE_CACHE}"
            ) from error
        raise UserError(
            f"cannot read '{url}' ({type(error).__name__}: {first_line(error)})"
        ) from error
    if not names:
        raise UserError(f"nothing at '{url}'")
    (name, *more) = names.values()
    return folder / name if not more and url.rstrip("/").endswith(f"/{name}") else folder


def _state(files: Any, url: str, names: Mapping[str, str]) -> str:
    """What changes whenever the content of any of these files does, as far as their file system tells.

    `names` maps the path of each file to its name below the URL.
    """
    lines = [url]
    for path, name in names.items():
        facts = files.info(path)
        versions = [f"{key}={facts[key]}" for key in VERSIONS if key in facts]
        lines.append(" ".join([name, files.ukey(path), *versions]))
    return "\n".join(lines)
