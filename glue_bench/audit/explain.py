"""Why a cell is run, or is not: its state, and what differs from the nearest records that are stored."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from glue_bench import recipe as recipes
from glue_bench.audit.differences import Difference, compare
from glue_bench.audit.identity import Known, known
from glue_bench.errors import UserError
from glue_bench.records.identity import digest_of
from glue_bench.records.plan import NO_PLAN, Plan
from glue_bench.records.record import Environment, Record
from glue_bench.records.store import Store

PLACE = ("task", "arm", "seed", "pretraining_seed", "learning_rate", "steps")
SHOWN = 3
LISTED = 8


@dataclass(frozen=True)
class Candidate:
    """Another cell that may be what this one used to be: how the two differ, from what is stored to what is asked."""

    cell_id: str
    made: str
    differences: tuple[Difference, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True)
class Explanation:
    """A cell's state (done, failed, missing, or no longer asked for), remarks on it, and the nearest other cells."""

    cell_id: str
    state: str
    remarks: tuple[str, ...]
    candidates: tuple[Candidate, ...] = ()


def explain(store: Store, plan: Plan | None, name: str, now: Environment | None = None) -> Explanation:
    """Explain the cell whose id is, begins with or contains `name`; `now` is what environments are compared with.

    Raises:
        UserError: no cell or several have such an id, or the plan was written by a version that did not store enough.
    """
    cells = known(store, plan)
    cell_id = find(name, cells, store)
    if cell_id not in cells.planned and plan:
        return _no_longer_asked_for(cell_id, cells)
    if store.has_record(cell_id):
        return _done(cell_id, cells, store, now or Environment())
    if not cells.plan.tasks:
        why = "plan.json was written before plans said what ids are made of" if plan else "there is no plan.json"
        raise UserError(f"cell '{cell_id}' has no record, and {why}; give the experiment file in place of the folder")
    failed = store.read_failure(cell_id)
    error = f"{failed.error} (the next run tries it again)" if failed else None
    remarks = [error or "no record has this id, so the cell is to be run"]
    if (store.folder / "claims" / cell_id).exists():
        remarks.append("a sweep runs it just now, or was killed while it did")
    if not cells.records:
        remarks.append("the experiment has no records yet")
    state = "failed" if failed else "missing"
    return Explanation(cell_id, state, tuple(remarks), _nearest(cell_id, cells, cells.records))


def find(name: str, cells: Known, store: Store) -> str:
    """The id that `name` means; cells that the plan asks for come before those that are only stored.

    Raises:
        UserError: none or several.
    """
    stored = [*cells.records, *(each.cell_id for each in store.read_failures() if each.task or each.damaged)]
    for ids in (list(cells.planned), sorted({*stored} - cells.planned.keys())):
        for fits in (str.__eq__, str.startswith, str.__contains__):
            found = [cell_id for cell_id in ids if fits(cell_id, name)]
            if len(found) == 1:
                return found[0]
            if found:
                raise UserError(f"{len(found)} cells have ids with '{name}': {_listed(found)}; give more of it")
    every = list(dict.fromkeys([*cells.planned, *stored]))
    beginnings = {cell_id[: len(name)]: cell_id for cell_id in reversed(every)}
    near = [beginnings[found] for found in get_close_matches(name, beginnings, n=SHOWN, cutoff=0.7)]
    hint = f"did you mean {' or '.join(near)}?" if near else f"its cells: {_listed(every) or 'none'}"
    raise UserError(f"no cell '{name}' in '{store.folder}'; {hint}")


def has_cell(store: Store, name: str) -> bool:
    """Whether an experiment asks for, or holds, any cell whose id contains `name`; its records are not read."""
    planned = {cell.cell_id for cell in (store.read_plan() or NO_PLAN).cells}
    return any(name in cell_id for cell_id in planned | store.ids("records") | store.ids("failures"))


def _listed(ids: Sequence[str]) -> str:
    return ", ".join(ids[:LISTED]) + (f" and {len(ids) - LISTED} more" if len(ids) > LISTED else "")


