"""Which source a name opens, and how its content is described."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from glue_bench.data import hub
from glue_bench.data.sources import DESCRIPTION, describe, open_source
from glue_bench.data.tasks import TASKS, Split
from glue_bench.errors import UserError

REAL = Path(__file__).resolve().parents[3] / "shared" / "glue"
SMALL = {
    "RTE/train.tsv": "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n1\tc\td\tnot_entailment\n",
    "RTE/test.tsv": "index\tsentence1\tsentence2\n0\te\tf\n",
}

Writer = Callable[[dict[str, str | bytes]], Path]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hubb", "unknown data source 'hubb'; did you mean 'hub'?"),
        ("Demo", "did you mean 'demo'?"),
        ("zzz", "known: hub, demo"),
        ("nyu-mll/glue", "did you mean 'hub'?"),
        ("./absent/glue", "folder ./absent/glue does not exist"),
    ],
)
def test_unknown_source(name: str, message: str) -> None:
    with pytest.raises(UserError, match="folder") as caught:
        open_source(name)
    assert message in str(caught.value)


def test_folder_without_data_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"looked for .*CoLA/train\.tsv.* clone of nyu-mll/glue .*parquet"):
        open_source(str(tmp_path))
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="is a file; expected a folder"):
        open_source(str(tmp_path / "file"))


def test_kinds_and_revisions(write: Writer) -> None:
    source = open_source(str(write(dict(SMALL))))
    assert (source.kind, source.revision, source.tasks()) == ("tsv", None, ["rte"])
    remote = open_source("hub")
    assert (remote.kind, remote.revision, remote.tasks()) == ("hub", hub.PINNED, list(TASKS))
    assert open_source("demo").kind == "demo"


@pytest.mark.parametrize("name", ["hub", "demo", "folder"])
def test_unknown_and_missing_tasks(name: str, write: Writer) -> None:
    source = open_source(str(write(dict(SMALL))) if name == "folder" else name)
    with pytest.raises(UserError, match="unknown task 'mnl'; did you mean 'mnli'"):
        source.load("mnl")
    if name == "folder":
        with pytest.raises(UserError, match=r"no MRPC data in .*MRPC; looked for train\.tsv, dev\.tsv"):
            source.load("mrpc")


def test_describe(write: Writer) -> None:
    header = "index\tsentence1\tsentence2"
    stsb = {"STS-B/dev.tsv": f"{header}\tscore\n0\ta\tb\t0.0\n1\tc\td\t5.0\n"}
    table = describe(open_source(str(write({**SMALL, **stsb}))))
    assert list(table.columns) == DESCRIPTION
    assert len(table) == 8 + 3 + 3
    train, validation, test = table[table.task == "rte"].to_dict("records")
    assert (train["rows"], train["official_rows"], train["status"]) == (2, 2490, "partial")
    assert train["labels"] == "entailment 50% / not_entailment 50%"
    assert len(train["digest"]) == 12
    assert (validation["rows"], validation["digest"], validation["status"]) == (0, "", "partial")
    assert test["labels"] == "unlabelled"
    assert "0.0-5.0 mean 2.5" in table[table.task == "stsb"].labels.tolist()
    missing = table[table.task == "mnli"].to_dict("records")
    assert [(row["rows"], row["status"], row["split"]) for row in missing] == [(0, "missing", "")]


def test_complete_means_every_split_of_the_official_size(write: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    source = open_source(str(write(dict(SMALL))))
    small = {"train": Split("train.tsv", 2), "test": Split("test.tsv", 1)}
    monkeypatch.setitem(TASKS, "rte", dataclasses.replace(TASKS["rte"], splits=small))
    assert describe(source).set_index("task").loc["rte", "status"].tolist() == ["complete"] * 2


# The real files, where they are at hand

PARTIAL = {"mnli": {"train": 13393}, "qnli": {"train": 12096}, "qqp": {"train": 34998, "validation": 7600}}


@pytest.mark.skipif(not REAL.is_dir(), reason="the real TSV files are not here")
def test_real_files_have_the_sizes_their_readme_gives() -> None:
    table = describe(open_source(str(REAL)))
    assert set(table.task) == set(TASKS)
    for row in table.itertuples():
        absent = (row.task, row.split) == ("qqp", "test")
        expected = 0 if absent else PARTIAL.get(row.task, {}).get(row.split, row.official_rows)
        assert (row.rows, row.skipped) == (expected, 0), row
        assert row.status == ("partial" if row.task in PARTIAL else "complete")
    digests = table.digest[table.digest != ""]
    assert digests.is_unique
