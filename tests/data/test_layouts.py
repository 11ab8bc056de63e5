"""A folder with GLUE in it is read in every layout that is plain; of any other, one line says what
is there.
"""

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

NAMES = ["entailment", "not_entailment"]
SPLITS = {
    "train": {
        "sentence1": ["a", "c ", "e", "g"],
        "sentence2": ['"b', "d\u2028", "f", "h"],
        "label": [0, 1, 1, 0],
    },
    "validation": {"sentence1": ["i", "k"], "sentence2": ["j", "l"], "label": [1, 0]},
    "test": {"sentence1": ["m"], "sentence2": ["n"], "label": [-1]},
}
FILES = {"train": "train.tsv", "validation": "dev.tsv", "test": "test.tsv"}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets-cache")
    datasets.disable_progress_bars()


def whole():
    """Return the task as the library `datasets` has it."""
    splits = {name: datasets.Dataset.from_dict(columns) for name, columns in SPLITS.items()}
    return datasets.DatasetDict(splits).cast_column("label", datasets.ClassLabel(names=NAMES))


def tsv(folder: Path, name: str = "RTE") -> None:
    place = folder / name
    place.mkdir(parents=True)
    for split, columns in SPLITS.items():
        rows = zip(columns["sentence1"], columns["sentence2"], columns["label"], strict=True)
        lines = [
            "sentence1\tsentence2\tlabel",
            *(f"{first}\t{second}\t{NAMES[label]}" for first, second, label in rows),
        ]
        (place / FILES[split]).write_bytes("\n".join(lines).encode())


def parquet(pattern: str, name: str = "rte", shards: int = 1):
    def write(folder: Path) -> None:
        for split, dataset in whole().items():
            for number in range(shards if split == "train" else 1):
                count = shards if split == "train" else 1
                path = folder / name / pattern.format(split=split, number=number, count=count)
                path.parent.mkdir(parents=True, exist_ok=True)
                dataset.shard(count, number, contiguous=True).to_parquet(path)

    return write


def saved(shards: int = 1, name: str = "rte"):
    counts = {split: shards if split == "train" else 1 for split in SPLITS}
    return lambda folder: whole().save_to_disk(str(folder / name), num_shards=counts)


IN_REPOSITORY = "{split}-{number:05}-of-{count:05}.parquet"
READ = {
    "the classic layout": tsv,
    **{
        f"the classic layout in {name}": lambda folder, name=name: tsv(folder, name)
        for name in ("rte", "Rte", "R-T-E")
    },
    "the repository": parquet(IN_REPOSITORY),
    "the repository in capitals": parquet(IN_REPOSITORY, "RTE"),
    "the repository in several files": parquet(IN_REPOSITORY, shards=3),
    "refs/convert/parquet": parquet("{split}/{number:04}.parquet"),
    "refs/convert/parquet in several files": parquet("{split}/{number:04}.parquet", shards=2),
    "push_to_hub": parquet("data/{split}-{number:05}-of-{count:05}.parquet"),
    "push_to_hub of an older version": parquet(
        "data/{split}-{number:05}-of-{count:05}-0123456789abcdef.parquet"
    ),
    "a file for each split": parquet("{split}.parquet"),
    "save_to_disk": saved(),
    "save_to_disk in several files": saved(shards=3),
}


@pytest.mark.parametrize("layout", READ)
def test_equal_rows_have_equal_digests_in_every_layout(layout, tmp_path):
    tsv(tmp_path / "classic")
    write_layout = READ[layout]
    write_layout(tmp_path / "other")
    source = open_source(str(tmp_path / "other"))
    assert source.tasks() == ["rte"]
    data = source.load("rte")
    assert list(data.splits) == list(SPLITS)
    assert data.digest == open_source(str(tmp_path / "classic")).load("rte").digest


def exported(kind):
    def write(folder: Path) -> None:
        (folder / "rte").mkdir(parents=True)
        for split, dataset in whole().items():
            getattr(dataset, f"to_{kind}")(folder / "rte" / f"{split}.{kind}")

    return write


