"""How an experiment is run. Nothing here changes what a cell is, or its id."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from glue_bench.errors import UserError, quoted, unknown
from glue_bench.remote import refuse_url

AGAIN = ("recipe",)
AUTO = "auto"
MOST_WORKERS = 4096


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What the command line, the library and a sweep know of how to run an experiment.

    Results go to `results/<experiment>`. `only` is a list of KEY=VALUE conditions on cells; arms without a chosen cell
    are not pretrained. With `dry_run` all is checked that a run checks, and nothing is run or written. `workers`
    processes of this machine ("auto": as many as it has room for) share the cells, or those of the Ray cluster at
    `address` ("auto" or HOST:PORT); without either they run in this process, one after another. `device` is auto, cpu,
    cuda or mps, `precision` auto (bf16 where the device is faster in it), float32 or bf16. Losses and scores
    go to the trackers `track`: tensorboard, wandb, mlflow, trackio. Cells that an older recipe has run count as done;
    with `again="recipe"` they are run anew.

    Raises:
        UserError: results nowhere or behind a URL, a number of workers that is none, another value of `again`, or an
            address that is none.
    """

    results: str | Path = "runs"
    only: Iterable[str] = ()
    dry_run: bool = False
    workers: int | str | None = None
    address: str | None = None
    device: str = "auto"
    precision: str = "auto"
    track: Iterable[str] = ()
    again: str | None = None

    def __post_init__(self) -> None:
        for name in ("only", "track"):  # an iterator could be read only once
            given: str | Iterable[str] = getattr(self, name)
            object.__setattr__(self, name, (given,) if isinstance(given, str) else tuple(given))
        if not isinstance(self.results, str | Path) or not str(self.results):
            raise UserError(f"results {quoted(self.results)}: give a folder")
        if self.workers not in (None, AUTO) and not (type(self.workers) is int and 1 <= self.workers <= MOST_WORKERS):
            raise UserError(f"workers {quoted(self.workers)}: give a whole number from 1 to {MOST_WORKERS}, or {AUTO}")
        refuse_url(self.results)
        if self.address is not None:
            check_address(self.address)
        if self.again is not None and self.again not in AGAIN:
            raise unknown("value", self.again, AGAIN, "--again")

    @property
    def processes(self) -> int | None:
        """`workers` as a number, which `sweep` settles before anything else; None without `workers`."""
        assert not isinstance(self.workers, str), "not settled yet"
        return self.workers

    @property
    def side_by_side(self) -> bool:
        """Whether cells run in processes of their own."""
        return bool(self.workers or self.address)


def check_address(address: str) -> None:
    """Refuse what cannot be the address of a Ray cluster.

    Raises:
        UserError: neither "auto" nor HOST:PORT.
    """
    host, _, port = address.rpartition(":")
    if address != "auto" and not (host and "/" not in host and port.isdecimal() and 0 < int(port[:6]) < 2**16):
        raise UserError(f"--address is `auto` or HOST:PORT with a port from 1 to 65535, not {quoted(address)}")
