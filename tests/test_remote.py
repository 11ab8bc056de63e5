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


def test_what_is_a_url():
    assert all(map(is_url, ("s3://b/x", "s3:/b/x", Path("s3://b/x"), "gs://b", "file:///x", "hf://datasets/x")))
    assert not any(map(is_url, ("runs", "./a:b/c", "C:/x", "hub:wikitext", "google-bert/bert-base", "/s3://x")))


def test_a_checkpoint_text_and_data_behind_urls_are_those_of_the_folder(bucket, make_bert, tmp_path):
    place = make_bert(texts=("the old cat chased a dog",))
    copy = locate(bucket(place))
    files = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in (copy, place)]
    assert files[0] == files[1]
    (tmp_path / "text" / "deep").mkdir(parents=True)
    (tmp_path / "text" / "deep" / "a.txt").write_text("One sentence. Another one.")
    whole, url = open_corpus([str(tmp_path / "text")]), bucket(tmp_path / "text", "text")
    assert open_corpus([url]).digest == open_corpus([f"{url}/deep/a.txt"]).digest == whole.digest
    (tmp_path / "glue" / "RTE").mkdir(parents=True)
    (tmp_path / "glue" / "RTE" / "dev.tsv").write_text("sentence1\tsentence2\tlabel\na cat\ta dog\tentailment\n")
    places = (str(tmp_path / "glue"), bucket(tmp_path / "glue", "glue"))
    assert len({open_source(place).load("rte").digest for place in places}) == 1


def test_a_state_is_copied_once_and_another_one_again(bucket, tmp_path, cache):
    folder = tmp_path / "text"
    folder.mkdir()
    (folder / "a.txt").write_text("One.")
    url = bucket(folder)
    first = fetched(url)
    fetched.cache_clear()
    assert fetched(url) == first
    (folder / "a.txt").write_text("Two.")
    bucket(folder)
    assert fetched(url) == first  # a process sees one state
    fetched.cache_clear()
    assert (fetched(url) / "a.txt").read_text() == "Two."
    assert len(list((cache / "fetched").iterdir())) == 2


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("memory://nothing", "nothing at 'memory://nothing'"),
        ("nosuch://b/x", "cannot read 'nosuch://b/x' (ValueError: Protocol not known: nosuch)"),
        ("gs://b/x", "cannot read 'gs://b/x': Please install gcsfs to access Google Storage"),
    ],
)
def test_what_cannot_be_read_is_one_line(url, said):
    with pytest.raises(UserError) as caught:
        fetched(url)
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionError("reset by peer"), r"^cannot read 'memory://bucket' \(ConnectionError: reset by peer\)$"),
        (OSError(28, "full"), r"^cannot copy 'memory://bucket' to '.*': No space left on device; make room there"),
    ],
)
def test_a_copy_that_breaks_off_leaves_nothing(bucket, tmp_path, cache, monkeypatch, error, said):
    from fsspec.implementations.memory import MemoryFileSystem

    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("One.")
    url = bucket(tmp_path / "text")
    monkeypatch.setattr(MemoryFileSystem, "get_file", Mock(side_effect=error))
    with pytest.raises(UserError, match=said):
        fetched(url)
    assert list((cache / "fetched").iterdir()) == []


def test_results_behind_a_url_are_refused_at_once(refused, tiny, write_yaml, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = write_yaml(tiny())
    before = sorted(tmp_path.iterdir())
    said = refused("run", config, "--results", "s3://bucket/runs")
    assert said.startswith("results cannot lie at 's3:/bucket/runs': that takes a file system with locks and renames")
    assert refused("leaderboard", "s3://bucket/runs/tiny").startswith("results cannot lie at")
    assert sorted(tmp_path.iterdir()) == before
    monkeypatch.setenv("GLUE_BENCH_CACHE", "s3://bucket/cache")
    assert refused("run", config, "--results", tmp_path).startswith("the cache (GLUE_BENCH_CACHE) cannot lie at 's3:")
    assert sorted(tmp_path.iterdir()) == before
