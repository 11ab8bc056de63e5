"""The base of all JSON on disk: values with known fields alone, which may have a digest."""

import hashlib
import json
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from glue_bench.errors import escape_controls, shortened
from glue_bench.files import check_json

NAME = r"[A-Za-z0-9][A-Za-z0-9_.+-]*$"
Word = Annotated[
    str, StringConstraints(pattern=f"^{NAME}", max_length=240)
]  # a name may be a part of a file's name
Place = Annotated[
    str, StringConstraints(pattern=f"^([A-Za-z0-9][A-Za-z0-9_.+-]*/)*{NAME}", max_length=240)
]
"""The place of a file below a known folder. It cannot lead out of the folder."""
Text = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f-\x9f]*$", max_length=4096)]
"""One line without control characters, which is fit for a terminal."""
Lines = Annotated[str, AfterValidator(lambda text: shortened(escape_controls(text), 2**16))]
"""Foreign text, such as an error: control characters become their codes, long text is cut."""
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]  # a SHA-256
Whole = Annotated[int, Field(gt=-(2**63), lt=2**63)]
Scores = dict[str, dict[str, Annotated[float, Field(gt=-1.000001, lt=1.000001)] | None]]
"""split -> metric -> value (at most 1); null where the metric is undefined."""
DIGEST_FIRST = b'{"digest":"'


class Value(BaseModel):
    """A frozen value that is a JSON object on disk. Fields that are None are not written."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def document(self, **options: Any) -> dict[str, Any]:
        """Return the JSON object for `json.dumps`; `options` are passed to `model_dump`."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True, **options)

    @classmethod
    def read(cls, file: bytes) -> Self:
        """Read a file that anyone may have made. Raises ValueError if it has no such value."""
        return cls.model_validate_json(check_json(file))


class Sealed(Value):
    """A value with the SHA-256 of its file in its first field, `digest`.

    The digest is computed from the file in which the digest itself is empty.
    """

    digest: str = ""

    def seal(self) -> Self:
        """Return the value with its digest."""
        bare = self.model_copy(update={"digest": ""})
        return bare.model_copy(update={"digest": hashlib.sha256(bare.file()).hexdigest()})

    def file(self) -> bytes:
        """Return the content of the value's file."""
        text = json.dumps(
            self.document(), ensure_ascii=False, allow_nan=False, separators=(",", ":")
        )
        return f"{text}\n".encode()

    @classmethod
    def read(cls, file: bytes) -> Self:
        """Read a sealed value's file. Raises ValueError if the value or the digest is wrong."""
        begin = len(DIGEST_FIRST)
        end = begin + 64
        digest = hashlib.sha256(file[:begin] + file[end:]).hexdigest().encode()
        if not file.startswith(DIGEST_FIRST) or digest != file[begin:end]:
            raise ValueError("changed since it was written")
        return super().read(file)
