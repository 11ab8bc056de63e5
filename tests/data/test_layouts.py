"""A folder of GLUE is read in every known layout; one line refuses every other layout."""

import contextlib
import shutil
from pathlib import Path

import datasets
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glue_bench.data.sources import open_source
from glue_bench.errors import UserError

LABEL_NAMES = ["entailment", "not_entailment"]
# Some texts have what readers of TSV may lose: a last blank, a quote, a line separator.
SPLITS = {
    "train": {
        "sentence1": ["a", "c ", "e", "g"],
        "sentence2": ['"b', "d\u2028", "f", "h"],
        "label": [0, 1, 1, 0],
    },
    "validation": {"sentence1": ["i", "k"], "sentence2": ["j", "l"], "label": [1, 0]},
    "test": {"sentence1": ["m"], "sentence2": ["n"], "label": [-1]},
}
TSV_FILES = {"train": "train.tsv", "validation": "dev.tsv", "test": "test.tsv"}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets-cache")
    datasets.disable_progress_bars()


def rte_dataset():
    """Return RTE with these splits as the library `datasets` has it."""
    splits = {name: datasets.Dataset.from_dict(columns) for name, columns in SPLITS.items()}
    return datasets.DatasetDict(splits).cast_column("label", datasets.ClassLabel(names=LABEL_NAMES))


def write_tsv(folder: Path, name: str = "RTE") -> None:
    place = folder / name
    place.mkdir(parents=True)
    for split, columns in SPLITS.items():
        rows = zip(columns["sentence1"], columns["sentence2"], columns["label"], strict=True)
        lines = ["sentence1\tsentence2\tlabel"]
        for first, second, label in rows:
            lines.append(f"{first}\t{second}\t{LABEL_NAMES[label]}")
        (place / TSV_FILES[split]).write_bytes("\n".join(lines).encode())


def tsv_writer(name: str):
    """Return a function that writes RTE as TSV files into this folder of a folder."""
    return lambda folder: write_tsv(folder, name)


def parquet_writer(pattern: str, name: str = "rte", shards: int = 1):
    """Return a function that writes RTE as Parquet files, with train in so many of them."""

    def write(folder: Path) -> None:
        for split, dataset in rte_dataset().items():
            count = shards if split == "train" else 1
            for number in range(count):
                path = folder / name / pattern.format(split=split, number=number, count=count)
                path.parent.mkdir(parents=True, exist_ok=True)
                dataset.shard(count, number, contiguous=True).to_parquet(path)

    return write


def save_to_disk_writer(shards: int = 1, name: str = "rte"):
    """Return a function that writes RTE by `save_to_disk`, with train in so many files."""
    counts = {"train": shards, "validation": 1, "test": 1}
    return lambda folder: rte_dataset().save_to_disk(str(folder / name), num_shards=counts)


NAME_ON_HUB = "{split}-{number:05}-of-{count:05}.parquet"
READ = {
    "the classic layout": write_tsv,
    "the classic layout in rte": tsv_writer("rte"),
    "the classic layout in Rte": tsv_writer("Rte"),
    "the classic layout in R-T-E": tsv_writer("R-T-E"),
    "the repository": parquet_writer(NAME_ON_HUB),
    "the repository in capitals": parquet_writer(NAME_ON_HUB, "RTE"),
    "the repository in several files": parquet_writer(NAME_ON_HUB, shards=3),
    "refs/convert/parquet": parquet_writer("{split}/{number:04}.parquet"),
    "refs/convert/parquet in several files": parquet_writer(
        "{split}/{number:04}.parquet", shards=2
    ),
    "push_to_hub": parquet_writer("data/{split}-{number:05}-of-{count:05}.parquet"),
    "push_to_hub of an older version": parquet_writer(
        "data/{split}-{number:05}-of-{count:05}-0123456789abcdef.parquet"
    ),
    "a file for each split": parquet_writer("{split}.parquet"),
    "save_to_disk": save_to_disk_writer(),
    "save_to_disk in several files": save_to_disk_writer(shards=3),
}


@pytest.mark.parametrize("layout", READ)
def test_equal_rows_have_equal_digests_in_every_layout(layout, tmp_path):
    write_tsv(tmp_path / "classic")
    expected = open_source(str(tmp_path / "classic")).load("rte")
    write_layout = READ[layout]
    write_layout(tmp_path / "other")
    source = open_source(str(tmp_path / "other"))
    assert source.tasks() == ["rte"]
    data = source.load("rte")
    assert list(data.splits) == list(SPLITS)
    assert data.digest == expected.digest


def export_writer(kind):
    """Return a function that writes a file of this kind, csv or json, for each split."""

    def write(folder: Path) -> None:
        (folder / "rte").mkdir(parents=True)
        for split, dataset in rte_dataset().items():
            getattr(dataset, f"to_{kind}")(folder / "rte" / f"{split}.{kind}")

    return write


def writer_of_both(first, second):
    """Return a function that writes two layouts into one folder."""

    def write(folder: Path) -> None:
        first(folder)
        second(folder)

    return write


