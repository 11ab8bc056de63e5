"""YAML 1.2 as plain values, with one error in one line."""

from typing import Any

from glue_bench.errors import UserError


def parse_yaml(text: str | bytes, where: str) -> Any:
    """Read the plain value of a YAML 1.2 text.

    Raises UserError for a text that is not YAML, and for a key that is given twice.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    reader = YAML(typ="safe", pure=True)
    faults = (
        YAMLError,
        ValueError,
        TypeError,
        RecursionError,
    )  # ValueError: not UTF-8, no such date
    try:
        return reader.load(text.decode() if isinstance(text, bytes) else text)
    except faults as error:
        problem = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        if isinstance(error, MarkedYAMLError):
            line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
            problem = f"{error.problem or error.context}{line}"
        raise UserError(f"{where}: not valid YAML: {problem}") from error
