"""The fine-tuned models in a results folder."""

from pathlib import Path

from glue_bench.errors import UserError
from glue_bench.files import file_digest, read_file, set_aside, visible_files
from glue_bench.records import layout
from glue_bench.records.values import Record

RECORD_DIGEST_FILE = "record.digest"
"""The file in a model's folder that has the digest of its cell's record."""


class ModelStore:
    """Finds, checks and deletes the models that cells have left; `Store.write` stores them.

    Args:
        folder: the results folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, record: Record) -> Path | None:
        """Return the folder of a cell's model, or None if it is not kept.

        Raises UserError where it cannot be read, or belongs to another run of the cell.
        """
        place = layout.model_folder(record.cell.id)
        folder = self.folder / place
        if record.model is None or not folder.is_dir():
            return None
        try:
            record_digest = read_file(folder / RECORD_DIGEST_FILE, 64).decode()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            fault = f"{place}/{RECORD_DIGEST_FILE}: {reason}"
            raise UserError(f"{fault}; delete the model and run again") from error
        if record_digest != record.digest:
            raise UserError(f"{place}: it belongs to another run; delete it and run again")
        return folder

    def find_whole(self, record: Record) -> Path | None:
        """Find a model as `find` does; refuse it unless its files are those of its record.

        Hidden files are no part of a model.
        """
        folder = self.find(record)
        if folder is None or record.model is None:
            return folder
        place = layout.model_folder(record.cell.id)

        try:
            changed = [
                name
                for name, digest in record.model.items()
                if file_digest(folder / name) != digest
            ]
            strange = sorted(visible_files(folder) - {RECORD_DIGEST_FILE, *record.model})
        except OSError as error:
            name = Path(error.filename or folder).name
            fault = f"{place}/{name}: {error.strerror}"
            raise UserError(f"{fault}; delete the model and run again") from error

        if changed:
            advice = "delete the model and run again"
            raise UserError(f"{place}/{changed[0]}: changed since the run wrote it; {advice}")
        if strange:
            fault = "no file of the model that the run has kept; take it away"
            raise UserError(f"{place}/{strange[0]}: {fault}")
        return folder

    def exists(self, cell_id: str) -> bool:
        """Return whether any run of a cell has left a model."""
        return (self.folder / layout.model_folder(cell_id)).is_dir()

    def drop(self, cell_id: str) -> None:
        """Delete a cell's model, if it is there; its record stays."""
        folder = self.folder / layout.model_folder(cell_id)
        # If the folder of the cell is a link, the model is set aside on the disk of the link's
        # target.
        set_aside(folder, folder.parent.resolve().parent)
