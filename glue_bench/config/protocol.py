"""How many runs become one number: what the tables of an experiment report."""

from collections.abc import Iterable
from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationError

from glue_bench.config.sections import Brief, Section
from glue_bench.errors import UserError, unknown

HELD_OUT = "held_out"


class Protocol(Brief, Section):
    """How a score is chosen among rates and epochs, and made from seeds. No cell is run anew for another protocol.

    `rate`: the learning rate of the best mean or median over seeds, or "fixed", the only one there is. `seeds`: what is
    reported of the seeds. `epoch`: the last one, or the best one of each run, which is optimistic where the set that
    chooses it is also the one that is reported. `choose_on`: the set that chooses rate and epoch: the validation set
    as in the papers, or the slice held out of train, which leaves the validation set clean.

    `reference` is the arm that all others are compared with; unless it is named, the arm whose variant is `add`, else
    the first. `primary` is the measure that decides: the average of the tasks, or the validation loss of pretraining.
    `contrasts` are pairs of arms whose difference is asked for beforehand, each the first arm less the second.
    """

    # What says who is compared: plans that do not need it stay as they were.
    left_out: ClassVar = frozenset({"reference", "primary", "contrasts"})

    rate: Literal["best-mean", "best-median", "fixed"] = "best-mean"
    seeds: Literal["mean", "median"] = "mean"
    epoch: Literal["last", "best"] = "last"
    choose_on: Literal["validation", "held_out"] = "validation"
    reference: str | None = None
    primary: Literal["average", "validation_loss"] = "average"
    contrasts: list[Annotated[list[str], Field(min_length=2, max_length=2)]] = Field([])

    @property
    def rate_statistic(self) -> str:
        """The statistic over seeds by which rates compete: "mean" or "median"."""
        return "median" if self.rate == "best-median" else "mean"

    @property
    def optimistic(self) -> bool:
        """Whether each run reports the epoch that was best on the very set that is reported."""
        return self.epoch == "best" and self.choose_on == "validation"


def changed_protocol(protocol: Protocol, changes: Iterable[str]) -> Protocol:
    """A protocol with some of its choices, given as KEY=VALUE, changed. Contrasts are named beforehand, in the file.

    Raises:
        UserError: not KEY=VALUE, an unknown key, or a value that is not one of its choices.
    """
    keys = [key for key in Protocol.model_fields if key != "contrasts"]
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals:
            raise UserError(f"--protocol takes KEY=VALUE, not '{change}'; keys: {', '.join(keys)}")
        if key not in keys:
            raise unknown("key", key, keys, "--protocol")
        try:
            protocol = Protocol.model_validate(protocol.model_dump() | {key: value})
        except ValidationError as error:
            choices = error.errors()[0]["ctx"]["expected"]
            raise UserError(f"--protocol {key}: '{value}' is not one of {choices}") from error
    return protocol
