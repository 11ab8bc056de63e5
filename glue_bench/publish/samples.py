"""Predictions on single examples as Every Eval Ever's instance-level files have them.

One line is one answer of one run to one example. The text of an example is not in a results folder.
A line names its row of the split instead.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from glue_bench.data.hub import repository_of
from glue_bench.data.tasks import find_task, scored_columns
from glue_bench.files import whole_file
from glue_bench.stats.runs import ColumnRuns

REGRESSION_REASON = "no single answer to a regression is right or wrong"


@dataclass(frozen=True, kw_only=True)
class SampleSource:
    """What the lines of one arm are made of.

    Attributes:
        outcomes: The runs of all arms with their predictions, as `read_outcomes` yields them.
        arm: The name of the arm.
        tasks: The tasks whose scores are stated.
        shared: The keys that all lines have: the schema, the log and the model.
    """

    outcomes: Sequence[ColumnRuns]
    arm: str
    tasks: Collection[str]
    shared: dict[str, Any]

    @property
    def left_out(self) -> dict[str, str]:
        """Why the examples of a column are left out, by column."""
        reasons: dict[str, str] = {}
        for column in self.outcomes:
            if column.task in self.tasks and find_task(column.task).is_regression:
                reasons[column.column] = REGRESSION_REASON
            elif column.task in self.tasks and self.arm in column.problems:
                reasons[column.column] = column.problems[self.arm]
        return reasons

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of the file, a run after the other."""
        left_out = self.left_out
        for column in self.outcomes:
            if column.task in self.tasks and column.column not in left_out:
                yield from self._lines_of_column(column)

    def _lines_of_column(self, column: ColumnRuns) -> Iterator[bytes]:
        """Yield a line for each example of each run of the arm in a column."""
        name, split = scored_columns()[column.column]
        task = find_task(name)
        place = f"{task.place}.{split}"
        source = repository_of(task) or task.title

        facts = self.shared | {
            "evaluation_name": place,
            "evaluation_result_id": f"{place}.{column.measure.metric}",
            "interaction_type": "single_turn",
        }

        place_of_arm = column.arms.index(self.arm)
        for run in (column.runs.arms == place_of_arm).nonzero()[0]:
            metadata = {
                "seed": str(column.runs.seeds[run]),
                "pretraining_seed": str(column.runs.pretraining_seeds[run]),
            }
            pairs = zip(column.predictions[run], column.labels, strict=True)
            for row, (prediction, label) in enumerate(pairs):
                sample = {
                    **facts,
                    "sample_id": str(row),
                    **_answer(task.labels, int(prediction), int(label)),
                    "metadata": metadata,
                }
                if column.clusters is not None:
                    sample["metadata"] = metadata | {"cluster": str(column.clusters[row])}
                sample["input"]["raw"] = f"{source}, {task.name}, {split}, row {row}"
                yield json.dumps(sample, sort_keys=True).encode() + b"\n"


def _answer(names: Sequence[str], prediction: int, label: int) -> dict[str, Any]:
    """Return the keys of a line that say what the right class was and which one was predicted."""
    predicted = names[prediction]
    is_correct = prediction == label
    attribution = {
        "turn_idx": 0,
        "source": "output.raw",
        "extracted_value": predicted,
        "extraction_method": "the class with the highest logit",
        "is_terminal": True,
    }
    return {
        "input": {"reference": [names[label]], "choices": list(names)},
        "output": {"raw": [predicted]},
        "answer_attribution": [attribution],
        "evaluation": {"score": float(is_correct), "is_correct": is_correct},
    }


def write_samples(source: SampleSource, folder: Path, path: str) -> dict[str, Any] | None:
    """Write the instance-level file of an arm.

    Args:
        source: What its lines are made of.
        folder: The folder that has `path`.
        path: The place of the file in the project's repository.

    Returns:
        What the log says of the file. None if there is no line, and no file.
    """
    lines = source.lines()
    first = next(lines, None)
    if first is None:
        return None

    digest = sha256(first)
    count = 1
    with whole_file(folder / path) as file:
        file.write(first)
        for line in lines:
            digest.update(line)
            file.write(line)
            count += 1

    facts: dict[str, Any] = {
        "format": "jsonl",
        "file_path": path,
        "hash_algorithm": "sha256",
        "checksum": digest.hexdigest(),
        "total_rows": count,
    }
    if source.left_out:
        facts["additional_details"] = source.left_out
    return facts
