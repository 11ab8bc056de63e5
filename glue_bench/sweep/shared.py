"""What the steps of one sweep share."""

from dataclasses import dataclass

from rich.console import Console

from glue_bench.records.store import Store
from glue_bench.sweep.claims import Claims
from glue_bench.sweep.events import Observer
from glue_bench.sweep.kept import Kept
from glue_bench.training.inputs import Inputs


@dataclass(frozen=True)
class Shared:
    """What cells and arms start from, where results go, what is claimed, who is told, and which models stay."""

    inputs: Inputs
    store: Store
    claims: Claims
    console: Console
    observer: Observer
    kept: Kept
