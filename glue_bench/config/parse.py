"""The experiment file: YAML to an Experiment; what does not fit is said in one line each."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from glue_bench.config.experiment import Experiment
from glue_bench.config.pretraining import SHORT, Pretraining, RateSearch
from glue_bench.config.protocol import Protocol
from glue_bench.config.sections import (
    SCRATCH,
    Arm,
    Finetuning,
    Resources,
    ScratchEncoder,
    Section,
    TaskSettings,
)
from glue_bench.errors import QUOTED, UserError, quoted, shortened, unknown
from glue_bench.values import check_values, listed, read_mapping

SHARED = ("checkpoint", "revision", "tokenizer")
"""Keys at the top of a file that stand for every arm that has none."""


def load_experiment(
    path: str | Path, data: str | None = None, corpus: Sequence[str] = (), limit: int | None = None
) -> Experiment:
    """Read an experiment file; `data`, `corpus` and `limit` take the place of the file's own.

    Raises:
        UserError: no such file, not YAML, or a key, name or type that does not fit: what and where.
    """
    raw = read_mapping(Path(path), _keys(Experiment))
    return parse_experiment(with_sources(raw, data, corpus, limit), str(path))


def with_sources(
    raw: Mapping[str, Any], data: str | None, corpus: Sequence[str], limit: int | None = None
) -> dict[str, Any]:
    """An experiment's plain values with another data source or less of it, or another text to pretrain on.

    Raises:
        UserError: a corpus is given to an experiment without pretraining.
    """
    changed = _as_mapping(raw, "experiment")
    if data is not None:
        changed["data"] = data
    if limit is not None:
        changed["limit"] = limit
    if corpus:
        if not isinstance(raw.get("pretraining"), Mapping):
            raise UserError("a corpus is given, but the experiment has no `pretraining`")
        changed["pretraining"] = {**raw["pretraining"], "corpus": listed(corpus)}
    return changed


def parse_experiment(raw: Mapping[str, Any], where: str = "experiment") -> Experiment:
    """Validate an experiment given as plain values.

    `checkpoint`, `revision` and `tokenizer` at the top stand for every arm that has none; an arm may be just a
    variant's name, and its `name` defaults to its variant.

    Raises:
        UserError: as `load_experiment`.
    """
    given = _as_mapping(raw, where)
    try:
        check_values(given)
        return Experiment.model_validate(_with_defaults(given))
    except ValidationError as error:
        raise UserError(_explain(error, where)) from error
    except ValueError as error:
        raise UserError(f"{where}: {error}") from error


def _as_mapping(raw: Any, where: str) -> dict[str, Any]:
    if not isinstance(raw, Mapping):
        raise UserError(f"{where}: {quoted(raw)} is no experiment; give a YAML file, or its content as a mapping")
    return dict(raw)


def _with_defaults(raw: Mapping[str, Any]) -> dict[str, Any]:
    filled = dict(raw)
    shared: dict[str, Any] = {key: filled.pop(key) for key in SHARED if key in filled}
    pretraining = filled.get("pretraining")
    if isinstance(pretraining, dict) and pretraining.get("from", SCRATCH) == SCRATCH:
        shared = {"checkpoint": SCRATCH} | shared
    if isinstance(filled.get("arms"), list):
        filled["arms"] = [_full_arm(arm, shared) for arm in filled["arms"]]
    return filled


def _full_arm(arm: Any, shared: Mapping[str, Any]) -> Any:
    if isinstance(arm, str):
        arm = {"variant": arm}
    if not isinstance(arm, dict):
        return arm
    # A revision or tokenizer belongs to the checkpoint beside which it stands.
    inherited = {} if "checkpoint" in arm else shared
    return {"name": arm.get("variant"), **inherited, **arm}


SHOWN = 5
_SHORT: dict[type[Section], Iterable[str]] = {Experiment: SHARED, Pretraining: SHORT}
_SECTIONS: dict[str, type[Section]] = {
    "arms": Arm,
    "scratch": ScratchEncoder,
    "pretraining": Pretraining,
    "finetuning": Finetuning,
    "protocol": Protocol,
    "resources": Resources,
}


def _explain(error: ValidationError, where: str) -> str:
    said = [shortened(_explain_one(dict(problem)), 2 * QUOTED) for problem in error.errors(include_url=False)]
    if len(said) == 1:
        return f"{where}: {_explain_one(dict(error.errors(include_url=False)[0]))}"
    more = f" and {len(said) - SHOWN} more" if len(said) > SHOWN else ""
    listed = " ".join(f"({number}) {one}" for number, one in enumerate(said[:SHOWN], 1))
    return f"{where}: {len(said)} mistakes: {listed}{more}"


def _explain_one(problem: dict[str, Any]) -> str:
    *parents, key = problem["loc"] or ("experiment",)
    place = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return _unknown_key(str(key), parents)
    if problem["type"] == "missing":
        return f"missing key '{place}'"
    message = problem["msg"].removeprefix("Value error, ")
    given = problem["input"]
    shown = "" if isinstance(given, dict | list) or problem["type"] == "value_error" else f", not {quoted(given)}"
    return f"{place}{': ' * bool(place)}{message[0].lower()}{message[1:]}{shown}"


def _unknown_key(key: str, parents: list[Any]) -> str:
    """The nearest key of the section, or the other section that has this one."""
    mine = _SECTIONS.get(parents[0], Experiment) if parents else Experiment
    if parents[-1:] == ["rate_search"]:
        mine = RateSearch
    elif parents[:1] == ["finetuning"] and "tasks" in parents:
        mine = TaskSettings
    elsewhere = [name for name, section in _SECTIONS.items() if section is not mine and key in _keys(section)]
    if elsewhere and not get_close_matches(key, _keys(mine), n=1):
        return f"unknown key '{key}'{' in ' * bool(parents)}{'.'.join(map(str, parents))}; it belongs to {elsewhere[0]}"
    return str(unknown("key", key, _keys(mine), ".".join(map(str, parents))))


def _keys(section: type[Section]) -> list[str]:
    """All keys of a section, as the file spells them, and those that are short for others."""
    return [*(field.alias or name for name, field in section.model_fields.items()), *_SHORT.get(section, ())]
