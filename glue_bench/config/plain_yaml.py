"""YAML 1.2 as plain values, with one error in one line."""

from typing import Any

from glue_bench.errors import UserError


def parse_yaml(text: str | bytes, where: str) -> Any:
    """The plain value of a YAML 1.2 text, in which no key is given twice. Raises UserError for any other text."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return YAML(typ="safe", pure=True).load(text.decode() if isinstance(text, bytes) else text)
    except (
        YAMLError,
        ValueError,
        TypeError,
        RecursionError,
    ) as error:  # ValueError: not UTF-8, or no such date
        problem = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        if isinstance(error, MarkedYAMLError):
            line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
            problem = f"{error.problem or error.context}{line}"
        raise UserError(f"{where}: not valid YAML: {problem}") from error
