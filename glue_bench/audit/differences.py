"""In which facts two identities differ, in words a person knows from the experiment file."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from glue_bench.audit.identity import Known
from glue_bench.config import SCRATCH
from glue_bench.files import parse_json
from glue_bench.records.identity import CellIdentity, PretrainingIdentity, pretraining_of

DIGITS = 12
UNKNOWN = object()
"""The value of a fact that an identity has, but that is stored nowhere."""
MNLI, PRETRAINING = "its MNLI run: ", "pretraining: "
STARTS, FROM_MNLI, STEPS = "starts from", "starts from an MNLI run", "steps of pretraining"
Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Difference:
    """One fact that is not the same: what it is, and both values as text."""

    what: str
    before: str
    after: str


def compare(before: CellIdentity, after: CellIdentity, known: Known) -> tuple[list[Difference], list[str]]:
    """Every fact in which two identities are known to differ, and those that only one of them tells.

    Where pretrained weights or an MNLI run differ, so do facts of theirs; those that the cells themselves differ in
    alike are told once.
    """
    was, now = facts_of(before, known), facts_of(after, known)
    pairs = {name: (was.get(name), now.get(name)) for name in [*was, *now]}
    changed = {name: pair for name, pair in pairs.items() if pair[0] != pair[1] and UNKNOWN not in pair}
    shown = {name: pair for name, pair in changed.items() if not _is_said(name, pair, changed)}
    unknown = [name for name, pair in pairs.items() if pair[0] != pair[1] and UNKNOWN in pair]
    return [Difference(name, _text(before), _text(after)) for name, (before, after) in shown.items()], unknown


def _is_said(name: str, pair: tuple[Any, Any], changed: Mapping[str, tuple[Any, Any]]) -> bool:
    """Whether another changed fact says as much: the cell's own one, or that of a start of another kind."""
    own = name.removeprefix(MNLI).removeprefix(PRETRAINING)
    said = {name.removeprefix(MNLI), own, "pretraining.steps" if name == STEPS else own} - {name}
    if any(changed.get(other) == pair for other in said) or (name.startswith(MNLI) and FROM_MNLI in changed):
        return True
    of_start = ("scratch.", "checkpoint (")
    if PRETRAINING + STARTS in changed and own.startswith(of_start):
        return True
    return STARTS in changed and name.startswith((*of_start, PRETRAINING, "pretraining.", STEPS))


def facts_of(identity: CellIdentity, known: Known) -> Facts:
    """An identity as a person would tell it: one fact a key of the experiment file, or what a digest is of."""
    identity = known.in_terms_of_now(identity)
    return {
        "arm": identity.arm,
        "variant": identity.variant,
        "task": identity.task,
        "seed": identity.seed,
        **{f"options.{key}": value for key, value in identity.options.items()},
        "recipe (how training computes)": identity.recipe,
        "plugin (its source)": _short(identity.plugin),
        f"data of {identity.task} (their content)": _short(identity.data),
        **{f"finetuning.{key}": value for key, value in identity.hyperparameters.items()},
        "tokenizer (how it splits text)": _short(identity.tokenizer) or UNKNOWN,
        **_start(identity.start, known),
        **_mnli(identity.from_mnli, known),
    }


def _start(start: str, known: Known) -> Facts:
    if pretrained := pretraining_of(start):
        digest, steps = pretrained
        made = known.pretrainings.get(digest)
        told = {"pretraining (its hash)": digest} if made is None else dict(_pretraining(made, known))
        return {STARTS: "pretraining", STEPS: steps, **told}
    if start.startswith(f"{SCRATCH} "):
        try:
            sizes = dict(parse_json(start.removeprefix(f"{SCRATCH} ").encode()))
        except (ValueError, TypeError):  # edited
            return {STARTS: start}
        return {STARTS: "fresh weights", **{f"scratch.{key}": value for key, value in sizes.items()}}
    return {STARTS: "a checkpoint", "checkpoint (its files)": _short(start)}


def _pretraining(made: PretrainingIdentity, known: Known) -> Iterator[tuple[str, Any]]:
    """What decides pretrained weights; variant, options, plugin and tokenizer are those of the cell."""
    yield f"{PRETRAINING}recipe (how training computes)", made.recipe
    yield from ((f"{PRETRAINING}{key}", value) for key, value in _start(made.start, known).items())
    yield f"{PRETRAINING}corpus (its content)", _short(made.corpus)
    yield f"{PRETRAINING}packing (its version)", made.packing
    for key, value in made.settings.items():
        yield f"pretraining.{'from' if key == 'start' else key}", value


def _mnli(digest: str | None, known: Known) -> Facts:
    """What the MNLI run was made with from which the cell starts."""
    if digest is None:
        return {FROM_MNLI: "no"}
    named = next((name for name in [*known.planned, *known.records] if name.endswith(f"-{digest}")), None)
    identity = known.identity(named) if named else None
    if identity is None:
        return {FROM_MNLI: digest}
    return {FROM_MNLI: "yes", **{f"{MNLI}{name}": value for name, value in facts_of(identity, known).items()}}


def _short(digest: str | None) -> str | None:
    return digest[:DIGITS] if digest else digest


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value)
