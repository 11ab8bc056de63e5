"""A job is tried again after an error, with less memory or with a higher precision."""

from collections.abc import Callable
from typing import Protocol, Self, TypeVar

from glue_bench.training.memory import release_memory

Result_co = TypeVar("Result_co", covariant=True)
Result = TypeVar("Result")


class Attempt(Protocol[Result_co]):
    """One attempt at a job."""

    def run(self) -> Result_co:
        """Do the job, and return its outcome."""

    def after(self, error: Exception) -> Self:
        """Return the next attempt after an error of this one. Raises the error if there is none."""


def run_attempts(attempt: Attempt[Result], release: Callable[[], None] = release_memory) -> Result:
    """Run an attempt, and the attempts that follow its errors, until one succeeds.

    Args:
        attempt: the first attempt.
        release: called between two attempts, to give back the memory of the failed one.

    Returns:
        The outcome of the attempt that succeeded.
    """
    while True:
        try:
            return attempt.run()
        except Exception as error:
            attempt = attempt.after(error)
        # The memory of a failed attempt is free only after its traceback is gone.
        release()
