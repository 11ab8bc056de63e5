"""The progress of jobs under way in a results folder. Nothing depends on it."""

import contextlib
from pathlib import Path

from glue_bench.files import read_file, write_atomically
from glue_bench.records import layout
from glue_bench.records.values import Progress


class ProgressStore:
    """Reads and writes how far jobs are.

    Args:
        folder: the results folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self) -> list[Progress]:
        """Return the jobs that run, or ran when their worker was killed, sorted by id."""
        under_way = []
        for path in sorted((self.folder / layout.PROGRESS).glob("*.json")):
            with contextlib.suppress(OSError, ValueError):  # the job may have ended meanwhile
                under_way.append(Progress.read(read_file(path)))
        return under_way

    def write(self, progress: Progress) -> None:
        """Replace the stored progress of a job. A power cut may lose it, as nothing is flushed."""
        path = self.folder / layout.progress_file(progress.id)
        text = progress.model_dump_json(exclude_none=True)
        write_atomically(path, text.encode(), flush=False)

    def drop(self, job_id: str) -> None:
        """Delete the progress of a job, if there is any."""
        (self.folder / layout.progress_file(job_id)).unlink(missing_ok=True)
