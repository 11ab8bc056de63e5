"""Where the rows of a task are that is not GLUE's: files, or a data set on the hub."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class HubPlace:
    """A data set on the hub.

    Attributes:
        repository: Its id, such as `aps/super_glue`.
        config: The name of its configuration, if it has several.
        revision: A commit or a tag; the newest if it is None.
        splits: The name that each split of the task has there.
    """

    repository: str
    config: str | None = None
    revision: str | None = None
    splits: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the id with its configuration, for messages."""
        return f"{self.repository}, config {self.config}" if self.config else self.repository


@dataclass(frozen=True)
class Origin:
    """The rows of a task, and how they become examples.

    A text is a column, or a template that names columns in braces, such as `{title}: {body}`.

    Attributes:
        files: The file of each split.
        hub: The data set, where there are no files.
        validation_share: The part of train that becomes validation; None if validation is there.
        folder: The name of its folder where a benchmark is kept as a folder of tasks.
        renamed: Columns that have other names in that folder; `target.text` is a value in a value.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    hub: HubPlace | None = None
    validation_share: float | None = None
    folder: str = ""
    renamed: Mapping[str, str] = field(default_factory=dict)
