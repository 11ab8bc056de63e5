"""The eleven files that the GLUE site takes, and the zip around them.

Names, header and row counts: the site's FAQ and sample submission (https://gluebenchmark.com/faq).
"""

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from glue_bench.data.archive import plain_entry
from glue_bench.data.metrics import decide
from glue_bench.data.tasks import AX_SPLIT, TASKS
from glue_bench.data.tsv import SCORES

HEADER = "index\tprediction"

MAJORITY: dict[str, str] = {
    "cola": "1",
    "sst2": "1",
    "mrpc": "1",
    "stsb": "2.701",
    "qqp": "0",
    "mnli": "entailment",
    "qnli": "entailment",
    "rte": "entailment",
    "wnli": "0",
    "ax": "entailment",
}
"""The most frequent training label of each task as files spell it; of STS-B the mean.

Counted on the official training files: CoLA 6023 of 8551, SST-2 37569 of 67349, MRPC 2474 of 3668, STS-B the mean of
5749 scores, RTE 1249 of 2490, WNLI 323 of 635. On a part of them, for want of the whole: QQP 22006 of 34998, MNLI
4533 of 13393, QNLI 6092 of 12096; the last two are so even that the whole may say otherwise. AX has no training file
and takes MNLI's. Counted again with
`pandas.Series(open_source(FOLDER).load(task).splits["train"]["label"]).value_counts()`.
"""


@dataclass(frozen=True, kw_only=True)
class File:
    """One file of a submission: the labels and rows of `task`, predicted by the model of `model` on its `split`."""

    name: str
    task: str
    model: str
    split: str
    rows: int

    @property
    def labels(self) -> tuple[str, ...]:
        """Permitted predictions; empty where it is a number from 0 to 5."""
        return TASKS[self.task].written


def _files() -> dict[str, File]:
    endings = {"test": "", "test_matched": "-m", "test_mismatched": "-mm"}
    files = [
        File(name=f"{task.title}{endings[split]}.tsv", task=name, model=name, split=split, rows=task.splits[split].rows)
        for name, task in TASKS.items()
        for split in task.test_splits
        if name != "ax"
    ]
    ax = TASKS["ax"]
    files.append(File(name="AX.tsv", task="ax", model="mnli", split=AX_SPLIT, rows=ax.splits["test"].rows))
    return {file.name: file for file in files}


FILES: dict[str, File] = _files()
"""The eleven files by name, in the order of TASKS."""


def write_file(file: File, logits: np.ndarray) -> bytes:
    """The file of a model's outputs (rows, labels), columns in the order of `Task.labels`: one line a row, in order.

    Classes are written by their names, scores clipped to 0 to 5 with three decimals. Raises ValueError for outputs of
    another shape, or that are not finite.
    """
    predicted = decide(file.task, logits)
    if file.labels:
        return _lines([file.labels[label] for label in predicted])
    return _lines([f"{score:.3f}" for score in np.clip(predicted.astype(np.float64), *SCORES)])


def fill_file(file: File) -> bytes:
    """The file with the same prediction on every official row: the majority class of training, or the mean score."""
    return _lines([MAJORITY[file.task]] * file.rows)


def _lines(predictions: list[str]) -> bytes:
    rows = [f"{index}\t{prediction}" for index, prediction in enumerate(predictions)]
    return ("\n".join([HEADER, *rows]) + "\n").encode()


def make_zip(files: Mapping[str, bytes]) -> bytes:
    """A zip of files by name: the same bytes for the same content, whenever and wherever it is made.

    Nothing is compressed, because compressors differ between builds of zlib; all eleven files take 4 MB.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            archive.writestr(plain_entry(name), files[name])
    return buffer.getvalue()
