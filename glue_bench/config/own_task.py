"""A task of one's own, as an experiment file or a file of its own describes it."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from glue_bench.config.section import Section
from glue_bench.config.settings import Place, distinct
from glue_bench.data.measures import MEASURES
from glue_bench.data.metrics import METRICS, OF_SCORES, OF_TWO_CLASSES, WITH_STATISTICS
from glue_bench.data.origin import HubPlace, Origin
from glue_bench.data.task import OWN, Split, Task
from glue_bench.data.tasks import COLUMNS, KNOWN, TASKS, add_task
from glue_bench.errors import quoted, unknown
from glue_bench.remote import is_url

OWN_SPLITS = ("train", "validation", "test")
Text = Annotated[str, StringConstraints(min_length=1, max_length=1000)]
LABELS_HINT = "list the classes in order, such as [negative, positive], or write regression"
REGRESSION = "regression"
"""The `labels` of a task whose labels are numbers."""


def task_name(name: str) -> str:
    """Return a name that files and tables can have. Raises ValueError for another."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,39}", name):
        fault = f"{quoted(name)} has other characters than letters, digits, '-' and '_'"
        raise ValueError(f"{fault}, does not begin with a letter, or is longer than 40")
    return name


def listed_texts(value: Any) -> Any:
    """Return one text as a list."""
    return [value] if isinstance(value, str) else value


def files_by_split(value: Any) -> Any:
    """Return files by split. Raises ValueError for a file that no split is named for."""
    if isinstance(value, str):
        example = "{train: train.csv, validation: dev.csv}"
        raise ValueError(f"name the file of each split, such as {example}")
    return value


def written_labels(value: Any) -> Any:
    """Return labels as files write them, which are texts, whole numbers, or true and false.

    Raises ValueError for anything else.
    """
    if value == REGRESSION:
        return value
    if not isinstance(value, list):
        raise ValueError(LABELS_HINT)
    labels: list[str] = []
    for label in value:
        if not isinstance(label, str | int):
            raise ValueError(f"{quoted(label)} is no class; classes are texts or whole numbers")
        labels.append(str(label).lower() if isinstance(label, bool) else str(label))
    return labels


def as_hub_section(value: Any) -> Any:
    """Return the id of a data set on the hub as a section."""
    return {"name": value} if isinstance(value, str) else value


def is_task_file(entry: Any) -> bool:
    """Whether an entry of `tasks` is the name of a file that holds a task."""
    return isinstance(entry, str) and entry.endswith((".yaml", ".yml"))


class HubData(Section):
    """A data set on the hub: its id, and where the splits of the task are in it."""

    name: Place
    config: Text | None = None
    revision: Text | None = None
    splits: dict[Literal["train", "validation", "test"], Text] = Field({})


