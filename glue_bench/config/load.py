"""Read an experiment file, YAML, into an Experiment; a mistake in it is one line."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
from glue_bench.config.own_task import LABELS_HINT, HubData, OwnTask, add_own_tasks, is_task_file
from glue_bench.config.plain_yaml import parse_yaml
from glue_bench.config.recipes import with_recipe
from glue_bench.config.section import Section
from glue_bench.config.settings import (
    SCRATCH,
    Finetuning,
    PretrainingSettings,
    RateSearch,
    TaskSettings,
)
from glue_bench.data.task import Task
from glue_bench.data.tasks import find_task
from glue_bench.errors import MAX_QUOTED, MistakesError, UserError, quoted, shortened, unknown
from glue_bench.files import read_file

Names = str | Path | Iterable[str | Path]
SHARED_KEYS = ("checkpoint", "revision", "tokenizer")
"""Keys at the top of a file that stand for every arm without them."""
MAX_YAML_BYTES = 2**17
"""The size of an experiment file, of which an arm takes about a hundred bytes."""
MAX_MISTAKES = 5
"""How many mistakes of a file one message lists."""
SECTIONS: dict[str | int, type[Section]] = {
    "arms": Arm,
    "scratch": ScratchEncoder,
    "pretraining": PretrainingSettings,
    "finetuning": Finetuning,
    "protocol": Protocol,
    "resources": Resources,
    "rate_search": RateSearch,
    "tasks": TaskSettings,
    "hub": HubData,
}


TOP_SECTIONS = ("finetuning", "pretraining", "scratch", "protocol", "resources")
"""The sections that stand at the top of a file and are no lists."""
KEY_CUTOFF = 0.9
"""The `cutoff` of get_close_matches for a key that differs by a plural or a letter."""
MISPLACED_KEY_CUTOFF = 0.8
"""The same for a key that may as well be meant for another section."""


def load_experiment(
    given: str | Path | Mapping[str, Any] | Experiment,
    *,
    data: str | None = None,
    corpus: Names = (),
    plugins: Names = (),
    limit: int | None = None,
) -> Experiment:
    """Read an experiment from its file or from the content of one; an Experiment stays as it is.

    In a file, `checkpoint`, `revision` and `tokenizer` at the top stand for every arm without a
    checkpoint of its own. An arm may be just a variant's name, and its `name` is by default its
    variant.

    Args:
        given: The file, its content as a mapping, or an Experiment.
        data: The source of GLUE in place of the experiment's.
        corpus: The text of pretraining in place of the experiment's.
        plugins: Files of variants that are added to the experiment's.
        limit: The number of rows in place of the experiment's.

    Raises:
        UserError: no such file, not YAML, a key, name or type that does not fit (what and where),
            or a corpus for an experiment without pretraining.
    """
    place, values = _read_values(given)
    folder = Path(given).parent if isinstance(given, str | Path) else Path()
    values = _with_own_tasks(values, place, folder)
    if data is not None:
        values["data"] = data
    if limit is not None:
        values["limit"] = limit
    if corpus:
        if not isinstance(values.get("pretraining"), Mapping):
            raise UserError("a corpus is given, but the experiment has no `pretraining`")
        values["pretraining"] = {**values["pretraining"], "corpus": as_list(corpus)}
    _check_shared_keys(values, place)
    try:
        experiment = Experiment.model_validate(_with_full_arms(with_recipe(values)))
    except ValidationError as error:
        raise UserError(f"{place}: {_describe_mistakes(error)}") from error
    return experiment.model_copy(update={"plugins": [*experiment.plugins, *as_list(plugins)]})


def _read_values(
    given: str | Path | Mapping[str, Any] | Experiment,
) -> tuple[str, dict[str, Any]]:
    """Return what messages call an experiment, and the content of its file.

    Raises UserError for a file that cannot be read, is not YAML, or holds no mapping.
    """
    place = "experiment"
    values: Any = given
    if isinstance(given, Experiment):
        values = given.model_dump(by_alias=True)
    elif isinstance(given, str | Path):
        place = str(given)
        values = _read_yaml(Path(given), f"experiment file '{given}'")
    if not isinstance(values, Mapping):
        keys = ", ".join([*_all_keys(Experiment), *SHARED_KEYS])
        kind = type(values).__name__
        raise UserError(
            f"{place}: an experiment is a mapping with keys {keys}, not a value of type {kind}"
        )
    return place, dict(values)


def _read_yaml(path: Path, title: str) -> Any:
    """Read a YAML file as plain values. Raises UserError for a file that cannot be read."""
    try:
        content = read_file(path, MAX_YAML_BYTES)
    except OSError as error:
        raise UserError(f"cannot read {title}: {error.strerror}") from error
    return parse_yaml(content, str(path))


def _with_own_tasks(values: dict[str, Any], place: str, folder: Path) -> dict[str, Any]:
    """Return the values with every task of one's own as an OwnTask.

    Such a task is a mapping, or the name of a file that holds one. Its paths are relative to the
    folder of the file in which it stands. Without a task of GLUE there is no need for `data`.
    """
    tasks = values.get("tasks")
    if not isinstance(tasks, list):
        return values
    entries = [read_task(entry, place, folder) for entry in tasks]
    values = values | {"tasks": entries}
    if entries and all(isinstance(entry, OwnTask) for entry in entries):
        values.setdefault("data", "hub")
    return values


def read_task(entry: Any, place: str = "task", folder: Path = Path()) -> Any:
    """Read an entry of `tasks`: a mapping and the name of a YAML file become an OwnTask.

    Args:
        entry: The entry. What is neither stays as it is.
        place: What messages call the file in which it stands.
        folder: The folder of that file.

    Raises:
        UserError: there is no such file, or a key or a value does not fit.
    """
    if is_task_file(entry):
        path = folder / Path(entry).expanduser()
        content = _read_yaml(path, f"task file '{path}'")
        return _checked_task(content, str(path), path.parent)
    if isinstance(entry, Mapping):
        name = entry.get("name", "without a name")
        return _checked_task(entry, f"{place}: task {shortened(str(name), MAX_QUOTED)}", folder)
    return entry


def load_task(path: str) -> Task:
    """Read the file of a task, and make the task known to this process.

    Raises UserError as `read_task` does.
    """
    described: OwnTask = read_task(path)
    add_own_tasks([described])
    return find_task(described.key)


def _checked_task(content: Any, place: str, folder: Path) -> OwnTask:
    """Check the content of a task of one's own. Raises UserError as `read_task` does."""
    if not isinstance(content, Mapping):
        keys = ", ".join(_all_keys(OwnTask))
        raise UserError(f"{place}: a task is a mapping with keys {keys}")
    if "labels" not in content:
        raise UserError(f"{place}: missing key 'labels'; {LABELS_HINT}")
    try:
        task = OwnTask.model_validate(dict(content))
    except ValidationError as error:
        raise UserError(f"{place}: {_describe_mistakes(error, OwnTask)}") from error
    return task.from_folder(folder)


