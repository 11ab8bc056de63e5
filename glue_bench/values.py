"""Plain values: YAML as people mean it, options on the command line, names of blocks, durations in words."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from glue_bench.errors import UserError, plain, quoted
from glue_bench.files import read_file

BlockKey = tuple[str, str]
LARGEST_YAML = 2**17
"""Bytes of an experiment file, at most: an arm takes about a hundred."""
DEEPEST, LONGEST, MOST = 20, 4096, 10_000
"""How deep an experiment may be nested, how long its texts may be (no path is longer), how many values it may have."""
BLOCK = ["origin", "shape"]
"""The columns of every table whose values, a BlockKey, name a block: arms are ranked only within one."""


def listed(names: str | Path | Iterable[str | Path]) -> list[str]:
    """Names as a list of texts, also of one that is given alone."""
    return [str(names)] if isinstance(names, str | Path) else list(map(str, names))


def series(names: Iterable[str]) -> str:
    """Names as a sentence has them: "a", "a and b", "a, b and c"; nothing for none."""
    *first, last = [*names] or [""]
    return f"{', '.join(first)} and {last}" if first else last


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
        raw = yaml.load(read_file(path, LARGEST_YAML).decode(), Loader=Loader)
    except OSError as error:
        raise UserError(f"cannot read experiment file '{path}': {error.strerror}") from error
    except RecursionError as error:
        raise UserError(f"{path}: nested too deeply; an experiment has at most {DEEPEST} levels") from error
    except (yaml.YAMLError, ValueError, TypeError) as error:  # ValueError: not UTF-8, or a date that does not exist
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


def check_values(tree: Any, depth: int = 0) -> int:
    """Refuse what no experiment has, whatever its keys: it returns how many values there are.

    Raises:
        ValueError: too deep (or within itself), too many values, or a text or a number that nothing could be done with.
    """
    if isinstance(tree, str) and (len(tree) > LONGEST or plain(tree) != tree or "\n" in tree):
        raise ValueError(f"{quoted(tree)} is too long, or has characters that cannot be printed")
    if isinstance(tree, int) and abs(tree) >= 2**63:
        raise ValueError(f"{quoted(tree)} is too large a number")
    if depth > DEEPEST:
        raise ValueError(f"nested too deeply; an experiment has at most {DEEPEST} levels")
    count = 1
    for one in [*tree.keys(), *tree.values()] if isinstance(tree, Mapping) else tree if isinstance(tree, list) else ():
        count += check_values(one, depth + 1)
        if count > MOST:
            raise ValueError(f"more than {MOST:,} values")
    return count


class Loader(yaml.SafeLoader):
    """YAML as people mean it: the numbers of YAML 1.2, and a key given twice is a mistake.

    YAML 1.1, which PyYAML reads, takes 010 for eight, 1:30 for ninety, and 2e-5 for text.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = sorted(key for key, count in Counter(map(str, keys)).items() if count > 1)
        if twice:
            raise yaml.YAMLError(f"{', '.join(twice)} given twice, line {node.start_mark.line + 1}")
        return super().construct_mapping(node, deep)


def _whole_number(loader: Loader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    bases = {"0o": 8, "0x": 16}
    return int(text, 10) if text[:2] not in bases else int(text[2:], bases[text[:2]])


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag.rpartition(":")[2] not in ("int", "float")]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Loader.add_constructor("tag:yaml.org,2002:int", _whole_number)
# YAML 1.2.2, 10.3.2
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$"), list("-+0123456789")
)
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
    list("-+.0123456789"),
)
