"""Inputs behind URLs, copied once for each state; results behind none."""

import math
import time
import zipfile
from pathlib import Path
from unittest.mock import Mock

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from helpers.hubs import point_to, silent_hub, slow_hub
from huggingface_hub import constants

from glue_bench.data.sources import open_source
from glue_bench.errors import UserError
from glue_bench.model.locate import locate
from glue_bench.remote import fetched, hub_fault, is_url
from glue_bench.training.corpus import open_corpus


@pytest.fixture(autouse=True)
def _store(tmp_path, monkeypatch):
    """An empty object store in memory, of which copies go to a cache of its own, and a folder
    with data and text.
    """
    monkeypatch.setenv("GLUE_BENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "glue" / "RTE").mkdir(parents=True)
    (tmp_path / "glue" / "RTE" / "dev.tsv").write_text(
        "sentence1\tsentence2\tlabel\na cat\ta dog\tentailment\n"
    )
    (tmp_path / "glue" / "a.txt").write_text("One sentence. Another one.")
    fetched.cache_clear()
    yield
    fetched.cache_clear()
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


def upload(folder: Path) -> str:
    MemoryFileSystem().put(f"{folder}/", f"/{folder.name}/", recursive=True)
    return f"memory://{folder.name}"


def test_what_is_a_url():
    assert all(
        map(
            is_url,
            ("s3://b/x", "s3:/b/x", Path("s3://b/x"), "gs://b", "file:///x", "hf://datasets/x"),
        )
    )
    assert not any(
        map(is_url, ("runs", "./a:b/c", "C:/x", "hub:wikitext", "google-bert/bert-base", "/s3://x"))
    )


def test_a_checkpoint_text_and_data_behind_urls_are_those_of_the_folder(make_bert, tmp_path):
    place = make_bert(texts=("the old cat chased a dog",))
    url = upload(tmp_path / "glue")
    files = [
        {path.name: path.read_bytes() for path in folder.iterdir()}
        for folder in (locate(upload(place)), place)
    ]
    assert files[0] == files[1]
    assert (
        len({open_corpus([name]).digest for name in (url, f"{url}/a.txt", str(tmp_path / "glue"))})
        == 1
    )
    assert (
        len({open_source(name).load("rte").digest for name in (url, str(tmp_path / "glue"))}) == 1
    )


def test_what_changes_while_it_is_copied_is_refused_and_not_kept(tmp_path, monkeypatch):
    url = upload(tmp_path / "glue")
    copy = MemoryFileSystem.get_file

    def copied_before_a_change(self, path, *places):
        copy(self, path, *places)
        self.pipe_file("/glue/a.txt", b"Another text.")

    monkeypatch.setattr(MemoryFileSystem, "get_file", copied_before_a_change)
    with pytest.raises(UserError, match="it has changed while it was copied; run again"):
        open_corpus([f"{url}/a.txt"])
    monkeypatch.undo()
    monkeypatch.setenv("GLUE_BENCH_CACHE", str(tmp_path / "cache"))
    assert [*open_corpus([f"{url}/a.txt"])] == ["Another text."]


def test_a_state_is_copied_once_and_another_one_again(tmp_path):
    first = fetched(url := upload(tmp_path / "glue"))
    (tmp_path / "glue" / "a.txt").write_text("Two.")
    upload(tmp_path / "glue")
    assert fetched(url) == first  # a process sees one state
    fetched.cache_clear()
    second = fetched(url)
    fetched.cache_clear()
    assert fetched(url) == second != first
    assert (first / "a.txt").read_text() == "One sentence. Another one."
    assert (second / "a.txt").read_text() == "Two."


REFUSED = {
    "memory://nothing": (None, r"^nothing at 'memory://nothing'$"),
    "nosuch://b/x": (
        None,
        r"^cannot read 'nosuch://b/x' \(ValueError: Protocol not known: nosuch\)$",
    ),
    "gs://b/x": (None, "^cannot read 'gs://b/x': Please install gcsfs to access Google Storage$"),
    "memory://glue": (
        ConnectionError("reset"),
        r"^cannot read 'memory://glue' \(ConnectionError: reset\)$",
    ),
    "memory://glue/": (
        OSError(28, "full"),
        "^cannot copy 'memory://glue/' to '.*': No space left on device; make",
    ),
}


@pytest.mark.parametrize("url", REFUSED)
def test_what_cannot_be_read_is_one_line_and_leaves_nothing(url, tmp_path, monkeypatch):
    error, message = REFUSED[url]
    upload(tmp_path / "glue")
    if error:
        monkeypatch.setattr(MemoryFileSystem, "get_file", Mock(side_effect=error))
    with pytest.raises(UserError, match=message):
        fetched(url)
    assert not [*tmp_path.glob("cache/fetched/*")]


def test_an_archive_writes_nothing_outside_its_copy(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("../../../out.txt", "One sentence.")
    with pytest.raises(UserError, match=r"\(ValueError: it has a file '\.\./\.\./\.\./out\.txt'\)"):
        fetched(f"zip://::file://{tmp_path / 'a.zip'}")
    assert not [*tmp_path.rglob("out.txt")]


def test_results_behind_a_url_are_refused(refused):
    message = refused("leaderboard", "s3://bucket/runs")
    assert message.startswith(
        "results cannot lie at 's3:/bucket/runs': that takes a file system with locks and renames"
    )


@pytest.mark.parametrize("endpoint", ["http://nowhere.invalid", "http://127.0.0.1:9"])
def test_a_hub_that_cannot_be_reached_is_named_at_once(endpoint, monkeypatch):
    point_to(endpoint, monkeypatch)
    started = time.monotonic()
    assert hub_fault().startswith(f"{endpoint}: ")
    assert time.monotonic() - started < 5


def test_a_hub_where_connections_hang_is_given_up_for_checkpoints_and_urls(monkeypatch):
    started = time.monotonic()
    with silent_hub(monkeypatch):
        with pytest.raises(UserError, match=r"no folder 'org/model' here.* \(http://127.*time"):
            locate("org/model")
        with pytest.raises(UserError, match=r"cannot read 'hf://datasets/a/b' \(http://127.*time"):
            fetched("hf://datasets/a/b")
    assert time.monotonic() - started < 5


def test_a_hub_that_answers_late_is_there(monkeypatch):
    monkeypatch.setattr("glue_bench.remote.ANSWER_SECONDS", 0.1)
    monkeypatch.setattr("glue_bench.remote.CONNECT_SECONDS", 0.3)
    with slow_hub(1, monkeypatch) as paths:
        assert hub_fault() == ""
        assert paths == ["/"]


def test_a_hub_where_connections_hang_is_waited_for_once_for_all_tasks(monkeypatch):
    monkeypatch.setattr("glue_bench.remote.KEPT_SECONDS", math.inf)
    with silent_hub(monkeypatch):
        assert hub_fault()
        started = time.monotonic()
        assert hub_fault()
    assert time.monotonic() - started < 0.2


def test_it_is_asked_again_after_a_while(monkeypatch):
    with slow_hub(0, monkeypatch) as paths:
        monkeypatch.setattr("glue_bench.remote.KEPT_SECONDS", 1e-9)
        assert hub_fault() == ""
        assert hub_fault() == ""
    assert paths == ["/", "/"]


def test_a_hub_that_has_come_back_is_asked_again(monkeypatch):
    with slow_hub(0, monkeypatch) as paths:
        endpoint = constants.ENDPOINT
        point_to("http://127.0.0.1:9", monkeypatch)
        assert hub_fault()
        point_to(endpoint, monkeypatch)
        with pytest.raises(UserError, match="'org/model'"):
            locate("org/model")
    assert any("org/model" in path for path in paths)


def test_a_hub_that_is_switched_off_is_not_asked(monkeypatch):
    with slow_hub(0, monkeypatch) as paths:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        assert "HF_HUB_OFFLINE" in hub_fault()
    assert paths == []


def test_what_the_network_says_of_an_absent_file_is_told():
    with pytest.raises(UserError, match=r"^cannot read 'http://127.*' \(ClientConnectorError: "):
        fetched("http://127.0.0.1:9/text.txt")


def test_what_a_server_says_of_an_absent_file_is_told(monkeypatch):
    with slow_hub(0, monkeypatch), pytest.raises(UserError, match=r"ClientResponseError: 404"):
        fetched(f"{constants.ENDPOINT}/text.txt")