def save_one_split(folder: Path) -> None:
    rte_dataset()["train"].save_to_disk(str(folder / "rte"))


# The function that writes a layout, the folder below that is opened, and the message.
REFUSED = {
    "csv": (
        export_writer("csv"),
        "",
        "it has rte/test.csv, rte/train.csv, rte/validation.csv, and CSV is not read",
    ),
    "json": (
        export_writer("json"),
        "",
        "it has rte/test.json, .* and JSON is not read; save each split with to_parquet",
    ),
    "one level too deep": (
        write_tsv,
        "RTE",
        "folder of one task, with dev.tsv, test.tsv, train.tsv; give the folder",
    ),
    "one level too deep in Parquet": (
        parquet_writer(NAME_ON_HUB),
        "rte",
        "folder of one task, with .*; give the folder above",
    ),
    "one level too deep of save_to_disk": (
        save_to_disk_writer(),
        "rte",
        "folder of one task, with dataset_dict.json",
    ),
    "a task without its name": (
        save_to_disk_writer(name="mine"),
        "mine",
        "put it into a folder that has the name of its task",
    ),
    "one level too high": (
        tsv_writer("glue/RTE"),
        "",
        "its folder glue may be meant, which has RTE",
    ),
    "a split of save_to_disk": (
        save_one_split,
        "",
        "its folder rte has .*, state.json, one split of save_to_disk; save all splits together",
    ),
    "two layouts": (
        writer_of_both(write_tsv, parquet_writer(NAME_ON_HUB, "WNLI")),
        "",
        "in more than one layout: the classic TSV .* for RTE and Parquet .* for WNLI; put each",
    ),
    "two layouts of a task": (
        writer_of_both(parquet_writer(NAME_ON_HUB), parquet_writer("data/" + NAME_ON_HUB)),
        "",
        r"has the train split of RTE twice, in train-\*.parquet and data/train-\*.parquet; keep",
    ),
    "two folders of a task": (
        writer_of_both(write_tsv, tsv_writer("r_t_e")),
        "",
        "has RTE twice, in RTE and r_t_e; keep one of them",
    ),
}


@pytest.mark.parametrize("layout", REFUSED)
def test_an_unknown_layout_is_refused_in_one_line(layout, tmp_path):
    write_layout, below, message = REFUSED[layout]
    write_layout(tmp_path / "glue-data")
    with pytest.raises(UserError, match=message) as caught:
        open_source(str(tmp_path / "glue-data" / below))
    assert "\n" not in str(caught.value)


MRPC_HEADER = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
MRPC_ROWS = [f"{n % 2}\t{n}\t{n + 50}\ta{n}\tb{n}" for n in range(9)]
MRPC = [MRPC_HEADER, *MRPC_ROWS]
MRPC_VALIDATION_ROWS = (2, 3, 7)


def write_mrpc(folder: Path, *, with_splits: bool) -> Path:
    """Write MRPC as its authors publish it, with the ids of its validation rows.

    With `with_splits` the files into which the download script of GLUE parts it are there, too.
    """
    place = folder / "MRPC"
    place.mkdir(parents=True)
    (place / "dev_ids.tsv").write_text("".join(f"{n}\t{n + 50}\n" for n in MRPC_VALIDATION_ROWS))
    (place / "msr_paraphrase_train.txt").write_text("\n".join(MRPC), encoding="utf-8-sig")
    (place / "msr_paraphrase_test.txt").write_text("\n".join(MRPC[:3]), encoding="utf-8-sig")
    if with_splits:
        rows_of_split = {
            "dev": [MRPC_ROWS[n] for n in MRPC_VALIDATION_ROWS],
            "train": [row for n, row in enumerate(MRPC_ROWS) if n not in MRPC_VALIDATION_ROWS],
            "test": MRPC_ROWS[:2],
        }
        for name, rows in rows_of_split.items():
            (place / f"{name}.tsv").write_text("\n".join([MRPC_HEADER, *rows]))
    return folder


def test_mrpc_is_parted_into_splits_as_the_download_script_does(tmp_path):
    published = write_mrpc(tmp_path / "published", with_splits=False)
    parted = write_mrpc(tmp_path / "parted", with_splits=True)
    data = open_source(str(published)).load("mrpc")
    sizes = {name: len(frame) for name, frame in data.splits.items()}
    assert sizes == {"train": 6, "validation": 3, "test": 2}
    assert data.digest == open_source(str(parted)).load("mrpc").digest


WITHOUT_IDS = "MRPC has msr_.*_test.txt, msr_.*_train.txt; add dev_ids.tsv"


def test_a_folder_of_mrpc_without_the_ids_of_its_validation_rows_is_refused(tmp_path):
    folder = write_mrpc(tmp_path, with_splits=False) / "MRPC"
    (folder / "dev_ids.tsv").unlink()
    with pytest.raises(UserError, match=f"its folder {WITHOUT_IDS}"):
        open_source(str(tmp_path))


