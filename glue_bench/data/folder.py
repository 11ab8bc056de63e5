"""Folders with GLUE in them: the folder of each task, whatever its case, and the files of each split."""

from abc import abstractmethod
from collections.abc import Iterable
from pathlib import Path

from glue_bench.data.task_data import Source
from glue_bench.data.tasks import TASKS, Task, find_task
from glue_bench.errors import UserError

DOWNLOADED = "diagnostic"  # where the download script that is copied most puts AX, in place of its own folder
SHOWN = 4  # names of what is in a folder that a message lists


class FolderSource(Source):
    """A folder with files of GLUE's tasks in one layout, in which tasks and splits may be missing."""

    example: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def expected(self, task: Task, split: str) -> str:
        """The usual name of the files of a split below the folder, for messages."""

    @abstractmethod
    def split_files(self, place: Path, task: Task, split: str) -> list[Path]:
        """The files of a split in the folder of its task, in order; UserError where they are there twice."""

    def files(self, task: Task) -> dict[str, list[Path]]:
        """The files of each split that is there; none if no split with labels is (of AX: no split).

        Raises UserError where two folders hold the task.
        """
        by_place = {}
        try:
            for place in task_folders(self.folder, task):
                files = {split: self.split_files(place, task, split) for split in task.splits}
                present = {split: paths for split, paths in files.items() if paths}
                if present.keys() - set(task.test_splits) or (task.name == "ax" and present):
                    by_place[place] = present
        except OSError as error:
            raise UserError(
                f"cannot read {error.filename or self.folder}: {error.strerror or error}"
            ) from error
        if len(by_place) > 1:
            places = " and ".join(sorted(place.name for place in by_place))
            raise UserError(f"{self.folder} has {task.title} twice, in {places}; keep one of them")
        return next(iter(by_place.values()), {})

    def tasks(self) -> list[str]:
        return [name for name, task in TASKS.items() if self.files(task)]

    def task_and_files(self, name: str) -> tuple[Task, dict[str, list[Path]]]:
        """A task and its `files`. UserError if there are none, which says what is there instead."""
        task = find_task(name)
        files = self.files(task)
        if not files:
            expected = self.expected(task, next(iter(task.splits)))
            places = task_folders(self.folder, task)
            instead = ""
            if places:
                instead = f"; {places[0].name} has {listed_names(places[0])}{advice_for(places[0])}"
            raise UserError(
                f"no {task.title} data in {self.folder}; looked for {expected} and its other splits{instead}"
            )
        return task, files


def advice_for(folder: Path) -> str:
    """What to do about the folder of a task whose files are a part of a known layout; empty where that is not plain."""
    names = {path.name for path in folder.iterdir()}
    if "state.json" in names:
        return ", one split of save_to_disk; save all splits together, as a DatasetDict"
    if "msr_paraphrase_train.txt" in names:
        return "; add dev_ids.tsv, which says what of it is the validation split"
    return ""


def task_folders(folder: Path, task: Task) -> list[Path]:
    """The folders within a folder that have the name or the title of a task, in any case: `rte`, `STS-B`, `sts_b`."""
    folders = sorted(
        path for path in folder.iterdir() if task_of(path) == task.name and path.is_dir()
    )
    if task.name == "ax" and not folders and (folder / DOWNLOADED).is_dir():
        return [folder / DOWNLOADED]
    return folders


def task_of(folder: Path) -> str | None:
    """The name of the task that a folder is called after, if it is called after one."""
    name = folder.name.lower().replace("-", "").replace("_", "")
    return name if name in TASKS else None


def listed_names(folder: Path) -> str:
    """The names in a folder, in order, SHOWN of them at most."""
    return listed(path.name for path in folder.iterdir() if not path.name.startswith("."))


def listed(names: Iterable[str]) -> str:
    """Names in order, SHOWN of them at most, and how many others there are."""
    ordered = sorted(names)
    remaining = f" and {len(ordered) - SHOWN:,} more" if len(ordered) > SHOWN else ""
    return (", ".join(ordered[:SHOWN]) or "nothing in it") + remaining
