"""GLUE from the hub into a folder, in the layout of the dataset repository, every file and every split checked."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from glue_bench.data.hub import PINNED, REPOSITORY, CloneSource
from glue_bench.data.sources import describe
from glue_bench.data.tasks import TASKS
from glue_bench.errors import UserError, first_line


def fetch_glue(folder: Path) -> Iterator[str]:
    """Bring every task's files to `folder`, those that are there already excepted; a line about each task.

    Each file is held to the size and the SHA-256 that the hub states for it at the pinned revision, and each split to
    its official number of rows.

    Raises:
        UserError: the hub is out of reach, a file is not as the hub states it, or a split lacks rows.
    """
    from huggingface_hub import HfApi, snapshot_download

    try:
        info = HfApi().dataset_info(REPOSITORY, revision=PINNED, files_metadata=True)
        files = [file for file in info.siblings or [] if file.rfilename.split("/")[0] in TASKS]
        names = ["README.md", *(file.rfilename for file in files)]
        snapshot_download(REPOSITORY, repo_type="dataset", revision=PINNED, local_dir=str(folder), allow_patterns=names)
    except Exception as error:  # httpx, huggingface_hub and OSError: no common base
        raise UserError(f"cannot fetch {REPOSITORY} into '{folder}': {first_line(error)}") from error
    for file in files:
        _check(folder / file.rfilename, file)
    for task, splits in describe(CloneSource(folder)).groupby("task", sort=False):
        status = splits["status"].iloc[0]
        if status != "complete":
            raise UserError(f"task '{task}' in '{folder}' is {status}; delete its folder, and fetch again")
        yield f"{task}: {splits['rows'].sum():,} rows, complete"
    yield f"GLUE is in {folder}, all of it as the hub states it; use it with --data {folder}"


def _check(path: Path, stated: Any) -> None:
    """Refuse a file that has not the size and the digest that the hub states.

    Raises:
        UserError: it has not, or is not there.
    """
    if not path.is_file():
        raise UserError(f"'{path}' has not been fetched; fetch again")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if path.stat().st_size != stated.size or (stated.lfs and digest != stated.lfs.sha256):
        raise UserError(f"'{path}' is not as the hub states it; delete it, and fetch again")
