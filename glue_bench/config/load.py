"""The experiment file: YAML to an Experiment; what does not fit is said in one line."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from glue_bench.config.experiment import Arm, Experiment, Protocol, Resources, ScratchEncoder, plain_options
from glue_bench.config.settings import SCRATCH, Finetuning, PretrainingSettings, RateSearch, Section, TaskSettings
from glue_bench.errors import QUOTED, UserError, quoted, shortened, unknown
from glue_bench.files import read_file

Names = str | Path | Iterable[str | Path]
SHARED = ("checkpoint", "revision", "tokenizer")
"""Keys at the top of a file that stand for every arm that has none."""
LARGEST_YAML = 2**17
"""Bytes of an experiment file, at most: an arm takes about a hundred."""
SHOWN = 5
"""Mistakes of a file that are told."""
SECTIONS: dict[str, type[Section]] = {
    "arms": Arm,
    "scratch": ScratchEncoder,
    "pretraining": PretrainingSettings,
    "finetuning": Finetuning,
    "protocol": Protocol,
    "resources": Resources,
}


def load_experiment(
    given: str | Path | Mapping[str, Any] | Experiment,
    *,
    data: str | None = None,
    corpus: Names = (),
    plugins: Names = (),
    limit: int | None = None,
) -> Experiment:
    """An experiment from its file, from what such a file holds, or as it is.

    `data`, `corpus` and `limit` take the place of the experiment's own; `plugins` are added to its own. In a file,
    `checkpoint`, `revision` and `tokenizer` at the top stand for every arm that has no checkpoint of its own; an arm
    may be just a variant's name, and its `name` is by default its variant.

    Raises:
        UserError: no such file, not YAML, a key, name or type that does not fit (what and where), or a corpus for an
            experiment without pretraining.
    """
    where = str(given) if isinstance(given, str | Path) else "experiment"
    values = _values(given, where)
    values |= {key: value for key, value in {"data": data, "limit": limit}.items() if value is not None}
    if corpus:
        if not isinstance(values.get("pretraining"), Mapping):
            raise UserError("a corpus is given, but the experiment has no `pretraining`")
        values["pretraining"] = {**values["pretraining"], "corpus": _listed(corpus)}
    try:
        experiment = Experiment.model_validate(_with_full_arms(values))
        return experiment.model_copy(update={"plugins": [*experiment.plugins, *_listed(plugins)]})
    except ValidationError as error:
        raise UserError(f"{where}: {_mistakes(error)}") from error


def _listed(names: Names) -> list[str]:
    return [str(names)] if isinstance(names, str | Path) else [*map(str, names)]


def _values(given: Any, where: str) -> dict[str, Any]:
    if isinstance(given, Experiment):
        return given.model_dump(by_alias=True)
    if isinstance(given, str | Path):
        try:
            given = parse_yaml(read_file(Path(given), LARGEST_YAML), where)
        except OSError as error:
            raise UserError(f"cannot read experiment file '{given}': {error.strerror}") from error
    if not isinstance(given, Mapping):
        kind = f"{where}: no experiment but a value of type {type(given).__name__}"
        raise UserError(f"{kind}; give a YAML file or its content, a mapping with keys {', '.join(_keys(Experiment))}")
    return dict(given)


def parse_yaml(text: str | bytes, where: str) -> Any:
    """The plain value of a YAML 1.2 text, in which no key is given twice.

    Raises:
        UserError: it is none, or is nested too deeply.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return YAML(typ="safe", pure=True).load(text.decode() if isinstance(text, bytes) else text)
    except RecursionError as error:
        raise UserError(f"{where}: not valid YAML: it is nested too deeply") from error
    except MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UserError(f"{where}: not valid YAML: {error.problem or error.context}{line}") from error
    except (YAMLError, ValueError, TypeError) as error:  # ValueError: not UTF-8, or a date that does not exist
        raise UserError(f"{where}: not valid YAML: {error}") from error


def _with_full_arms(values: dict[str, Any]) -> dict[str, Any]:
    """The values with every arm as a mapping that has a checkpoint."""
    shared: dict[str, Any] = {key: values.pop(key) for key in SHARED if key in values}
    pretraining = values.get("pretraining")
    if isinstance(pretraining, Mapping) and pretraining.get("from", SCRATCH) == SCRATCH:
        shared = {"checkpoint": SCRATCH} | shared
    arms = values.get("arms")
    return values | {"arms": [_full_arm(arm, shared) for arm in arms]} if isinstance(arms, list) else values


