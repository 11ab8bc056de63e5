"""What all values on disk have in common: frozen, known fields alone, and a digest where they are sealed."""

import hashlib
import json
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    model_serializer,
)

from glue_bench.errors import plain, shortened

Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$", max_length=240)]
"""A name that may be part of a file's name."""
Text = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f-\x9f]*$", max_length=4096)]
"""One line without control characters, which is fit for a terminal."""
Lines = Annotated[str, AfterValidator(lambda text: shortened(plain(text), 2**16))]
"""What others say, such as an error: control characters become their codes, and what is too long is cut."""
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""A SHA-256 in hexadecimal digits."""
Whole = Annotated[int, Field(gt=-(2**63), lt=2**63)]
Scores = dict[str, dict[str, Annotated[float, Field(gt=-1.000001, lt=1.000001)] | None]]
"""split -> metric -> value (at most 1); null where the metric is undefined."""
DIGEST_FIRST = b'{"digest":"'


class Value(BaseModel):
    """A frozen value that is a JSON object on disk. Fields that are None are not written."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_serializer(mode="wrap")
    def _without_none(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in dump(self).items() if value is not None}

    def document(self) -> dict[str, Any]:
        """The JSON object, as `json.dumps` takes it."""
        return self.model_dump(mode="json", by_alias=True)


class Sealed(Value):
    """A value whose `digest` is the SHA-256 of its file, in which the digest itself is left empty."""

    digest: str = ""

    def seal(self) -> Self:
        """The value with the digest of what it says."""
        bare = self.model_copy(update={"digest": ""})
        return bare.model_copy(update={"digest": hashlib.sha256(bare.file()).hexdigest()})

    def file(self) -> bytes:
        """Its file. The digest is its first field."""
        text = json.dumps(self.document(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return f"{text}\n".encode()

    @staticmethod
    def is_whole(file: bytes) -> bool:
        """Whether a file has the digest of what it says."""
        begin, end = len(DIGEST_FIRST), len(DIGEST_FIRST) + 64
        content = file[:begin] + file[end:]
        return file.startswith(DIGEST_FIRST) and hashlib.sha256(content).hexdigest().encode() == file[begin:end]