def two(*writers):
    return lambda folder: [write(folder) for write in writers]


def of_one_split(folder: Path) -> None:
    whole()["train"].save_to_disk(str(folder / "rte"))


REFUSED = {
    "csv": (
        exported("csv"),
        "",
        "it has rte/test.csv, rte/train.csv, rte/validation.csv, and CSV is not read",
    ),
    "json": (
        exported("json"),
        "",
        "it has rte/test.json, .* and JSON is not read; save each split with to_parquet",
    ),
    "one level too deep": (
        tsv,
        "RTE",
        "folder of one task, with dev.tsv, test.tsv, train.tsv; give the folder",
    ),
    "one level too deep in Parquet": (
        parquet(IN_REPOSITORY),
        "rte",
        "folder of one task, with .*; give the folder above",
    ),
    "one level too deep of save_to_disk": (
        saved(),
        "rte",
        "folder of one task, with dataset_dict.json",
    ),
    "a task without its name": (
        saved(name="mine"),
        "mine",
        "put it into a folder that has the name of its task",
    ),
    "one level too high": (
        lambda folder: tsv(folder / "glue"),
        "",
        "its folder glue may be meant, which has RTE",
    ),
    "a split of save_to_disk": (
        of_one_split,
        "",
        "its folder rte has .*, state.json, one split of save_to_disk; save all splits together",
    ),
    "two layouts": (
        two(tsv, parquet(IN_REPOSITORY, "WNLI")),
        "",
        "in more than one layout: the classic TSV .* for RTE and Parquet .* for WNLI; put each",
    ),
    "two layouts of a task": (
        two(parquet(IN_REPOSITORY), parquet("data/" + IN_REPOSITORY)),
        "",
        r"has the train split of RTE twice, in train-\*.parquet and data/train-\*.parquet; keep",
    ),
    "two folders of a task": (
        two(tsv, lambda folder: tsv(folder, "r_t_e")),
        "",
        "has RTE twice, in RTE and r_t_e; keep one of them",
    ),
}


@pytest.mark.parametrize("layout", REFUSED)
def test_what_is_there_is_said_in_one_line(layout, tmp_path):
    write, below, message = REFUSED[layout]
    write(tmp_path / "glue-data")
    with pytest.raises(UserError, match=message) as caught:
        open_source(str(tmp_path / "glue-data" / below))
    assert "\n" not in str(caught.value)


MRPC = [
    "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
    *(f"{n % 2}\t{n}\t{n + 50}\ta{n}\tb{n}" for n in range(9)),
]
DEV = (2, 3, 7)


def mrpc(folder: Path, *, ready: bool) -> Path:
    """MRPC as one file with the ids of its validation rows, or parted as by the download script."""
    place = folder / "MRPC"
    place.mkdir(parents=True)
    (place / "dev_ids.tsv").write_text("".join(f"{n}\t{n + 50}\n" for n in DEV))
    (place / "msr_paraphrase_train.txt").write_text("\n".join(MRPC), encoding="utf-8-sig")
    (place / "msr_paraphrase_test.txt").write_text("\n".join(MRPC[:3]), encoding="utf-8-sig")
    if ready:
        header, *rows = MRPC
        parts = {
            "dev": [rows[n] for n in DEV],
            "train": [row for n, row in enumerate(rows) if n not in DEV],
        }
        for name, part in {**parts, "test": rows[:2]}.items():
            (place / f"{name}.tsv").write_text("\n".join([header, *part]))
    return folder


def test_mrpc_is_made_of_the_files_it_comes_in(tmp_path):
    digests = set()
    for ready in (False, True):
        folder = mrpc(tmp_path / str(ready), ready=ready)
        data = open_source(str(folder)).load("mrpc")
        sizes = {name: len(frame) for name, frame in data.splits.items()}
        assert sizes == {"train": 6, "validation": 3, "test": 2}
        digests.add(data.digest)
    assert len(digests) == 1


MRPC_FILES = "MRPC has msr_.*_test.txt, msr_.*_train.txt; add dev_ids.tsv"


