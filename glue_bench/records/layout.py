"""The places in the results folder of one experiment. Only this package knows them.

plan.json                                   what the experiment asks for
cells/<id>/record.json                      a finished cell; the folder appears whole, by one rename
cells/<id>/{logits,tests}.safetensors       its predictions: split -> (rows, labels)
cells/<id>/model/                           its fine-tuned model and tokenizer, where they are kept
pretrainings/<id>/record.json               a finished pretraining and its measures
pretrainings/<id>/losses.safetensors        its last validation losses, piece by piece
pretrainings/<id>/sums.safetensors          the sums and counts behind its measures, by sequence
failures/<id>.json                          why the last attempt of a job failed
labels/<task>-<digest of data>.safetensors  gold labels, and what trivial baselines predict
plugins/<digest>/<file>                     the text of a plugin (plugin_files.py)
checkpoints/<id>/step-<n>/                  weights of a pretraining after n steps
checkpoints/<id>/resume.pt                  the latest state of a pretraining that has not ended
progress/<id>.json                          a job under way
{cells,pretrainings}/.replaced-<id>/        an older result while a new one takes its place
analysis/                                   what `analyse` has written
tensorboard/                                what `--track tensorboard` has written
slurm.json                                  the Slurm jobs of this folder, whose logs lie in slurm/
"""

import re
from pathlib import Path

from glue_bench.records.jobs import Cell, Pretraining

PLAN = "plan.json"
CELLS = Cell.kind
PRETRAININGS = Pretraining.kind
FAILURES = "failures"
LABELS = "labels"
CHECKPOINTS = "checkpoints"
PROGRESS = "progress"
ANALYSIS = "analysis"
TENSORBOARD = "tensorboard"
SLURM_FILE = "slurm.json"
SLURM_LOGS = "slurm"
RECORD = "record.json"
MODEL = "model"
"""The names in the folder of a job: its record, and a cell's fine-tuned model."""
RESULT_FOLDERS = (CELLS, PRETRAININGS, FAILURES, LABELS)
"""The folders that decide what results are: without one of them, tables would change."""

_ID = r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,239}"
BUNDLED_FILE = (
    rf"plan\.json|failures/{_ID}\.json|labels/{_ID}\.safetensors|plugins/[0-9a-f]{{64}}/{_ID}"
    rf"|cells/{_ID}/(record\.json|(logits|tests)\.safetensors)"
    rf"|pretrainings/{_ID}/(record\.json|(losses|sums)\.safetensors)"
)
"""A regular expression for the places of the files that others may see."""
BUNDLED_GLOBS = ("*", "failures/*", "labels/*", "plugins/*/*", "cells/*/*", "pretrainings/*/*")
"""Patterns that find these files. Unlike `rglob`, they enter linked folders."""


def job_folder(kind: str, job_id: str) -> str:
    """Return the place of all results of a job; its kind is CELLS or PRETRAININGS."""
    return f"{kind}/{job_id}"


def record_file(kind: str, job_id: str) -> str:
    """Return the place of a job's record."""
    return f"{job_folder(kind, job_id)}/{RECORD}"


def arrays_name(name: str) -> str:
    """Return the file name of the arrays with this name, such as `logits`, beside a record."""
    return f"{name}.safetensors"


def model_folder(cell_id: str) -> str:
    """Return the place of a cell's fine-tuned model."""
    return f"{job_folder(CELLS, cell_id)}/{MODEL}"


def failure_file(job_id: str) -> str:
    """Return the place of the reason why the last attempt of a job failed."""
    return f"{FAILURES}/{job_id}.json"


def labels_file(task: str, data_digest: str) -> str:
    """Return the place of the labels of a task's data."""
    return f"{LABELS}/{task}-{data_digest:.12}.safetensors"


def progress_file(job_id: str) -> str:
    """Return the place of the progress of a job under way."""
    return f"{PROGRESS}/{job_id}.json"


def checkpoints_folder(pretraining_id: str) -> str:
    """Return the place of the checkpoints and the state of a pretraining."""
    return f"{CHECKPOINTS}/{pretraining_id}"


def checkpoint_folder(pretraining_id: str, step: int) -> str:
    """Return the place of the checkpoint of a pretraining after `step` steps."""
    return f"{checkpoints_folder(pretraining_id)}/step-{step}"


def state_file(pretraining_id: str) -> str:
    """Return the place of the state that a pretraining continues from."""
    return f"{checkpoints_folder(pretraining_id)}/resume.pt"


def record_folders(folder: Path) -> list[str]:
    """Return the folders of records in a results folder, each with a slash."""
    return [f"{kind}/" for kind in (CELLS, PRETRAININGS) if (folder / kind).exists()]


def bundled_files(folder: Path) -> dict[str, Path]:
    """Return the files in a results folder that others may see, by their places, without tables."""
    is_bundled = re.compile(BUNDLED_FILE).fullmatch
    files = {}
    for pattern in BUNDLED_GLOBS:
        for path in folder.glob(pattern):
            place = path.relative_to(folder).as_posix()
            if is_bundled(place) and path.is_file():
                files[place] = path
    return files


def explain_no_plan(folder: Path) -> str:
    """Say why a place has no plan: it is a folder of something else, a file, or not there."""
    if folder.is_dir():
        return f"no {PLAN} in it"
    return "it is a file" if folder.is_file() else "no such folder"