def test_mrpc_without_the_ids_is_refused_beside_other_tasks(tmp_path):
    folder = write_mrpc(tmp_path, with_splits=False) / "MRPC"
    (folder / "dev_ids.tsv").unlink()
    write_tsv(tmp_path)
    with pytest.raises(UserError, match=f"no MRPC data in .*; {WITHOUT_IDS}"):
        open_source(str(tmp_path)).load("mrpc")


@pytest.fixture
def arrow_file(tmp_path) -> Path:
    """The first of two files with the train split of RTE, as `save_to_disk` writes them."""
    write_saved = save_to_disk_writer(shards=2)
    write_saved(tmp_path)
    first, _ = sorted((tmp_path / "rte" / "train").glob("*.arrow"))
    return first


def test_a_damaged_file_of_save_to_disk_is_named(arrow_file, tmp_path):
    arrow_file.write_bytes(b"something else")
    message = r"cannot read .*data-00000-of-00002.arrow .*; expected what save_to_disk has"
    with pytest.raises(UserError, match=message):
        open_source(str(tmp_path)).load("rte")


def test_a_missing_file_of_save_to_disk_is_named(arrow_file, tmp_path):
    arrow_file.unlink()
    message = r"cannot read .*data-00000-of-00002.arrow \(No such file"
    with pytest.raises(UserError, match=message):
        open_source(str(tmp_path)).load("rte")


def test_a_damaged_list_of_the_files_of_save_to_disk_is_named(arrow_file, tmp_path):
    (arrow_file.parent / "state.json").write_text('{"_data_files": 3}')
    message = r"cannot read .*state.json .*; save RTE again with save_to_disk"
    with pytest.raises(UserError, match=message):
        open_source(str(tmp_path)).load("rte")


def test_a_split_that_save_to_disk_has_not_written_is_left_out(arrow_file, tmp_path):
    shutil.rmtree(arrow_file.parent)
    assert list(open_source(str(tmp_path)).load("rte").splits) == ["validation", "test"]


def write_train_in_two_files(folder: Path, second: datasets.Dataset) -> None:
    """Write the train split of RTE into a file, and another one as its second file."""
    place = folder / "rte"
    place.mkdir(parents=True)
    for number, dataset in enumerate((rte_dataset()["train"], second)):
        dataset.to_parquet(place / f"train-0000{number}-of-00002.parquet")


def test_files_of_a_split_whose_label_ids_mean_different_things_are_refused(tmp_path):
    other_names = datasets.ClassLabel(names=LABEL_NAMES[::-1])
    second = rte_dataset()["train"].cast_column("label", other_names)
    write_train_in_two_files(tmp_path, second)
    with pytest.raises(
        UserError, match=r"train-00000-of-00002.parquet has other label names than the files that"
    ):
        open_source(str(tmp_path)).load("rte")


def test_files_of_a_split_with_different_columns_are_refused(tmp_path):
    second = datasets.Dataset.from_dict(SPLITS["train"] | {"label": ["a", "b", "c", "d"]})
    write_train_in_two_files(tmp_path, second)
    with pytest.raises(
        UserError,
        match=r"train-00000-of-00002.parquet has other columns than the files that follow",
    ):
        open_source(str(tmp_path)).load("rte")


def test_text_in_parquet_that_is_not_utf_8_is_refused(tmp_path):
    place = tmp_path / "rte"
    place.mkdir()
    binary = pyarrow.array([b"good", b"\xff\xfe"], pyarrow.binary())
    # A column of texts is made of the same bytes, because pyarrow would refuse to convert them.
    text = pyarrow.Array.from_buffers(pyarrow.string(), 2, binary.buffers())
    table = pyarrow.table({"sentence1": text, "sentence2": ["a", "b"], "label": [0, 1]})
    pyarrow.parquet.write_table(table, place / "train-00000-of-00001.parquet")
    with pytest.raises(
        UserError, match=r"cannot read .*-of-00001.parquet \(.*UTF8.*; expected Parquet files"
    ):
        open_source(str(tmp_path)).load("rte")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(
        [
            "saved/rte/train/data-00000-of-00001.arrow",
            "saved/rte/train/state.json",
            "parquet/rte/train-00000-of-00001.parquet",
        ]
    ),
    place=st.floats(0, 1, exclude_max=True),
    content=st.binary(max_size=4),
)
def test_a_file_that_is_cut_short_or_damaged_is_read_or_refused(
    tmp_path_factory, name, place, content
):
    """The file ends at a place, or has other content at it."""
    folder = tmp_path_factory.getbasetemp() / "damaged"
    if not folder.exists():
        write_saved = save_to_disk_writer()
        write_saved(folder / "saved")
        write_parquet = parquet_writer(NAME_ON_HUB)
        write_parquet(folder / "parquet")
    path = folder / name
    good = path.read_bytes()
    first = int(place * len(good))
    damaged = good[:first]
    if content:
        damaged += content + good[first + len(content) :]
    path.write_bytes(damaged)
    try:
        with contextlib.suppress(UserError):
            open_source(str(folder / name.partition("/")[0])).load("rte")
    finally:
        path.write_bytes(good)
