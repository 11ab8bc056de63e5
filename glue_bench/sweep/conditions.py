"""The conditions KEY=VALUE that choose cells of a plan (`--only`)."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from glue_bench.config.load import Names, as_list
from glue_bench.errors import UserError, unknown


def chosen_values(
    only: Names, values_of_keys: Mapping[str, Collection[Any]]
) -> dict[str, set[str]]:
    """Read the conditions KEY=VALUE that choose cells.

    A key that is given twice, or with `A,B`, permits either value.

    Args:
        only: the conditions.
        values_of_keys: the values that cells have, by key.

    Returns:
        The values that are permitted, as texts, by key.

    Raises:
        UserError: a condition is not KEY=VALUE, a key is unknown, or no cell has a value.
    """
    chosen: dict[str, set[str]] = {}
    keys = list(values_of_keys)
    for condition in as_list(only):
        key, equals, texts = condition.partition("=")
        if not equals:
            raise UserError(f"--only takes KEY=VALUE, not '{condition}'; keys: {', '.join(keys)}")
        if key not in keys:
            raise unknown("key", key, keys, "--only")
        values = dict.fromkeys(map(str, values_of_keys[key]))
        for text in texts.split(","):
            value = _as_in_cells(key, text)
            if value not in values:
                raise unknown(key, value, values, "--only")
            chosen.setdefault(key, set()).add(value)
    return chosen


def _as_in_cells(key: str, text: str) -> str:
    """Write a value as cells have it: tasks in small letters without hyphens, 2e-5 as 2e-05."""
    if key == "task":
        return text.lower().replace("-", "")
    if key == "learning_rate":
        with suppress(ValueError):
            return str(float(text))
    return text