def test_a_folder_of_mrpc_without_the_ids_of_its_validation_rows_is_refused(tmp_path):
    folder = mrpc(tmp_path, ready=False) / "MRPC"
    (folder / "dev_ids.tsv").unlink()
    with pytest.raises(UserError, match=f"its folder {MRPC_FILES}"):
        open_source(str(tmp_path))


def test_mrpc_without_the_ids_is_refused_beside_other_tasks(tmp_path):
    folder = mrpc(tmp_path, ready=False) / "MRPC"
    (folder / "dev_ids.tsv").unlink()
    tsv(tmp_path)
    with pytest.raises(UserError, match=f"no MRPC data in .*; {MRPC_FILES}"):
        open_source(str(tmp_path)).load("mrpc")


@pytest.fixture
def arrow_file(tmp_path) -> Path:
    """The first of two files with the train split of RTE, as `save_to_disk` writes them."""
    saved(shards=2)(tmp_path)
    (path, _) = sorted((tmp_path / "rte" / "train").glob("*.arrow"))
    return path


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


def of_two_files(folder: Path, **changes) -> None:
    """The train split in two files, the second of which is changed; `names` are those of its label
    ids.
    """
    names = changes.pop("names", NAMES)
    place = folder / "rte"
    place.mkdir(parents=True)
    first = whole()["train"]
    second = datasets.Dataset.from_dict({**SPLITS["train"], **changes})
    second = second.cast_column("label", datasets.ClassLabel(names=names)) if names else second
    for number, part in enumerate((first, second)):
        part.to_parquet(place / f"train-0000{number}-of-00002.parquet")


def test_files_of_a_split_whose_label_ids_mean_different_things_are_refused(tmp_path):
    of_two_files(tmp_path, names=NAMES[::-1])
    with pytest.raises(
        UserError, match=r"train-00000-of-00002.parquet has other label names than the files that"
    ):
        open_source(str(tmp_path)).load("rte")


def test_files_of_a_split_with_different_columns_are_refused(tmp_path):
    of_two_files(tmp_path, label=["a", "b", "c", "d"], names=None)
    with pytest.raises(
        UserError,
        match=r"train-00000-of-00002.parquet has other columns than the files that follow",
    ):
        open_source(str(tmp_path)).load("rte")


def test_text_in_parquet_that_is_not_utf_8_is_refused(tmp_path):
    place = tmp_path / "rte"
    place.mkdir()
    text = pyarrow.array([b"good", b"\xff\xfe"], pyarrow.binary())
    text = pyarrow.Array.from_buffers(pyarrow.string(), 2, text.buffers())
    table = pyarrow.table({"sentence1": text, "sentence2": ["a", "b"], "label": [0, 1]})
    pyarrow.parquet.write_table(table, place / "train-00000-of-00001.parquet")
    with pytest.raises(
        UserError, match=r"cannot read .*-of-00001.parquet \(.*UTF8.*; expected Parquet files"
    ):
        open_source(str(tmp_path)).load("rte")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(
        ["saved/rte/train/data-00000-of-00001.arrow", "saved/rte/train/state.json", "copy"]
    ),
    place=st.floats(0, 1, exclude_max=True),
    content=st.binary(max_size=4),
)
def test_a_file_that_is_cut_short_or_damaged_is_read_or_refused(
    tmp_path_factory, name, place, content
):
    """Without content the file ends at the place, else the content stands there."""
    folder = tmp_path_factory.getbasetemp() / "damaged"
    if not folder.exists():
        saved()(folder / "saved")
        parquet(IN_REPOSITORY)(folder / "copy")
    path = (
        folder / name if "/" in name else folder / "copy" / "rte" / "train-00000-of-00001.parquet"
    )
    good = path.read_bytes()
    first = int(place * len(good))
    path.write_bytes(
        good[:first] + content + good[first + len(content) :] if content else good[:first]
    )
    try:
        with contextlib.suppress(UserError):
            open_source(str(folder / name.partition("/")[0])).load("rte")
    finally:
        path.write_bytes(good)
