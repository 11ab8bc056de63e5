"""What the steps of one sweep share."""

from dataclasses import dataclass

from rich.console import Console

from glue_bench.records.store import Store
from glue_bench.sweep.claims import Claims
from glue_bench.sweep.events import Observer
from glue_bench.training.inputs import Inputs


@dataclass(frozen=True)
class Shared:
    """What cells and arms start from, where results go, what is claimed, and who is told."""

    inputs: Inputs
    store: Store
    claims: Claims
    console: Console
    observer: Observer
