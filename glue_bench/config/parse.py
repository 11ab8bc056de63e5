"""The experiment file: YAML to an Experiment; what does not fit is said in one line each."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import (
    ValidationError,
)

from glue_bench.config.experiment import Experiment
from glue_bench.config.pretraining import Pretraining, RateSearch
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
from glue_bench.errors import UserError, unknown
from glue_bench.values import read_mapping


def load_experiment(path: str | Path, data: str | None = None, corpus: Sequence[str] = ()) -> Experiment:
    """Read an experiment file; `data` and `corpus` take the place of the file's own sources.

    Raises:
        UserError: no such file, not YAML, or a key, name or type that does not fit: what and where.
    """
    raw = read_mapping(Path(path), Experiment.model_fields)
    return parse_experiment(with_sources(raw, data, corpus), str(path))


def with_sources(raw: Mapping[str, Any], data: str | None, corpus: Sequence[str]) -> dict[str, Any]:
    """An experiment's plain values with another data source, or another text to pretrain on.

    Raises:
        UserError: a corpus is given to an experiment without pretraining.
    """
    changed = dict(raw)
    if data is not None:
        changed["data"] = data
    if corpus:
        if not isinstance(raw.get("pretraining"), Mapping):
            raise UserError("a corpus is given, but the experiment has no `pretraining`")
        changed["pretraining"] = {**raw["pretraining"], "corpus": list(corpus)}
    return changed


def parse_experiment(raw: Mapping[str, Any], where: str = "experiment") -> Experiment:
    """Validate an experiment given as plain values.

    `checkpoint`, `revision` and `tokenizer` at the top stand for every arm that has none; an arm may be just a
    variant's name, and its `name` defaults to its variant.

    Raises:
        UserError: as `load_experiment`.
    """
    try:
        return Experiment.model_validate(_with_defaults(raw))
    except ValidationError as error:
        lines = [f"{where}: {_explain_one(dict(problem))}" for problem in error.errors(include_url=False)]
        raise UserError("\n".join(lines)) from error


def _with_defaults(raw: Mapping[str, Any]) -> dict[str, Any]:
    filled = dict(raw)
    shared: dict[str, Any] = {key: filled.pop(key) for key in ("checkpoint", "revision", "tokenizer") if key in filled}
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


_SECTIONS: dict[str, type[Section]] = {
    "arms": Arm,
    "scratch": ScratchEncoder,
    "pretraining": Pretraining,
    "finetuning": Finetuning,
    "protocol": Protocol,
    "resources": Resources,
}


def _explain_one(problem: dict[str, Any]) -> str:
    *parents, key = problem["loc"] or ("experiment",)
    place = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        fields = _section_of(parents).model_fields
        keys = [field.alias or name for name, field in fields.items()]
        return str(unknown("key", str(key), keys, ".".join(map(str, parents))))
    if problem["type"] == "missing":
        return f"missing key '{place}'"
    message = problem["msg"].removeprefix("Value error, ")
    given = problem["input"]
    shown = "" if isinstance(given, dict | list) or problem["type"] == "value_error" else f", not {given!r}"
    return f"{place}: {message[0].lower()}{message[1:]}{shown}"


def _section_of(parents: list[Any]) -> type[Section]:
    if parents[-1:] == ["rate_search"]:
        return RateSearch
    if parents[:2] and parents[0] == "finetuning" and "tasks" in parents:
        return TaskSettings
    return _SECTIONS.get(parents[0], Experiment) if parents else Experiment
