"""Files for the tests of the data sources."""

from collections.abc import Callable
from pathlib import Path

import pytest

Writer = Callable[[dict[str, str | bytes]], Path]


@pytest.fixture
def write(tmp_path: Path) -> Writer:
    """Write files below a new folder and return it."""

    def write_files(files: dict[str, str | bytes]) -> Path:
        for name, content in files.items():
            path = tmp_path / "glue" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return tmp_path / "glue"

    return write_files