def _done(cell_id: str, cells: Known, store: Store, now: Environment) -> Explanation:
    """A finished cell, and the records of the same place from before: the cell was run again."""
    record = cells.records.get(cell_id)
    if record is None:
        line = next((line for line in store.scan_records()[1] if cell_id in line), f"records/{cell_id}.json is gone")
        return Explanation(cell_id, "done", (f"but tables leave it out: {line}",))
    remarks = [made_by(record)]
    if record.recipe != recipes.RECIPE:
        older = f"run by recipe {record.recipe} (now {recipes.RECIPE})"
        remarks.append(f"{older}, which counts as done; --again recipe runs it anew")
    remarks += _encoder(cell_id, cells, store)
    was, is_now = _versions(record.environment), _versions(now)
    if changed := [f"{name} {was[name]} -> {is_now[name]}" for name in was if is_now.get(name, was[name]) != was[name]]:
        remarks.append(f"the same identity in another environment, which does not count: {', '.join(changed)}")
    earlier = [name for name in cells.records if name not in cells.planned and not _distance(name, cell_id, cells)]
    return Explanation(cell_id, "done", tuple(remarks), _nearest(cell_id, cells, earlier))


def _no_longer_asked_for(cell_id: str, cells: Known) -> Explanation:
    """A record or failure that the plan has no cell for, and the cell that has taken its place."""
    record = cells.records.get(cell_id)
    made = [made_by(record)] if record else []
    remarks = (*made, "the plan asks for no cell of this id, and tables leave it out")
    # Plans of earlier versions do not say what their cells' ids are made of.
    others = _nearest(cell_id, cells, cells.planned, forwards=False) if record and cells.plan.tasks else ()
    return Explanation(cell_id, "no longer asked for", remarks, others)


def _nearest(cell_id: str, cells: Known, among: Iterable[str], forwards: bool = True) -> tuple[Candidate, ...]:
    """The cells that differ least from this one: those of the same task, arm, seed and rate before all others.

    Up to SHOWN cells of the very same place are returned, else one. `forwards`: the others were there before this one.
    """
    mine, others = cells.identity(cell_id), [name for name in among if name != cell_id]
    if mine is None or not others:
        return ()
    distances = {name: _distance(name, cell_id, cells) for name in others}
    least = min(distances.values())
    candidates = []
    for name in (name for name in others if distances[name] == least):
        other = cells.identity(name)
        assert other is not None, "a record or a planned cell has an identity"
        differences, unknown = compare(other, mine, cells) if forwards else compare(mine, other, cells)
        made = made_by(cells.records[name]) if name in cells.records else "not run yet"
        candidates.append(Candidate(name, made, tuple(differences), tuple(unknown)))
    candidates.sort(key=lambda one: (len(one.differences), one.cell_id in cells.planned, one.cell_id))
    return tuple(candidates[: SHOWN if least == 0 else 1])


def _distance(first: str, second: str, cells: Known) -> int:
    """In how many of PLACE two cells differ, the first of PLACE counting most."""
    a, b = cells.key(first), cells.key(second)
    return sum((getattr(a, name) != getattr(b, name)) << bit for bit, name in enumerate(reversed(PLACE)))


def made_by(record: Record) -> str:
    """Which version made a record, and on what."""
    made = record.environment
    commit = f" at commit {_commit(made)}" if made.git_commit else ""
    device = made.device or "an unknown device"
    return f"made by glue-bench {made.glue_bench or '?'}{commit}, on {made.processor or '?'} ({device})"


def _versions(environment: Environment) -> dict[str, str | None]:
    if environment == Environment():
        return {}
    named = {"glue-bench": environment.glue_bench, "python": environment.python}
    return {"commit": _commit(environment), **named, **environment.packages}


def _commit(environment: Environment) -> str:
    """The commit in twelve digits, with what is said of changes to it."""
    digits, plus, changes = (environment.git_commit or "none").partition("+")
    return digits[:12] + plus + changes


def _encoder(cell_id: str, cells: Known, store: Store) -> list[str]:
    """Whether a finished MNLI cell has to run once more, for the encoder that others start from."""
    after = [name for name, cell in cells.planned.items() if cell.from_mnli == cell_id]
    waiting = [name for name in after if not store.has_record(name)]
    if not waiting or any((store.folder / "checkpoints").glob(f"*-{digest_of(cell_id)}")):
        return []
    return [f"its encoder is gone and {_listed(waiting)} would start from it: it is run once more, its record stays"]
