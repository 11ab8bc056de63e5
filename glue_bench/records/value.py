"""What the values on disk have in common."""

from typing import Annotated, Any

from pydantic import ConfigDict, Field, StringConstraints

from glue_bench.config.sections import Brief

SCHEMA_VERSION = 1
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$", max_length=240)]
"""A name that may be part of a file's name: it leads to no other folder, and is fit for a terminal."""
Whole = Annotated[int, Field(gt=-(2**63), lt=2**63)]
"""A number that an array holds."""


class StoredValue(Brief):
    """A frozen value that is a JSON object on disk, its fields in the order of the keys there.

    What a file lacks stays unset, so that a value that was read is written as it was. Keys that only a later version
    knows are passed over.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    def document(self) -> dict[str, Any]:
        """The JSON object, as `json.dumps` takes it."""
        return self.model_dump(exclude_unset=True)
