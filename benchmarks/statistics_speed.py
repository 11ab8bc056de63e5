"""How long the statistics of a full experiment take: every official dev set, simulated predictions.

    python benchmarks/statistics_speed.py [--arms 12] [--seeds 5] [--threads 1]

Variances over examples and seeds of all columns and the average, every contrast with the reference, and all pairs.
Prints seconds, the peak of memory and a digest of the numbers, which is the same with any number of threads.
"""

import hashlib
import resource
import time
from collections.abc import Iterator
from typing import Annotated

import numpy as np
import typer
from threadpoolctl import threadpool_limits

from glue_bench.data.tasks import COLUMNS, TASKS
from glue_bench.stats.outcomes import Outcomes, score_sums, sums_of
from glue_bench.stats.verdicts import NUMBERS, Group, all_pairs, arms_frame, assess, columns_frame, verdicts

RIGHT = 0.85


def main(
    arms: Annotated[int, typer.Option()] = 12,
    seeds: Annotated[int, typer.Option()] = 5,
    threads: Annotated[int, typer.Option()] = 1,
) -> None:
    """Simulate, time, print."""
    names = tuple(f"arm{arm}" for arm in range(arms))
    columns = list(simulated(names, seeds))
    before, began = _peak(), time.perf_counter()
    with threadpool_limits(threads):
        assessed = assess(columns, [Group(origin="pretrained", shape="", arms=names, reference="arm0")])
        found = verdicts(assessed)
        columns_frame(assessed, found)
        arms_frame(assessed)
        pairs = all_pairs(assessed)
    seconds = time.perf_counter() - began
    digest = hashlib.sha256(found[NUMBERS].round(4).to_csv().encode()).hexdigest()[:12]
    rows = sum(len(outcomes.labels) for outcomes in columns)
    print(
        f"{arms} arms x {seeds} seeds, {rows:,} rows, {len(found)} contrasts, {len(pairs)} pairs, {threads} thread(s)"
    )
    print(f"{seconds:.1f} s, {_peak() - before:.0f} MiB above the predictions' {before:.0f} MiB, digest {digest}")


def simulated(arms: tuple[str, ...], seeds: int) -> Iterator[Outcomes]:
    """Predictions on official numbers of rows, right about as often as a base model's."""
    generator = np.random.default_rng(0)
    for column, (task, split) in COLUMNS.items():
        rows, metric = TASKS[task].splits[split].rows, TASKS[task].metrics[0]
        shape = (len(arms) * seeds, rows)
        strength = generator.normal(size=rows) + 0.5 * generator.normal(size=shape) + RIGHT * np.sqrt(1.25)
        labels, predictions = _predictions(column, strength, generator)
        yield Outcomes(
            column=column,
            task=task,
            metric=metric,
            arms=arms,
            owners=np.repeat(np.arange(len(arms)), seeds),
            pretraining_seeds=np.zeros(len(predictions), int),
            seeds=np.tile(np.arange(seeds), len(arms)),
            scores=100 * score_sums(metric, sums_of(metric, predictions, labels).sum(axis=0, dtype=float), rows),
            predictions=predictions,
            labels=labels,
        )


def _predictions(column: str, strength: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    if column == "stsb":
        labels = generator.normal(size=strength.shape[1])
        return labels, labels + 0.5 * strength
    labels = generator.integers(2, size=strength.shape[1])
    return labels, np.where(strength > 0, labels, 1 - labels)


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    typer.run(main)
