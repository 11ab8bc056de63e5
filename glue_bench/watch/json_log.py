"""A sweep's events for machines: one JSON object per line."""

import json
import os
import socket
import uuid
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from glue_bench.errors import UserError
from glue_bench.sweep import events
from glue_bench.sweep.jobs import FinishedPretraining, Job, PlannedCell
from glue_bench.terminal import tell
from glue_bench.training.finetune import Outcome
from glue_bench.watch.tally import Tally


def check_log(path: Path) -> None:
    """That a log can be written there; nothing is.

    Raises:
        UserError: it cannot.
    """
    reason = None
    if path.is_dir():
        reason = "it is a folder"
    elif not path.parent.is_dir():
        reason = f"no folder '{path.parent}'; create it first"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        reason = "Permission denied"
    if reason:
        raise UserError(f"cannot write the log '{path}': {reason}")


class JsonLog:
    """An observer that appends to a file. Asks a tally that has heard before it for the counts.

    A line goes out in one write to the file's end, so that several sweeps may share a log. One that cannot be written
    is lost, which is said once; the sweep and later lines go on.
    """

    def __init__(self, path: str | Path, tally: Tally, console: Console) -> None:
        """Open the file for appending.

        Raises:
            UserError: its folder does not exist, or it cannot be written.
        """
        self.path, self.tally, self.console = Path(path), tally, console
        self.sweep = uuid.uuid4().hex[:12]
        self._workers: dict[str, str] = {}
        self._torn, self._said = False, False
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        except OSError as error:
            raise UserError(f"cannot write the log '{path}': {error.strerror}") from error

    def __str__(self) -> str:
        return f"the log '{self.path}'"

    def hear(self, event: events.Event) -> None:
        """Append its line."""
        name, values = self._line(event)
        stamp = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._append({"time": stamp, "event": name, "sweep": self.sweep, **values})
        if isinstance(event, events.SweepEnded):
            os.close(self._file)

    def _append(self, values: dict[str, Any]) -> None:
        line = (json.dumps(values, ensure_ascii=False) + "\n").encode()
        if self._torn:  # this line must not continue what may be there of the last one
            line = b"\n" + line
        try:
            written = os.write(self._file, line)
            if written < len(line):
                raise OSError(None, "no room for a whole line")
            self._torn = False
        except OSError as error:
            self._torn = True
            if not self._said:
                self._said = True
                message = f"cannot write to {self}: {error.strerror}; the sweep goes on, lines of the log are missing"
                tell(self.console, message)

    def _line(self, event: events.Event) -> tuple[str, dict[str, Any]]:
        match event:
            case events.SweepStarted():
                return "sweep_started", self._started(event)
            case events.JobStarted(job, worker):
                self._workers[job.id] = worker
                return f"{job.kind}_started", {**_named(job), "worker": worker}
            case events.PretrainingPoint(job, point):
                return "pretraining_point", {**_named(job), **point.document()}
            case events.JobEnded(job):
                return self._ended(event)
            case events.JobElsewhere(job, error):
                return f"{job.kind}_elsewhere", {**_named(job), "error": error, **self._counts()}
            case events.SweepInterrupted(cause):
                return "sweep_interrupted", {"cause": cause, **self._counts()}
            case events.SweepEnded(error):
                return "sweep_ended", {"error": error, **self._counts()}

    def _started(self, begun: events.SweepStarted) -> dict[str, Any]:
        return {
            "experiment": begun.experiment,
            "folder": str(begun.folder),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "glue_bench": version("glue-bench"),
            "workers": begun.workers,
            "cells": len(begun.cells),
            "done_before": len(begun.before),
            "pretraining": [job.id for job in begun.pretraining],
        }

    def _ended(self, event: events.JobEnded) -> tuple[str, dict[str, Any]]:
        job, result = event.job, event.result
        named = {**_named(job), "worker": self._workers.pop(job.id, None)}
        if isinstance(result, Outcome):
            record = result.record
            more = {
                "seconds": record.seconds.total,
                "tokens": record.tokens.training,
                "scores": record.scores,
                "collapsed": record.collapsed,
            }
        elif isinstance(result, FinishedPretraining):
            told = {key: getattr(result.record, key) for key in ("seconds", "tokens", "validation_loss")}
            more = told | {"error": None}
        else:
            more = {"error": result.error}
        ended = "failed" if event.error else "finished"
        return f"{job.kind}_{ended}", {**named, **more, **self._counts()}

    def _counts(self) -> dict[str, Any]:
        return {"counts": asdict(self.tally.total_counts)}


def _named(job: Job) -> dict[str, Any]:
    """A cell as plan.json lists it, its id as `cell`; a pretraining by its id, arm, seed and rate."""
    if isinstance(job, PlannedCell):
        return {"cell": job.id, **job.asked.model_dump(exclude={"cell_id"})}
    settings = job.settings
    rate = None if settings.rate_search else settings.learning_rate
    return {"pretraining": job.id, "arm": job.arm, "pretraining_seed": settings.seed, "learning_rate": rate}
