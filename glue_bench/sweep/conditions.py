"""The conditions KEY=VALUE that choose cells of a plan (`--only`)."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from glue_bench.config.load import Names, listed
from glue_bench.errors import UserError, unknown


def chosen_values(
    only: Names, values_of_keys: Mapping[str, Collection[Any]]
) -> dict[str, set[str]]:
    """The values that conditions KEY=VALUE permit, as texts by their keys, of those that there are.

    A key that is given twice, or with `A,B`, permits either value. Raises UserError for a condition
    that is not KEY=VALUE, an unknown key, and a value that there is not.
    """
    chosen: dict[str, set[str]] = {}
    keys = list(values_of_keys)
    for condition in listed(only):
        key, equals, texts = condition.partition("=")
        if not equals:
            raise UserError(f"--only takes KEY=VALUE, not '{condition}'; keys: {', '.join(keys)}")
        if key not in keys:
            raise unknown("key", key, keys, "--only")
        known = dict.fromkeys(map(str, values_of_keys[key]))
        for text in texts.split(","):
            value = text.lower().replace("-", "") if key == "task" else text
            with suppress(ValueError):  # 2e-5 is 2e-05
                value = str(float(value)) if key == "learning_rate" else value
            if value not in known:
                raise unknown(key, value, known, "--only")
            chosen.setdefault(key, set()).add(value)
    return chosen
