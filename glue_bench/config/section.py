"""The base of the values that an experiment file is made of."""

from collections.abc import Iterator
from typing import Any, ClassVar, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from glue_bench.errors import MistakesError


class Section(BaseModel):
    """A part of the experiment file: an immutable value that refuses unknown keys."""

    # strict: `epochs: "1"` is a mistake, not the number 1.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        mistakes = list(self.mistakes())
        if mistakes:
            raise MistakesError(mistakes)
        return self

    def mistakes(self) -> Iterator[str]:
        """Yield a sentence for each pair of values that contradict each other."""
        return iter(())


class SectionWithNewKeys(Section):
    """A section some of whose keys a plan holds only if a file sets them.

    Older plans keep their bytes in this way.
    """

    written_if_set: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _without_unset_keys(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = serialize(self)
        for key in self.written_if_set:
            if values.get(key) is None:
                values.pop(key, None)
        return values
