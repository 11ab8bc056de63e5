"""TABLES: published GLUE tables by name, each a CSV as printed and an entry of tables.yaml with its conventions."""

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import yaml

from glue_bench.reporting.papers.published import Counterpart, Published
from glue_bench.tables.averages import AVERAGES
from glue_bench.values import Loader


def _published(counterparts: Mapping[str, Any], convention: str | None = None, **facts: Any) -> Published:
    return Published(
        **_tuples(facts),
        convention=AVERAGES[convention] if convention else None,
        counterparts={
            label: Counterpart(**mine | {"options": _tuples(mine.get("options", {}))})
            for label, mine in counterparts.items()
        },
    )


def _tuples(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in facts.items()}


TABLES: dict[str, Published] = {
    name: _published(**facts)
    for name, facts in yaml.load((files(__package__) / "tables.yaml").read_text(encoding="utf-8"), Loader).items()
}
