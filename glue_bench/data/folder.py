"""Folders with GLUE in them: the folder of each task, in any case, and the files of a split."""

from abc import abstractmethod
from collections.abc import Iterable
from pathlib import Path

from glue_bench.data.task import Task
from glue_bench.data.task_data import Source
from glue_bench.data.tasks import TASKS, find_task
from glue_bench.errors import UserError

DOWNLOADED = "diagnostic"
"""Where the download script that is copied most puts AX, in place of a folder named AX."""
MAX_LISTED_NAMES = 4
"""How many names of a folder a message lists."""


class FolderSource(Source):
    """A folder with files of GLUE's tasks in one layout; tasks and splits may be missing."""

    example: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def expected(self, task: Task, split: str) -> str:
        """Return the usual name of the files of a split below the folder, for messages."""

    @abstractmethod
    def split_files(self, place: Path, task: Task, split: str) -> list[Path]:
        """Return the files of a split in the folder of its task, in order.

        Raises UserError where the split is there twice.
        """

    def files(self, task: Task) -> dict[str, list[Path]]:
        """Return the files of each split that is there.

        There are none if no split with labels is there (of AX: no split). Raises UserError where
        two folders hold the task.
        """
        files_by_place: dict[Path, dict[str, list[Path]]] = {}
        try:
            for place in task_folders(self.folder, task):
                present = self._present_files(place, task)
                has_labels = bool(present.keys() - set(task.test_splits))
                if has_labels or (task.name == "ax" and present):
                    files_by_place[place] = present
        except OSError as error:
            unreadable = error.filename or self.folder
            reason = error.strerror or error
            raise UserError(f"cannot read {unreadable}: {reason}") from error
        if len(files_by_place) > 1:
            names = " and ".join(sorted(place.name for place in files_by_place))
            fault = f"{self.folder} has {task.title} twice, in {names}"
            raise UserError(f"{fault}; keep one of them")
        return next(iter(files_by_place.values()), {})

    def _present_files(self, place: Path, task: Task) -> dict[str, list[Path]]:
        """Return the files of each split that is in the folder of a task."""
        present: dict[str, list[Path]] = {}
        for split in task.splits:
            paths = self.split_files(place, task, split)
            if paths:
                present[split] = paths
        return present

    def tasks(self) -> list[str]:
        return [name for name, task in TASKS.items() if self.files(task)]

    def task_and_files(self, name: str) -> tuple[Task, dict[str, list[Path]]]:
        """Return a task and its `files`.

        Raises UserError if there are no files, and says what is there instead.
        """
        task = find_task(name)
        files = self.files(task)
        if files:
            return task, files
        usual_name = self.expected(task, next(iter(task.splits)))
        message = f"no {task.title} data in {self.folder}"
        message += f"; looked for {usual_name} and its other splits"
        places = task_folders(self.folder, task)
        if places:
            place = places[0]
            message += f"; {place.name} has {listed_names(place)}{advice_for(place)}"
        raise UserError(message)


def advice_for(folder: Path) -> str:
    """Say what to do about the folder of a task whose files are a part of a known layout.

    Return an empty text where that is not plain.
    """
    names = {path.name for path in folder.iterdir()}
    if "state.json" in names:
        return ", one split of save_to_disk; save all splits together, as a DatasetDict"
    if "msr_paraphrase_train.txt" in names:
        return "; add dev_ids.tsv, which says what of it is the validation split"
    return ""


def task_folders(folder: Path, task: Task) -> list[Path]:
    """Return the folders within a folder that are called after a task.

    They have its name or title, in any case: `rte`, `STS-B`, `sts_b`.
    """
    folders: list[Path] = []
    for path in folder.iterdir():
        if task_of(path) == task.name and path.is_dir():
            folders.append(path)
    if task.name == "ax" and not folders and (folder / DOWNLOADED).is_dir():
        return [folder / DOWNLOADED]
    return sorted(folders)


def task_of(folder: Path) -> str | None:
    """Return the name of the task that a folder is called after, if it is called after one."""
    name = folder.name.lower().replace("-", "").replace("_", "")
    return name if name in TASKS else None


def listed_names(folder: Path) -> str:
    """List the names in a folder as `list_names` does, without hidden ones."""
    names = [path.name for path in folder.iterdir()]
    return list_names(name for name in names if not name.startswith("."))


def list_names(names: Iterable[str]) -> str:
    """List names in order, at most MAX_LISTED_NAMES, and say how many follow."""
    ordered = sorted(names)
    if not ordered:
        return "nothing in it"
    text = ", ".join(ordered[:MAX_LISTED_NAMES])
    remaining = len(ordered) - MAX_LISTED_NAMES
    if remaining > 0:
        text += f" and {remaining:,} more"
    return text
