"""A program: a cell in a process that may not grow, then the same one in a process that may. Prints both.

python short_memory.py EXPERIMENT.yaml MIB_MORE
"""

import json
import resource
import sys
from pathlib import Path

from glue_bench.config import load_experiment
from glue_bench.records.values import Cell, Failure
from glue_bench.sweep.attempt import Worker
from glue_bench.sweep.plan import make_plan
from glue_bench.training.compute import choose_compute
from glue_bench.training.inputs import Inputs


def address_space() -> int:
    """Bytes that this process has mapped."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def described(cell: Cell, worker: Worker) -> dict:
    result = worker.run(cell)
    if isinstance(result, Failure):
        return {"error": result.error, "traceback": result.traceback}
    losses = [epoch.train_loss for epoch in result.history]
    logits = {name: values.tolist() for name, values in worker.store.logits(result).items()}
    return {"rows": result.micro_batch_size, "losses": losses, "logits": logits, "scores": result.scores}


def main() -> None:
    inputs = Inputs(load_experiment(sys.argv[1]), Path(sys.argv[1]).parent / "runs")
    worker = Worker(inputs, choose_compute())
    warm, planned = make_plan(inputs.experiment, inputs).cells
    described(warm, worker)  # a small one: whatever is imported late is there now
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (address_space() + int(sys.argv[2]) * 2**20, hard))
    short = described(planned, worker)
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    print(json.dumps({"short": short, "whole": described(planned, worker)}))


if __name__ == "__main__":
    main()