class OwnTask(Section):
    """A task of one's own: its rows, the columns of its texts and labels, and its metrics.

    It has `files` by split, or a data set on the `hub`. A text is a column, or a template that
    names columns in braces.
    """

    name: Annotated[str, AfterValidator(task_name)]
    files: Annotated[
        dict[Literal["train", "validation", "test"], Place] | None, BeforeValidator(files_by_split)
    ] = None
    hub: Annotated[HubData | None, BeforeValidator(as_hub_section)] = None
    texts: Annotated[list[Text], BeforeValidator(listed_texts), AfterValidator(distinct)] = Field(
        min_length=1, max_length=2
    )
    label: Text = "label"
    labels: Annotated[list[str] | Literal["regression"], BeforeValidator(written_labels)]
    metrics: Annotated[list[str], AfterValidator(distinct)] | None = Field(None, min_length=1)
    validation_share: float | None = Field(None, gt=0, le=0.5)
    cluster: Text | None = None

    @property
    def key(self) -> str:
        """Its name in plans and tables' files, as `Task.name` has it."""
        return self.name.lower().replace("-", "")

    def mistakes(self) -> Iterator[str]:
        yield from self._mistakes_of_name()
        yield from self._mistakes_of_rows()
        yield from self._mistakes_of_labels()
        yield from self._mistakes_of_metrics()

    def _mistakes_of_name(self) -> Iterator[str]:
        """Yield a line if another task or a column of tables has the name."""
        key = self.key
        taken = set(MEASURES) | set(COLUMNS) | set(TASKS)
        if key in TASKS:
            title = TASKS[key].title
            yield f"name '{self.name}' is that of GLUE's own {title}; give your task another name"
        elif key in KNOWN and KNOWN[key].benchmark != OWN:
            title = KNOWN[key].full_title
            yield f"name '{self.name}' is that of {title}; give your task another name"
        elif key in taken or key.startswith("average"):
            yield f"name '{self.name}' is that of a column of tables; give your task another name"

    def _mistakes_of_rows(self) -> Iterator[str]:
        """Yield a line for each mistake about where the rows of the splits are."""
        if (self.files is None) == (self.hub is None):
            yield "give either `files` (train, validation, test) or `hub`, a data set of the hub"
            return
        splits = self._splits()
        if "train" not in splits:
            yield "no train split; name it, because models are fine-tuned on it"
        if ("validation" in splits) == (self.validation_share is not None):
            if self.validation_share is None:
                yield (
                    "no validation split, by which models are scored; name it, or set "
                    "validation_share: 0.1 to hold out a part of train"
                )
            else:
                yield "validation_share holds out a part of train; leave it or `validation` out"

    def _mistakes_of_labels(self) -> Iterator[str]:
        if self.labels == REGRESSION:
            return
        if len(self.labels) < 2:
            yield "labels: name at least two classes, or write `labels: regression` for scores"
        if len(set(self.labels)) < len(self.labels):
            yield f"labels must differ: {', '.join(self.labels)}"

    def _mistakes_of_metrics(self) -> Iterator[str]:
        """Yield a line for each metric that the labels do not allow."""
        for name in self.chosen_metrics:
            if name not in METRICS:
                yield str(unknown("metric", name, METRICS))
            elif self.labels == REGRESSION and name not in OF_SCORES:
                yield f"metric {name} needs classes; a regression takes {' or '.join(OF_SCORES)}"
            elif self.labels != REGRESSION and name in OF_SCORES:
                names = ", ".join(metric for metric in METRICS if metric not in OF_SCORES)
                yield f"metric {name} needs scores (labels: regression); classes take {names}"
            elif name in OF_TWO_CLASSES and len(self.labels) > 2:
                yield f"metric {name} needs two classes; use macro_{name} for more"
        main = self.chosen_metrics[0]
        needs_two = main == "matthews_correlation" and len(self.labels) > 2
        if main in METRICS and (main not in WITH_STATISTICS or needs_two):
            yield (
                f"metric {main} cannot be the first, of which intervals are computed; put accuracy "
                "or pearson before it"
            )

    @property
    def chosen_metrics(self) -> tuple[str, ...]:
        """The metrics; by default accuracy, or both correlations of a regression."""
        if self.metrics:
            return tuple(self.metrics)
        return OF_SCORES if self.labels == REGRESSION else ("accuracy",)

    def _splits(self) -> Mapping[str, str]:
        """Return the file of each split, or its name on the hub."""
        if self.files is not None:
            return cast(dict[str, str], self.files)
        if self.hub is None:
            return {}
        if self.hub.splits:
            return cast(dict[str, str], self.hub.splits)
        if self.validation_share is not None:
            return {"train": "train"}
        return {"train": "train", "validation": "validation"}

    def to_task(self) -> Task:
        """Return the task that this describes."""
        places = self._splits()
        names = [split for split in OWN_SPLITS if split in places or split == "validation"]

        hub = None
        if self.hub is not None:
            hub = HubPlace(self.hub.name, self.hub.config, self.hub.revision, places)
        origin = Origin(
            files=places if self.files is not None else {},
            hub=hub,
            validation_share=self.validation_share,
        )

        labels = () if self.labels == REGRESSION else tuple(self.labels)
        return Task(
            title=self.name,
            summary="a task of your own",
            splits={name: Split(places.get(name, ""), 0) for name in names},
            texts=tuple(self.texts),
            labels=labels,
            written=labels,
            metrics=self.chosen_metrics,
            tsv_label=self.label,
            cluster=self.cluster or "",
            benchmark=OWN,
            origin=origin,
        )

    def from_folder(self, folder: Path) -> "OwnTask":
        """Return the task with its paths relative to a folder."""
        if self.files is None:
            return self
        files: dict[Any, str] = {}
        for split, name in self.files.items():
            is_placed = is_url(name) or Path(name).expanduser().is_absolute()
            files[split] = name if is_placed else str(folder / name)
        return self.model_copy(update={"files": files})

    def without_places(self) -> "OwnTask":
        """Return the task as others may see it: of each file its name alone."""
        if self.files is None:
            return self
        files: dict[Any, str] = {}
        for split, name in self.files.items():
            last_part = re.split(r"[/\\]", name)[-1]
            files[split] = f"./{last_part}"
        return self.model_copy(update={"files": files})


def add_own_tasks(tasks: Iterable[OwnTask]) -> None:
    """Make tasks known to this process."""
    for task in tasks:
        add_task(task.to_task())
