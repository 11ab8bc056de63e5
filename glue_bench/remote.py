"""Inputs that lie elsewhere: behind a URL (s3://, gs://, https:// ...), or on the hub.

fsspec copies what is behind a URL into the cache. Results never lie behind a URL.
"""

import hashlib
import re
import time
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from glue_bench.errors import DiskError, UserError, first_line
from glue_bench.files import IN_THE_CACHE, cache_folder, clear_abandoned, disk_trouble, whole_folder

VERSIONS = ("ETag", "Content-MD5", "Digest", "Last-Modified", "size")
"""Facts of a web server that change with a file. fsspec itself takes files there for constant."""
_URL = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)
"""The beginning of a URL: a scheme of at least two letters. Path makes one slash of two."""
_HUB_URL = re.compile(r"hf:/", re.IGNORECASE)
CONNECT_SECONDS = 6.0
"""The longest wait for a connection to the hub.

A resolver asks again after five seconds if its first packet is lost.
"""
KEPT_SECONDS = 20.0
"""How long it is known whether the hub can be reached."""
ANSWER_SECONDS = 1.0
"""The longest wait for the first answer. A hub that is slower is there all the same."""


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


def hub_fault() -> str:
    """Say why the Hugging Face hub cannot be asked; an empty text if it can.

    Without a network, the libraries ask the hub again and again for a minute or several. One
    connection to its address (HF_ENDPOINT, by the proxy if there is one) tells the same at once.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return "the hub is switched off by HF_HUB_OFFLINE"
    period = int(time.monotonic() // KEPT_SECONDS)
    return _connection_fault(constants.ENDPOINT, period)


@lru_cache(maxsize=1)
def _connection_fault(endpoint: str, period: int) -> str:  # noqa: ARG001
    """Connect to the hub, and return why that failed, or an empty text; once in each period.

    A run asks for each of its tasks, and has to wait only once where connections hang.
    """
    from huggingface_hub.utils import get_session

    faults: SimpleQueue[str] = SimpleQueue()
    waits = (CONNECT_SECONDS, ANSWER_SECONDS, ANSWER_SECONDS, ANSWER_SECONDS)

    def ask() -> None:
        try:
            get_session().head(endpoint, timeout=waits, follow_redirects=False)
        except Exception as error:  # of httpx or httpx2, as the version of the client has it
            if type(error).__name__ in ("ConnectError", "ConnectTimeout", "ProxyError"):
                faults.put(first_line(error))
                return
        faults.put("")

    # A thread, because the connection has no limit of its own for the look-up of a name, and one
    # for each of the addresses behind it.
    Thread(target=ask, daemon=True).start()
    try:
        fault = faults.get(timeout=CONNECT_SECONDS + ANSWER_SECONDS)
    except Empty:
        fault = f"no connection in {CONNECT_SECONDS:.0f} seconds"
    return f"{endpoint}: {fault}" if fault else ""


@cache
def fetched(url: str) -> Path:
    """Return a local copy of the file or folder behind a URL, in its state at the first call.

    Copies lie in the cache, one for each state.

    Raises:
        UserError: nothing is there, it cannot be read, or fsspec lacks a package for such URLs.
        DiskError: the cache cannot be written.
    """
    import fsspec

    _refuse_if_unreachable(url)
    folder = cache_folder() / "fetched"
    try:
        files, root = fsspec.core.url_to_fs(url)
        names = _names_below(files, root)
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
        raise _absence_error(files, root, url)
    first_name = next(iter(names.values()))
    is_file = len(names) == 1 and url.rstrip("/").endswith(f"/{first_name}")
    return folder / first_name if is_file else folder


def _refuse_if_unreachable(url: str) -> None:
    """Raise UserError for a URL of the hub, if the hub cannot be reached."""
    fault = hub_fault() if _HUB_URL.match(url) else ""
    if fault:
        raise UserError(f"cannot read '{url}' ({fault})")


def _absence_error(files: Any, root: str, url: str) -> UserError:
    """Make the error for a URL where fsspec finds no file.

    It takes also an answer of a server, and a network that is gone, for an absent file.
    """
    try:
        files.info(root)
    except Exception as error:  # every file system has errors of its own
        cause = error.__cause__
        if cause is not None:
            return UserError(f"cannot read '{url}' ({type(cause).__name__}: {first_line(cause)})")
    return UserError(f"nothing at '{url}'")


def _names_below(files: Any, root: str) -> dict[str, str]:
    """Return the name below a root by the path of each file, in order.

    Raises ValueError for a name that leads out of the root.
    """
    names: dict[str, str] = {}
    for path in sorted(files.find(root)):
        name = path.removeprefix(root).strip("/") or Path(path).name
        if ".." in Path(name).parts:
            raise ValueError(f"it has a file '{name}'")
        names[path] = name
    return names


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