def as_list(names: Names) -> list[str]:
    """Return names as a list; a single text or path is a list of one."""
    if isinstance(names, str | Path):
        return [str(names)]
    return [str(name) for name in names]


def _with_full_arms(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with every arm as a mapping that has a name and a checkpoint."""
    shared: dict[str, Any] = {}
    pretraining = values.get("pretraining")
    if isinstance(pretraining, Mapping) and pretraining.get("from", SCRATCH) == SCRATCH:
        shared["checkpoint"] = SCRATCH
    for key in SHARED_KEYS:
        if key in values:
            shared[key] = values.pop(key)
    arms = values.get("arms")
    if isinstance(arms, list):
        values = values | {"arms": [_full_arm(arm, shared) for arm in arms]}
    return values


def _check_shared_keys(values: Mapping[str, Any], place: str) -> None:
    """Raise UserError for a shared key that no arm takes, because each has its checkpoint.

    A shared checkpoint is not refused: those of the arms plainly take its place.
    """
    arms = values.get("arms")
    if not isinstance(arms, list) or not arms:
        return
    if not all(isinstance(arm, Mapping) and "checkpoint" in arm for arm in arms):
        return
    for key in ("revision", "tokenizer"):
        if values.get(key) is not None:
            raise UserError(
                f"{place}: `{key}` at the top is for arms without a checkpoint, but every arm has "
                f"one; give each arm its {key}"
            )


def _full_arm(arm: Any, shared: Mapping[str, Any]) -> Any:
    """Return an arm with its name, and with the shared keys if it has no checkpoint of its own.

    A revision or a tokenizer belongs to the checkpoint beside which it stands.
    """
    if isinstance(arm, str):
        arm = {"variant": arm}
    if not isinstance(arm, dict):
        return arm  # a mistake, which the experiment's own check reports
    full = {"name": arm.get("variant")}
    if "checkpoint" not in arm:
        full.update(shared)
    full.update(arm)
    return full


def _describe_mistakes(error: ValidationError, section: type[Section] = Experiment) -> str:
    """Describe the first MAX_MISTAKES mistakes in a section, with their places."""
    mistakes = [_describe_mistake(problem, section) for problem in _problems(error)]
    if len(mistakes) == 1:
        return mistakes[0]
    lines = [
        f"({number}) {shortened(mistake, 2 * MAX_QUOTED)}"
        for number, mistake in enumerate(mistakes[:MAX_MISTAKES], 1)
    ]
    return f"{len(mistakes)} mistakes: {' '.join(lines)}"


def _problems(error: ValidationError) -> Iterator[dict[str, Any]]:
    """Yield pydantic's description of each mistake; a section with several has one for each."""
    for details in error.errors(include_url=False):
        problem: dict[str, Any] = dict(details)
        cause = problem.get("ctx", {}).get("error")
        if isinstance(cause, MistakesError):
            for mistake in cause.mistakes:
                yield problem | {"msg": mistake}
        else:
            yield problem


def _describe_mistake(problem: dict[str, Any], section: type[Section]) -> str:
    """Describe what is wrong with a value, and where it stands."""
    location = problem["loc"] or ("experiment",)
    place = ".".join(map(str, problem["loc"]))
    if problem["type"] == "missing":
        return f"missing key '{place}'"
    if problem["type"] == "extra_forbidden":
        return _describe_unknown_key(location, section)
    message = problem["msg"].removeprefix("Value error, ")
    message = f"{message[0].lower()}{message[1:]}"
    if place:
        message = f"{place}: {message}"
    value = problem["input"]
    if isinstance(value, dict | list) or problem["type"] == "value_error":
        return message
    return f"{message}, not {quoted(value)}"


def _describe_unknown_key(location: Sequence[str | int], section: type[Section]) -> str:
    """Describe an unknown key by the nearest key of its section, or by the section that has it."""
    *parents, key = location
    above = ".".join(map(str, parents))
    for name in parents:
        section = SECTIONS.get(name, section)
    keys = _all_keys(section)
    if section is Experiment:
        keys += SHARED_KEYS
    sections = [name for name, other_section in SECTIONS.items() if key in _all_keys(other_section)]
    if sections and not get_close_matches(str(key), keys, n=1, cutoff=MISPLACED_KEY_CUTOFF):
        place = f" in {above}" if above else ""
        return f"unknown key '{key}'{place}; it belongs to {sections[0]}"
    return str(unknown("key", str(key), keys, above))


def _all_keys(section: type[Section]) -> list[str]:
    """Return all keys of a section, as the file spells them."""
    return [field.alias or name for name, field in section.model_fields.items()]


def places_of(key: str) -> list[str]:
    """Find the places of a key in an experiment file, as `section.key`.

    If no key has this name, the nearest key takes its place.
    """
    sections: dict[str, type[Section]] = {"": Experiment}
    for name in TOP_SECTIONS:
        sections[name] = SECTIONS[name]
    keys = {name for section in sections.values() for name in _all_keys(section)}
    if key not in keys:
        nearest = get_close_matches(key, keys, n=1, cutoff=KEY_CUTOFF)
        if not nearest:
            return []
        key = nearest[0]
    return [
        f"{name}.{key}".lstrip(".")
        for name, section in sections.items()
        if key in _all_keys(section)
    ]


def parse_options(
    texts: Names, option: str = "--option", typed: Collection[str] | None = None
) -> dict[str, Any]:
    """Read options of a variant, or of another `option`, from KEY=VALUE.

    Args:
        texts: KEY=VALUE, one or several.
        option: The option of the command line that they were given to, for messages.
        typed: The keys whose values are read as those of an experiment file. All other values stay
            texts, except `true`. Without it all values are read.

    Raises:
        UserError: a text is not KEY=VALUE, a value is none of an option, or a key is given twice.
    """
    options: dict[str, Any] = {}
    for key, value in _texts_by_key(texts, option).items():
        is_typed = typed is None or key in typed or value == "true"
        options[key] = parse_yaml(value, f"{option} {key}={value}") if is_typed else value
    try:
        return plain_options(options)
    except ValueError as error:
        raise UserError(f"{option} {error}") from error


def parse_dotted_keys(texts: Names) -> dict[str, Any]:
    """Read values by their dotted keys from KEY=VALUE; a value is written as in an experiment file.

    Raises UserError for a text that is not KEY=VALUE or no YAML, and for a key that is given twice.
    """
    settings: dict[str, Any] = {}
    for key, value in _texts_by_key(texts, "--set").items():
        settings[key] = parse_yaml(value, f"--set {key}={value}")
    return settings


def _texts_by_key(texts: Names, option: str) -> dict[str, str]:
    """Split KEY=VALUE. Raises UserError for another text, and for a key that is given twice."""
    values: dict[str, str] = {}
    for text in as_list(texts):
        key, _, value = text.partition("=")
        if not key or not value:
            raise UserError(f"{option} takes KEY=VALUE, not '{text}'")
        if key in values:
            raise UserError(f"{option} {key} is given twice")
        values[key] = value
    return values


def changed_protocol(protocol: Protocol, changes: Names) -> Protocol:
    """Return a protocol in which KEY=VALUE change some choices.

    Contrasts are no such choice: they are named beforehand, in the file. Raises UserError for a
    choice that there is not.
    """
    try:
        return Protocol.model_validate(protocol.model_dump() | parse_options(changes, "--protocol"))
    except ValidationError as error:
        raise UserError(f"--protocol: {_describe_mistakes(error, Protocol)}") from error
