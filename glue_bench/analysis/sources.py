"""What a name stands for: a checkpoint, a pretraining's last one, or those of all arms of an experiment."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from glue_bench.errors import UserError, first_line
from glue_bench.files import parse_json, read_file
from glue_bench.model.locate import locate
from glue_bench.records.store import Store
from glue_bench.training.pretrained import IDENTITY

NAMED = 5
"""So many pretrainings without a checkpoint are named."""


class Source(NamedTuple):
    """A checkpoint and what it is called in tables."""

    label: str
    name: str


def find_sources(names: Iterable[str]) -> tuple[list[Source], list[str]]:
    """All checkpoints that the names stand for, each with a label of its own; and of each experiment what is gone.

    Raises:
        UserError: a pretraining has kept no checkpoint.
    """
    found: list[Source] = []
    gone: list[str] = []
    for name in names:
        folder = Path(name).expanduser()
        plan = Store(folder).read_plan() if (folder / "plan.json").is_file() else None
        if plan is None:
            found.append(Source(_short(name), last_checkpoint(name)))
            continue
        # Of one arm and seed there are two where an older version had trained it: the newer one counts, if it is there.
        planned = [facts for facts in plan.all_pretrainings() if not facts.is_search]
        by_recipe = sorted(planned, key=lambda facts: facts.identity.recipe if facts.identity else 1)
        places = [(facts.label, folder / "checkpoints" / facts.pretraining_id) for facts in by_recipe]
        kept = {label: place for label, place in places if any(place.glob("step-*"))}
        labels = list(dict.fromkeys(facts.label for facts in planned))
        found += [Source(label, last_checkpoint(str(kept[label]))) for label in labels if label in kept]
        if not labels:
            gone.append(f"'{name}' has pretrained no arm; give the checkpoint that its arms start from instead")
        elif missing := [label for label in labels if label not in kept]:
            rest = f" and {len(missing) - NAMED} more" * (len(missing) > NAMED)
            where = f"no checkpoint in '{folder / 'checkpoints'}'; `glue-bench run` makes it"
            gone.append(f"{'; '.join(missing[:NAMED])}{rest}: {where}")
    # Equal labels get their checkpoint's whole name.
    given = [source.label for source in found]
    return [source._replace(label=source.name) if given.count(source.label) > 1 else source for source in found], gone


def last_checkpoint(name: str) -> str:
    """The last checkpoint of a pretraining's folder; any other name as it is.

    Raises:
        UserError: the pretraining has kept none.
    """
    folder = Path(name).expanduser()
    if not (folder / IDENTITY).is_file():
        return name
    steps = {int(found[1]): path for path in folder.iterdir() if (found := re.fullmatch(r"step-(\d{1,18})", path.name))}
    if not steps:
        raise UserError(f"the pretraining in '{name}' has kept no checkpoint yet")
    return str(steps[max(steps)])


def trained_positions(folder: str) -> int | None:
    """The length of the sequences of a pretraining of ours; None of any other checkpoint.

    Raises:
        UserError: what the pretraining says of itself is damaged.
    """
    identity = _named(locate(folder)).parent / IDENTITY
    if not identity.is_file():
        return None
    try:
        return int(parse_json(read_file(identity))["settings"]["length"])
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise UserError(f"'{identity}' is damaged ({first_line(error)}); copy the checkpoint elsewhere") from error


def _named(path: Path) -> Path:
    """The path, but of `.` and `..` that of the folder which they stand for: only that has a name and a parent."""
    return path.resolve() if path.name in ("", "..") else path


def _short(name: str) -> str:
    """The last part of a path or hub id; for step-1000 of a pretraining, the pretraining's folder too."""
    parts = _named(Path(name)).parts
    return "/".join(parts[-2:]) if parts[-1].startswith("step-") else parts[-1]
