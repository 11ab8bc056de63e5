"""Plain values: YAML as people mean it, options on the command line, names of blocks, durations in words."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from glue_bench.errors import UserError

BlockKey = tuple[str, str]
BLOCK = ["origin", "shape"]
"""The columns of every table whose values, a BlockKey, name a block: arms are ranked only within one."""


def parse_options(given: Iterable[str]) -> dict[str, Any]:
    """Options of a variant from `KEY=VALUE`, each value as an experiment file would have it.

    Raises:
        UserError: not KEY=VALUE, a value that is not YAML or that JSON has not, or a key given twice.
    """
    options: dict[str, Any] = {}
    for text in given:
        key, _, value = text.partition("=")
        if not key or not value:
            raise UserError(f"--option takes KEY=VALUE, not '{text}'")
        if key in options:
            raise UserError(f"--option {key} is given twice")
        try:
            options[key] = yaml.load(value, Loader=Loader)
            json.dumps(options[key], allow_nan=False)  # as config.json will have it; YAML knows dates too
        except (yaml.YAMLError, ValueError, TypeError) as error:
            raise UserError(f"--option {text}: no value of an option: {' '.join(str(error).split())}") from error
    return options


def read_mapping(path: Path, keys: Iterable[str]) -> dict[str, Any]:
    """The top-level mapping of an experiment file, whose `keys` are named where there is none.

    Raises:
        UserError: the file cannot be read, is not YAML, or holds no mapping.
    """
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), Loader=Loader)
    except OSError as error:
        raise UserError(f"cannot read experiment file '{path}': {error.strerror}") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: not UTF-8, or a date that does not exist
        raise UserError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(raw, dict):
        raise UserError(f"{path}: expected an experiment with keys {', '.join(keys)}")
    return raw


def duration(seconds: float) -> str:
    """As people say it: `40 s`, `12 min`, `3 h 05 min`, `2 d 4 h`."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"


class Loader(yaml.SafeLoader):
    """YAML as people mean it: 2e-5 is a number (YAML 1.1 reads text), and a key given twice is a mistake."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = sorted({str(key) for key in keys if keys.count(key) > 1})
        if twice:
            raise yaml.YAMLError(f"{', '.join(twice)} given twice, line {node.start_mark.line + 1}")
        return super().construct_mapping(node, deep)


Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$"),
    list("-+.0123456789"),
)
