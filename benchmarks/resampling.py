"""How long the statistics of a full experiment take: every official dev set of the nine columns, simulated predictions.

    python benchmarks/resampling.py [--arms 7] [--seeds 5] [--resamples 10000] [--threads 1]

Resamples of all columns, intervals, permutation tests, Holm's correction and ranks. Prints seconds, the peak of memory
and a digest of the numbers, which has to be the same on every machine and with any number of threads.
"""

import hashlib
import resource
import time
from collections.abc import Iterator
from typing import Annotated

import numpy as np
import typer
from glue_bench.stats.pairs import NUMBERS, assess, compare
from glue_bench.stats.ties import ranks_frame
from threadpoolctl import threadpool_limits

from glue_bench.benchmark.tasks import COLUMNS, TASKS
from glue_bench.stats.outcomes import Outcomes
from glue_bench.stats.weighted import score_sums, sums_of

RIGHT = 0.85


def main(
    arms: Annotated[int, typer.Option()] = 7,
    seeds: Annotated[int, typer.Option()] = 5,
    resamples: Annotated[int, typer.Option()] = 10_000,
    threads: Annotated[int, typer.Option()] = 1,
) -> None:
    """Simulate, time, print."""
    columns = list(simulated(arms, seeds))
    before, began = _peak(), time.perf_counter()
    with threadpool_limits(threads):
        blocks = assess(columns, resamples)
        pairs = compare(blocks)
        ranks_frame(blocks, pairs)
    seconds = time.perf_counter() - began
    rows = sum(outcomes.rows for outcomes in columns)
    digest = hashlib.sha256(pairs[NUMBERS].round(4).to_csv().encode()).hexdigest()[:12]
    print(
        f"{arms} arms x {seeds} seeds, {rows:,} rows, {len(pairs)} pairs, {resamples:,} resamples, {threads} thread(s)"
    )
    print(f"{seconds:.1f} s, {_peak() - before:.0f} MiB above the predictions' {before:.0f} MiB, digest {digest}")


def simulated(arms: int, seeds: int) -> Iterator[Outcomes]:
    """Predictions on official numbers of rows, right about as often as a base model's."""
    generator = np.random.default_rng(0)
    for column, (task, split) in COLUMNS.items():
        rows = TASKS[task].splits[split].rows
        shape = (arms, seeds, rows)
        strength = generator.normal(size=rows) + 0.5 * generator.normal(size=shape) + RIGHT * np.sqrt(1.25)
        labels, predictions = _predictions(column, strength.reshape(-1, rows), generator)
        sums = sums_of(TASKS[task].metrics[0], predictions, labels).sum(axis=0, dtype=float)
        yield Outcomes(
            origin="pretrained",
            column=column,
            arms=tuple(f"arm{arm}" for arm in range(arms)),
            owners=np.repeat(np.arange(arms), seeds),
            seeds=np.tile(np.arange(seeds), arms),
            scores=100 * score_sums(TASKS[task].metrics[0], sums, rows),
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
