"""A program: a cell in a process that may not grow, then the same one in a process that may. Prints both.

python short_memory.py EXPERIMENT.yaml MIB_MORE
"""

import json
import resource
import sys
from pathlib import Path

from glue_bench.config import load_experiment
from glue_bench.sweep.attempts import attempt
from glue_bench.sweep.jobs import Failure, PlannedCell
from glue_bench.sweep.plan import plan_cells
from glue_bench.training.compute import choose_compute
from glue_bench.training.inputs import Inputs


def address_space() -> int:
    """Bytes that this process has mapped."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def described(planned: PlannedCell, inputs: Inputs) -> dict:
    *_, result = attempt(planned, inputs, choose_compute())
    if isinstance(result, Failure):
        return {"error": result.error, "traceback": result.traceback}
    losses = [epoch.train_loss for epoch in result.facts.history]
    logits = {name: values.tolist() for name, values in result.predictions.items()}
    return {"rows": result.facts.micro_batch_size, "losses": losses, "logits": logits} | {"scores": result.facts.scores}


def main() -> None:
    inputs = Inputs(load_experiment(sys.argv[1]), Path(sys.argv[1]).parent / "runs" / "checkpoints")
    warm, planned = plan_cells(inputs.experiment, inputs)
    described(warm, inputs)  # a small one: whatever is imported late is there now
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (address_space() + int(sys.argv[2]) * 2**20, hard))
    short = described(planned, inputs)
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    print(json.dumps({"short": short, "whole": described(planned, inputs)}))


if __name__ == "__main__":
    main()
