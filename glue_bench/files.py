"""Files and folders that are either absent or whole."""

import contextlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from platformdirs import user_cache_path

from glue_bench.errors import UserError


def cache_folder() -> Path:
    """Where tokenised text and trained tokenizers are kept: $GLUE_BENCH_CACHE, or the user's cache folder."""
    chosen = os.environ.get("GLUE_BENCH_CACHE")
    return Path(chosen) if chosen else user_cache_path("glue-bench")


@contextlib.contextmanager
def results_written_to(folder: Path) -> Iterator[None]:
    """A full or read-only disk is one line, and no reason to lose what is there.

    Raises:
        UserError: in place of any OSError in the block.
    """
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot write to '{folder}': {error.strerror or error}; earlier cells are kept, "
            "the same command goes on from there"
        ) from error


def write_atomically(path: Path, content: bytes) -> None:
    """Write aside, flush to disk, rename: `path` is either absent, the old content or the whole new one."""
    with whole_file(path) as file:
        file.write(content)


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write that takes its name when the block ends, flushed to disk; not if it ends with an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(aside).chmod(0o644)  # mkstemp makes files private
        Path(aside).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(aside).unlink()
        raise
    _sync_folder(path.parent)


@contextlib.contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A folder to fill that takes its name when the block ends; if another process was first, its one stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=path.parent, prefix=".making-"))
    try:
        yield aside
        aside.chmod(0o755)  # mkdtemp makes folders private
        aside.rename(path)
    except OSError:
        # Another process was first; anything else is not ours to hide.
        if not path.is_dir():
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    _sync_folder(path.parent)


def set_aside(folder: Path) -> None:
    """Take away a damaged folder. What another process has open of it stays readable until that one ends."""
    aside = folder.with_name(f".damaged-{uuid.uuid4().hex}")
    with contextlib.suppress(FileNotFoundError):
        folder.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def _sync_folder(folder: Path) -> None:
    """A rename survives a power cut only once its folder is on disk too."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
