"""sbatch, squeue, scancel, scontrol and srun of a cluster that is this machine, for tests without Slurm.

`install(folder)` makes the commands; put `folder/bin` on the PATH. A job is a session of processes, started at once.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

MAX_ARRAY = 4


def install(folder: Path) -> Path:
    """The folder for the PATH."""
    (folder / "bin").mkdir(parents=True)
    (folder / "jobs").mkdir()
    for name in ("sbatch", "squeue", "scancel", "scontrol", "srun"):
        command = folder / "bin" / name
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -S {__file__} {folder} {name} "$@"\n')
        command.chmod(0o755)
    return folder / "bin"


def sbatch(jobs: Path, script: str) -> None:
    text = Path(script).read_text()
    flags = dict(re.findall(r"#SBATCH --([\w-]+)=(\S+)", text))
    if "partition" in flags and flags["partition"] != "main":
        sys.exit("sbatch: error: invalid partition specified: " + flags["partition"])
    number = 100 * (1 + len({path.name.partition("_")[0] for path in jobs.iterdir()}))
    last = re.match(r"0-(\d+)", flags.get("array", ""))
    for element in range(int(last[1]) + 1) if last else [None]:
        name = f"{number}_{element}" if last else str(number)
        array = {"SLURM_ARRAY_JOB_ID": str(number), "SLURM_ARRAY_TASK_ID": str(element)} if last else {}
        environment = {**os.environ, "SLURM_JOB_ID": str(number + (element or 0)), **array, "FAKE_NAME": name}
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(["bash", script], env=environment, start_new_session=True, **quiet)
        (jobs / name).write_text(f"{process.pid} {flags['job-name']}")
    print(f"Submitted batch job {number}")


def live(jobs: Path) -> dict[str, tuple[int, str]]:
    found = {}
    for path in jobs.iterdir():
        process, name = path.read_text().split()
        state = Path(f"/proc/{process}/stat")
        if state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z":
            found[path.name] = int(process), name
    return found


def squeue(jobs: Path, *flags: str) -> None:
    if (jobs.parent / "broken").exists():
        sys.exit("slurm_load_jobs error: Unable to contact slurm controller")
    wanted = next(flag.removeprefix("--name=") for flag in flags if flag.startswith("--name="))
    reason = jobs.parent / "reason"
    for job, (_, name) in live(jobs).items():
        if name == wanted:
            print(f"{job}|{reason.read_text() if reason.exists() else 'None'}")


def scancel(jobs: Path, *ids: str) -> None:
    for job, (process, _) in live(jobs).items():
        if job in ids:
            os.killpg(process, signal.SIGKILL)
    while live(jobs).keys() & set(ids):
        time.sleep(0.01)


def srun(_: Path, *words: str) -> None:
    at = next(index for index, word in enumerate(words) if word.startswith("/") and "python" in word)
    name = os.environ["FAKE_NAME"]
    for stream, flag in ((1, "--output"), (2, "--error")):
        path = words[words.index(flag) + 1]
        path = re.sub("%A_%a|%j", name, path.replace("/%A/", f"/{name.partition('_')[0]}/")).replace("%t", "0")
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    os.execv(words[at], words[at:])


def main() -> None:
    folder, command, *words = sys.argv[1:]
    if command == "scontrol":
        print(f"MaxArraySize            = {MAX_ARRAY + 1}")
        return
    {"sbatch": sbatch, "squeue": squeue, "scancel": scancel, "srun": srun}[command](Path(folder) / "jobs", *words)


if __name__ == "__main__":
    main()
