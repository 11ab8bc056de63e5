"""The experiment file: YAML to an Experiment; what does not fit is said in one line."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from glue_bench.config.experiment import (
    Arm,
    Experiment,
    Protocol,
    Resources,
    ScratchEncoder,
    plain_options,
)
from glue_bench.config.plain_yaml import parse_yaml
from glue_bench.config.recipes import with_recipe
from glue_bench.config.settings import (
    SCRATCH,
    Finetuning,
    PretrainingSettings,
    RateSearch,
    Section,
    TaskSettings,
)
from glue_bench.errors import QUOTED, MistakesError, UserError, quoted, shortened, unknown
from glue_bench.files import read_file

Names = str | Path | Iterable[str | Path]
SHARED = (
    "checkpoint",
    "revision",
    "tokenizer",
)  # keys at the top of a file that stand for every arm that has none
LARGEST_YAML = 2**17  # bytes of an experiment file: an arm takes about a hundred
SHOWN = 5  # mistakes of a file that are told
SECTIONS: dict[str | int, type[Section]] = {
    "arms": Arm,
    "scratch": ScratchEncoder,
    "pretraining": PretrainingSettings,
    "finetuning": Finetuning,
    "protocol": Protocol,
    "resources": Resources,
    "rate_search": RateSearch,
    "tasks": TaskSettings,
}


TOP_SECTIONS = ("finetuning", "pretraining", "scratch", "protocol", "resources")
"""The sections that stand at the top of a file and are no lists."""
NEAR = 0.9  # of get_close_matches: a plural, or a letter


def load_experiment(
    given: str | Path | Mapping[str, Any] | Experiment,
    *,
    data: str | None = None,
    corpus: Names = (),
    plugins: Names = (),
    limit: int | None = None,
) -> Experiment:
    """An experiment from its file, from what such a file holds, or as it is.

    `data`, `corpus` and `limit` take the place of the experiment's own; `plugins` are added to them. In a file,
    `checkpoint`, `revision` and `tokenizer` at the top stand for every arm without a checkpoint of its own; an arm may
    be just a variant's name, and its `name` is by default its variant.

    Raises UserError for no such file, not YAML, a key, name or type that does not fit (what and where), and a corpus
    for an experiment without pretraining.
    """
    where, values = (
        "experiment",
        given.model_dump(by_alias=True) if isinstance(given, Experiment) else given,
    )
    if isinstance(given, str | Path):
        try:
            where = str(given)
            values = parse_yaml(read_file(Path(given), LARGEST_YAML), str(given))
        except OSError as error:
            raise UserError(f"cannot read experiment file '{given}': {error.strerror}") from error
    if not isinstance(values, Mapping):
        keys, kind = ", ".join([*_keys(Experiment), *SHARED]), type(values).__name__
        raise UserError(
            f"{where}: an experiment is a mapping with keys {keys}, not a value of type {kind}"
        )
    values = {
        **values,
        **{
            key: value for key, value in {"data": data, "limit": limit}.items() if value is not None
        },
    }
    if corpus:
        if not isinstance(values.get("pretraining"), Mapping):
            raise UserError("a corpus is given, but the experiment has no `pretraining`")
        values["pretraining"] = {**values["pretraining"], "corpus": listed(corpus)}
    try:
        experiment = Experiment.model_validate(_with_full_arms(with_recipe(values)))
        return experiment.model_copy(update={"plugins": [*experiment.plugins, *listed(plugins)]})
    except ValidationError as error:
        raise UserError(f"{where}: {_mistakes(error)}") from error


def listed(names: Names) -> list[str]:
    """The names; of a plain text or path, that alone."""
    return [str(names)] if isinstance(names, str | Path) else [*map(str, names)]


def _with_full_arms(values: dict[str, Any]) -> dict[str, Any]:
    """The values with every arm as a mapping that has a name and a checkpoint."""
    shared: dict[str, Any] = {key: values.pop(key) for key in SHARED if key in values}
    pretraining, arms = values.get("pretraining"), values.get("arms")
    if isinstance(pretraining, Mapping) and pretraining.get("from", SCRATCH) == SCRATCH:
        shared = {"checkpoint": SCRATCH} | shared
    if not isinstance(arms, list):
        return values
    full = [{"variant": arm} if isinstance(arm, str) else arm for arm in arms]
    for place, arm in enumerate(full):
        if isinstance(
            arm, dict
        ):  # a revision or tokenizer belongs to the checkpoint beside which it stands
            full[place] = {
                "name": arm.get("variant"),
                **({} if "checkpoint" in arm else shared),
                **arm,
            }
    return values | {"arms": full}


def _mistakes(error: ValidationError, whole: type[Section] = Experiment) -> str:
    """The mistakes in a section with their places, of several the first SHOWN."""
    mistakes = [_mistake(problem, whole) for problem in _problems(error)]
    if len(mistakes) == 1:
        return mistakes[0]
    shown = [
        f"({number}) {shortened(one, 2 * QUOTED)}" for number, one in enumerate(mistakes[:SHOWN], 1)
    ]
    return f"{len(mistakes)} mistakes: {' '.join(shown)}"


def _problems(error: ValidationError) -> Iterator[dict[str, Any]]:
    """What pydantic says of each mistake; a section that has several is there once for each of them."""
    for details in error.errors(include_url=False):
        problem: dict[str, Any] = dict(details)
        cause = problem.get("ctx", {}).get("error")
        if isinstance(cause, MistakesError):
            for mistake in cause.mistakes:
                yield problem | {"msg": mistake}
        else:
            yield problem


def _mistake(problem: dict[str, Any], whole: type[Section]) -> str:
    """What is wrong with a value and where; of an unknown key the nearest of its section, or another one with it."""
    *parents, key = problem["loc"] or ("experiment",)
    place, above = ".".join(map(str, problem["loc"])), ".".join(map(str, parents))
    if problem["type"] == "missing":
        return f"missing key '{place}'"
    if problem["type"] == "extra_forbidden":
        section = next((SECTIONS[name] for name in reversed(parents) if name in SECTIONS), whole)
        keys = [*_keys(section), *(SHARED if section is Experiment else ())]
        elsewhere = [name for name, other in SECTIONS.items() if key in _keys(other)]
        if elsewhere and not get_close_matches(key, keys, n=1, cutoff=0.8):
            return f"unknown key '{key}'{f' in {above}' if above else ''}; it belongs to {elsewhere[0]}"
        return str(unknown("key", str(key), keys, above))
    message, value = problem["msg"].removeprefix("Value error, "), problem["input"]
    shown = (
        ""
        if isinstance(value, dict | list) or problem["type"] == "value_error"
        else f", not {quoted(value)}"
    )
    return f"{f'{place}: ' if place else ''}{message[0].lower()}{message[1:]}{shown}"


def _keys(section: type[Section]) -> list[str]:
    """All keys of a section, as the file spells them."""
    return [field.alias or name for name, field in section.model_fields.items()]


def places_of(key: str) -> list[str]:
    """Where a key stands in an experiment file, as `section.key`; of the nearest key where none has just that name."""
    sections: dict[str, type[Section]] = {
        "": Experiment,
        **{name: SECTIONS[name] for name in TOP_SECTIONS},
    }
    names = {name for section in sections.values() for name in _keys(section)}
    nearest = [key] if key in names else get_close_matches(key, names, n=1, cutoff=NEAR)
    return [
        f"{name}.{near}".lstrip(".")
        for name, section in sections.items()
        for near in nearest
        if near in _keys(section)
    ]


def parse_options(
    texts: Names, option: str = "--option", typed: Collection[str] | None = None
) -> dict[str, Any]:
    """Options of a variant, or what else an `option` takes, from KEY=VALUE; values are as an experiment file has them.

    If `typed` is given, only the keys in it have such values, and a `true`; all others have the text.
    Raises UserError for what is not KEY=VALUE, what is no value of an option, and a key that is given twice.
    """
    options: dict[str, Any] = {}
    for text in listed(texts):
        key, _, value = text.partition("=")
        if not key or not value:
            raise UserError(f"{option} takes KEY=VALUE, not '{text}'")
        if key in options:
            raise UserError(f"{option} {key} is given twice")
        is_typed = typed is None or key in typed or value == "true"
        options[key] = parse_yaml(value, f"{option} {text}") if is_typed else value
    try:
        return plain_options(options)
    except ValueError as error:
        raise UserError(f"{option} {error}") from error


def parse_dotted_keys(texts: Names) -> dict[str, Any]:
    """Read values by their dotted keys from KEY=VALUE; a value is what an experiment file would have there.

    Raises UserError for what is not KEY=VALUE, what is no YAML, and a key that is given twice.
    """
    settings: dict[str, Any] = {}
    for text in listed(texts):
        key, _, value = text.partition("=")
        if not key or not value:
            raise UserError(f"--set takes KEY=VALUE, not '{text}'")
        if key in settings:
            raise UserError(f"--set {key} is given twice")
        settings[key] = parse_yaml(value, f"--set {text}")
    return settings


def changed_protocol(protocol: Protocol, changes: Names) -> Protocol:
    """A protocol with some of its choices, given as KEY=VALUE, changed. Contrasts are named beforehand, in the file."""
    try:
        return Protocol.model_validate(protocol.model_dump() | parse_options(changes, "--protocol"))
    except ValidationError as error:
        raise UserError(f"--protocol: {_mistakes(error, Protocol)}") from error