def _full_arm(arm: Any, shared: Mapping[str, Any]) -> Any:
    arm = {"variant": arm} if isinstance(arm, str) else arm
    if not isinstance(arm, dict):
        return arm
    # A revision or tokenizer belongs to the checkpoint beside which it stands.
    return {"name": arm.get("variant"), **({} if "checkpoint" in arm else shared), **arm}


def _mistakes(error: ValidationError) -> str:
    problems = error.errors(include_url=False)
    if len(problems) == 1:
        return _mistake(dict(problems[0]))
    told = [f"({n}) {shortened(_mistake(dict(one)), 2 * QUOTED)}" for n, one in enumerate(problems[:SHOWN], 1)]
    more = f" and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
    return f"{len(problems)} mistakes: {' '.join(told)}{more}"


def _mistake(problem: dict[str, Any]) -> str:
    *parents, key = problem["loc"] or ("experiment",)
    place = ".".join(map(str, problem["loc"]))
    if problem["type"] == "extra_forbidden":
        return _unknown_key(str(key), parents)
    if problem["type"] == "missing":
        return f"missing key '{place}'"
    message, given = problem["msg"].removeprefix("Value error, "), problem["input"]
    shown = "" if isinstance(given, dict | list) or problem["type"] == "value_error" else f", not {quoted(given)}"
    return f"{place}{': ' * bool(place)}{message[0].lower()}{message[1:]}{shown}"


def _unknown_key(key: str, parents: list[Any]) -> str:
    """The nearest key of the section, or the other section that has this one."""
    section = SECTIONS.get(parents[0], Experiment) if parents else Experiment
    section = TaskSettings if "tasks" in parents else RateSearch if "rate_search" in parents else section
    place = ".".join(map(str, parents))
    elsewhere = [name for name, other in SECTIONS.items() if other is not section and key in _keys(other)]
    if elsewhere and not get_close_matches(key, _keys(section), n=1):
        return f"unknown key '{key}'{' in ' * bool(place)}{place}; it belongs to {elsewhere[0]}"
    return str(unknown("key", key, _keys(section), place))


def _keys(section: type[Section]) -> list[str]:
    """All keys of a section, as the file spells them, and those that are short for others."""
    shared = SHARED if section is Experiment else ()
    return [*(field.alias or name for name, field in section.model_fields.items()), *section.short, *shared]


def key_value(option: str, text: str, keys: Sequence[str] = ()) -> tuple[str, str]:
    """Key and value of a KEY=VALUE given to an option, whose key is one of `keys` if there are any.

    Raises:
        UserError: not KEY=VALUE, or an unknown key.
    """
    key, _, value = text.partition("=")
    if not key or not value:
        raise UserError(f"{option} takes KEY=VALUE, not '{text}'{'; keys: ' * bool(keys)}{', '.join(keys)}")
    if keys and key not in keys:
        raise unknown("key", key, keys, option)
    return key, value


def parse_options(given: Iterable[str], option: str = "--option") -> dict[str, Any]:
    """Options of a variant, or what else an `option` takes, from KEY=VALUE; values are as an experiment file has them.

    Raises:
        UserError: not KEY=VALUE, no value of an option, or a key given twice.
    """
    options: dict[str, Any] = {}
    for text in given:
        key, value = key_value(option, text)
        if key in options:
            raise UserError(f"{option} {key} is given twice")
        options[key] = parse_yaml(value, f"{option} {text}")
    try:
        return plain_options(options)
    except ValueError as error:
        raise UserError(f"{option} {error}") from error


def changed_protocol(protocol: Protocol, changes: Iterable[str]) -> Protocol:
    """A protocol with some of its choices, given as KEY=VALUE, changed. Contrasts are named beforehand, in the file.

    Raises:
        UserError: not KEY=VALUE, an unknown key, or a value that is not one of its choices.
    """
    for change in changes:
        key, value = key_value("--protocol", change, [key for key in Protocol.model_fields if key != "contrasts"])
        try:
            protocol = Protocol.model_validate(protocol.model_dump() | {key: value})
        except ValidationError as error:
            choices = error.errors()[0]["ctx"]["expected"]
            raise UserError(f"--protocol {key}: '{value}' is not one of {choices}") from error
    return protocol
