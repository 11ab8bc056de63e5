"""A Slurm that only writes down what it is asked: a test says what becomes of each job, and
when.
"""

import traceback
from pathlib import Path

from submitit.core.utils import DelayedSubmission, JobPaths

from glue_bench.errors import UserError

COMMANDS = {
    "srun": "exit 1\n",  # which submitit looks for, and never calls
    "scontrol": "echo 'MaxArraySize            = 5'",
    "sbatch": """
[ "$(cat reason)" != down ] || exit 1
if grep -q -- --partition=gpu "$1"; then
    echo 'sbatch: error: invalid partition specified: gpu' >&2
    exit 1
fi
number=$(($(cat number) + 100))
echo $number > number
last=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\)%.*/\\1/p' "$1")
for job in ${last:+$(seq -f ${number}_%.0f 0 $last)}; do touch live/$job; done
[ -n "$last" ] || touch live/$number
echo "Submitted batch job $number"
""",
    "squeue": """
if [ "$(cat reason)" = down ]; then
    echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2
    exit 1
fi
for job in $(ls live); do echo "$job|$(cat state)|$(cat reason)"; done
""",
    "scancel": 'for job in "$@"; do case $job in --name=*) job="*";; esac; rm -f live/$job; done',
}


class FakeSlurm:
    """A Slurm whose commands lie in `bin`, for the PATH; `logs` is where submitit keeps what it
    sends.
    """

    def __init__(self, folder: Path, logs: Path) -> None:
        self.folder, self.bin, self.logs = folder, folder / "bin", logs
        for place in (self.bin, folder / "live"):
            place.mkdir(parents=True)
        (folder / "number").write_text("0")
        self.say("None")
        for name, script in COMMANDS.items():
            command = self.bin / name
            command.write_text(f"#!/bin/sh\ncd {folder}\n{script}")
            command.chmod(0o755)

    def say(self, reason: str, state: str = "PENDING") -> None:
        """Set the state of all jobs and why they wait; if the controller is `down` it does not
        answer.
        """
        (self.folder / "reason").write_text(reason)
        (self.folder / "state").write_text(state)

    def live(self) -> list[str]:
        """Return the jobs that wait or run."""
        return sorted(path.name for path in (self.folder / "live").iterdir())

    def end(self, job: str) -> None:
        """End a job, however it has ended."""
        (self.folder / "live" / job).unlink()

    def run(self, *jobs: str, max_jobs: int | None = None) -> None:
        """Run what was sent as these jobs in this process, or the first of it, and end them."""
        for job in jobs:
            paths = JobPaths(self.logs / "%A", job)
            sent = DelayedSubmission.load(paths.submitted_pickle)
            try:
                sent.function(sent.args[0][:max_jobs])
            except UserError:
                paths.stderr.write_text(traceback.format_exc())
            self.end(job)
