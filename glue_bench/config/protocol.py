"""How many runs become one number: what the tables of an experiment report."""

from collections.abc import Iterable
from typing import Literal

from pydantic import ValidationError

from glue_bench.config.sections import Section
from glue_bench.errors import UserError, unknown

HELD_OUT = "held_out"


class Protocol(Section):
    """How a score is chosen among rates and epochs, and made from seeds. No cell is run anew for another protocol.

    `rate`: the learning rate of the best mean or median over seeds, or "fixed", the only one there is. `seeds`: what is
    reported of the seeds. `epoch`: the last one, or the best one of each run, which is optimistic where the set that
    chooses it is also the one that is reported. `choose_on`: the set that chooses rate and epoch: the validation set
    as in the papers, or the slice held out of train, which leaves the validation set clean.
    """

    rate: Literal["best-mean", "best-median", "fixed"] = "best-mean"
    seeds: Literal["mean", "median"] = "mean"
    epoch: Literal["last", "best"] = "last"
    choose_on: Literal["validation", "held_out"] = "validation"

    @property
    def rate_statistic(self) -> str:
        """The statistic over seeds by which rates compete: "mean" or "median"."""
        return "median" if self.rate == "best-median" else "mean"

    @property
    def optimistic(self) -> bool:
        """Whether each run reports the epoch that was best on the very set that is reported."""
        return self.epoch == "best" and self.choose_on == "validation"


def changed_protocol(protocol: Protocol, changes: Iterable[str]) -> Protocol:
    """A protocol with some of its choices, given as KEY=VALUE, changed.

    Raises:
        UserError: not KEY=VALUE, an unknown key, or a value that is not one of its choices.
    """
    values = protocol.model_dump()
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals:
            raise UserError(f"--protocol takes KEY=VALUE, not '{change}'; keys: {', '.join(values)}")
        if key not in values:
            raise unknown("key", key, values, "--protocol")
        try:
            protocol = Protocol.model_validate(protocol.model_dump() | {key: value})
        except ValidationError as error:
            choices = error.errors()[0]["ctx"]["expected"]
            raise UserError(f"--protocol {key}: '{value}' is not one of {choices}") from error
    return protocol
