"""What the values on disk have in common."""

from typing import Any

from pydantic import ConfigDict

from glue_bench.config.sections import Brief

SCHEMA_VERSION = 1


class StoredValue(Brief):
    """A frozen value that is a JSON object on disk, its fields in the order of the keys there.

    What a file lacks stays unset, so that a value that was read is written as it was. Keys that only a later version
    knows are passed over.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    def document(self) -> dict[str, Any]:
        """The JSON object, as `json.dumps` takes it."""
        return self.model_dump(exclude_unset=True)
