"""The checkpoints and resumable states of pretrainings in a results folder."""

import shutil
from collections.abc import Callable
from pathlib import Path

from glue_bench.files import read_file, whole_folder
from glue_bench.records import layout

WEIGHTS_DIGEST_FILE = "weights.digest"
"""The file in a checkpoint's folder that has the digest of its encoder's weights."""


class CheckpointStore:
    """Knows where pretrainings keep their weights.

    Args:
        folder: the results folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def folder_of(self, pretraining_id: str) -> Path:
        """Return the folder of all checkpoints of a pretraining, whether or not it exists."""
        return self.folder / layout.checkpoints_folder(pretraining_id)

    def at_step(self, pretraining_id: str, step: int) -> Path:
        """Return the checkpoint of a pretraining after `step` steps, whether or not it exists."""
        return self.folder / layout.checkpoint_folder(pretraining_id, step)

    def state(self, pretraining_id: str) -> Path:
        """Return the file of the state that a pretraining continues from, if there is any."""
        return self.folder / layout.state_file(pretraining_id)

    def has(self, pretraining_id: str, step: int, digest: str | None) -> bool:
        """Return whether a checkpoint is there, and says that its weights have this digest.

        While lost weights are computed again, checkpoints of two runs are in one folder.

        Args:
            pretraining_id: the id of the pretraining.
            step: how many steps it had taken.
            digest: the digest of the encoder's weights.
        """
        try:
            stored = read_file(self.at_step(pretraining_id, step) / WEIGHTS_DIGEST_FILE, 64)
            return stored.decode() == digest
        except (OSError, ValueError):
            return False

    def write(
        self, pretraining_id: str, step: int, digest: str, save: Callable[[Path], None]
    ) -> None:
        """Store a checkpoint as one folder, in the place of an older one.

        Args:
            pretraining_id: the id of the pretraining.
            step: how many steps it has taken.
            digest: the digest of the encoder's weights.
            save: writes the files of the model into an empty folder.
        """
        with whole_folder(self.at_step(pretraining_id, step), replaces=True) as folder:
            save(folder)
            (folder / WEIGHTS_DIGEST_FILE).write_text(digest)

    def end(self, pretraining_id: str, *, keeps: bool = True) -> None:
        """Delete the state to continue from, and what a killed run has left half-written.

        Args:
            pretraining_id: of the pretraining, whose record is stored.
            keeps: whether its checkpoints stay.
        """
        place = self.folder_of(pretraining_id)
        if not keeps:
            shutil.rmtree(place, ignore_errors=True)
        self.state(pretraining_id).unlink(missing_ok=True)
        for aside in place.glob(".*"):
            if aside.is_dir():
                shutil.rmtree(aside)
            else:
                aside.unlink()
