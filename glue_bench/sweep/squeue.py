"""Questions and orders to Slurm, by its own commands."""

import re
import subprocess
from typing import NamedTuple

from glue_bench.errors import UserError
from glue_bench.sweep.executors import import_extra

NO_SLURM = "--slurm: no Slurm answers here; start the command where sbatch and squeue work"
NEVER_STARTS = re.compile(
    "Partition(Config|TimeLimit|NodeLimit)|BadConstraints|Invalid(Account|QOS)"
    "|(Account|QOS)NotAllowed|DependencyNeverSatisfied"
)
"""The reasons for which Slurm keeps a job that it will never start."""
HELD = "launch failed requeued held"


class SlurmJob(NamedTuple):
    """A job that Slurm knows: its state, such as RUNNING, and why it waits."""

    state: str
    reason: str


def check_slurm() -> str:
    """Return Slurm's configuration. Raises UserError if submitit is missing or no Slurm answers."""
    import_extra("submitit", "slurm", "--slurm needs")
    config = run_slurm_command("scontrol", "show", "config")
    if config is None:
        raise UserError(NO_SLURM)
    return config


def live_jobs(name: str) -> dict[str, SlurmJob] | None:
    """Return Slurm's jobs with this name by their numbers; None if Slurm does not answer now."""
    options = ("--me", "--noheader", "--array", f"--name={name}", "--format=%i|%T|%r")
    answer = run_slurm_command("squeue", *options)
    if answer is None:
        return None
    jobs = {}
    for row in answer.splitlines():
        number, state, reason = row.split("|", 2)
        jobs[number] = SlurmJob(state, reason)
    return jobs


def cancel_jobs(*numbers: str) -> None:
    """End jobs of Slurm."""
    run_slurm_command("scancel", *numbers)


def cancel_all(name: str) -> None:
    """End all jobs with this name, even jobs whose numbers nobody knows."""
    run_slurm_command("scancel", f"--name={name}")


def run_slurm_command(*command: str) -> str | None:
    """Return the output of a command of Slurm; None if the command fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
