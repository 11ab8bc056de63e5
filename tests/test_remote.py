"""Inputs behind URLs, copied once for each state; results behind none."""

from pathlib import Path
from unittest.mock import Mock

import pytest

from glue_bench.data.sources import open_source
from glue_bench.errors import UserError
from glue_bench.model.locate import locate
from glue_bench.remote import fetched, is_url
from glue_bench.training.corpus import open_corpus


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GLUE_BENCH_CACHE", str(tmp_path / "cache"))
    fetched.cache_clear()
    yield tmp_path / "cache"
    fetched.cache_clear()


@pytest.fixture
def bucket():
    """Upload a folder to an object store in memory; returns its URL."""
    from fsspec.implementations.memory import MemoryFileSystem

    files = MemoryFileSystem()

    def upload(folder: Path, name: str = "bucket") -> str:
        for path in folder.rglob("*"):
            if path.is_file():
                files.pipe(f"/{name}/{path.relative_to(folder)}", path.read_bytes())
        return f"memory://{name}"

    yield upload
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


@pytest.fixture
def text(tmp_path) -> Path:
    """A folder with a text in it."""
    (tmp_path / "text" / "deep").mkdir(parents=True)
    (tmp_path / "text" / "deep" / "a.txt").write_text("One sentence. Another one.")
    return tmp_path / "text"


def test_what_is_a_url():
    assert all(map(is_url, ("s3://b/x", "s3:/b/x", Path("s3://b/x"), "gs://b", "file:///x", "hf://datasets/x")))
    assert not any(map(is_url, ("runs", "./a:b/c", "C:/x", "hub:wikitext", "google-bert/bert-base", "/s3://x")))


def test_a_checkpoint_text_and_data_behind_urls_are_those_of_the_folder(bucket, make_bert, tmp_path, text):
    place = make_bert(texts=("the old cat chased a dog",))
    files = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in (locate(bucket(place)), place)]
    assert files[0] == files[1]
    whole, url = open_corpus([str(text)]), bucket(text, "text")
    assert open_corpus([url]).digest == open_corpus([f"{url}/deep/a.txt"]).digest == whole.digest
    (tmp_path / "glue" / "RTE").mkdir(parents=True)
    (tmp_path / "glue" / "RTE" / "dev.tsv").write_text("sentence1\tsentence2\tlabel\na cat\ta dog\tentailment\n")
    places = (str(tmp_path / "glue"), bucket(tmp_path / "glue", "glue"))
    assert len({open_source(place).load("rte").digest for place in places}) == 1


def test_a_state_is_copied_once_and_another_one_again(bucket, text, cache):
    url = bucket(text)
    first = fetched(url)
    fetched.cache_clear()
    assert fetched(url) == first
    (text / "deep" / "a.txt").write_text("Two.")
    bucket(text)
    assert fetched(url) == first  # a process sees one state
    fetched.cache_clear()
    assert (fetched(url) / "deep" / "a.txt").read_text() == "Two."
    assert len(list((cache / "fetched").iterdir())) == 2


REFUSED = {
    "memory://nothing": (None, r"^nothing at 'memory://nothing'$"),
    "nosuch://b/x": (None, r"^cannot read 'nosuch://b/x' \(ValueError: Protocol not known: nosuch\)$"),
    "gs://b/x": (None, "^cannot read 'gs://b/x': Please install gcsfs to access Google Storage$"),
    "memory://bucket": (ConnectionError("reset"), r"^cannot read 'memory://bucket' \(ConnectionError: reset\)$"),
    "memory://bucket/": (OSError(28, "full"), "^cannot copy 'memory://bucket/' to '.*': No space left on device; make"),
}


@pytest.mark.parametrize("url", REFUSED)
def test_what_cannot_be_read_is_one_line_and_leaves_nothing(url, bucket, text, cache, monkeypatch):
    from fsspec.implementations.memory import MemoryFileSystem

    error, said = REFUSED[url]
    bucket(text)
    if error:
        monkeypatch.setattr(MemoryFileSystem, "get_file", Mock(side_effect=error))
    with pytest.raises(UserError, match=said):
        fetched(url)
    assert not [*cache.glob("fetched/*")]


def test_results_behind_a_url_are_refused(refused):
    said = refused("leaderboard", "s3://bucket/runs")
    assert said.startswith("results cannot lie at 's3:/bucket/runs': that takes a file system with locks and renames")
