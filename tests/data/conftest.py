"""Files for the tests of the data sources."""

import pytest


@pytest.fixture
def write(tmp_path):
    """Write files below a new folder and return it."""

    def write_files(files):
        for name, content in files.items():
            path = tmp_path / "glue" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return tmp_path / "glue"

    return write_files
