"""Folders of several files behind URLs: every file is copied, and every file decides which state
it is.
"""

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from glue_bench.remote import fetched

FILES = {"a.txt": "One.", "b.txt": "Two.", "deep/c.txt": "Three."}


@pytest.fixture(autouse=True)
def _store(tmp_path, monkeypatch):
    """An empty object store in memory, of which copies go to a cache of its own."""
    monkeypatch.setenv("GLUE_BENCH_CACHE", str(tmp_path / "cache"))
    fetched.cache_clear()
    yield
    fetched.cache_clear()
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


def upload(folder: str) -> str:
    for name, content in FILES.items():
        MemoryFileSystem().pipe_file(f"/{folder}/{name}", content.encode())
    return f"memory://{folder}"


@pytest.mark.parametrize("folder", ["text", "a.txt"])
def test_a_folder_is_copied_with_all_its_files_whatever_its_name(folder):
    """Also where it is called like one of them."""
    copy = fetched(upload(folder))
    contents = {name: (copy / name).read_text() for name in FILES}
    assert contents == FILES


@pytest.mark.parametrize("name", FILES)
def test_one_file_of_a_folder_is_that_file(name):
    copy = fetched(f"{upload('text')}/{name}")
    assert copy.is_file()
    assert copy.read_text() == FILES[name]


@pytest.mark.parametrize("name", FILES)
def test_a_change_of_any_file_is_another_state(name):
    url = upload("text")
    first = fetched(url)
    MemoryFileSystem().pipe_file(f"/text/{name}", b"Another one.")
    fetched.cache_clear()
    second = fetched(url)
    assert second != first
    assert (second / name).read_text() == "Another one."
    assert (first / name).read_text() == FILES[name]
