"""What a person should know before anything is computed: no mistakes, but perhaps not what was meant."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from glue_bench import recipe as recipes
from glue_bench.config import Experiment
from glue_bench.errors import UserError
from glue_bench.model.plugins import PLUGINS
from glue_bench.records.record import PretrainingRecord, Record
from glue_bench.records.store import Store
from glue_bench.sweep.executors import room_here
from glue_bench.sweep.jobs import PlannedCell
from glue_bench.sweep.kept import room
from glue_bench.sweep.options import RunOptions
from glue_bench.sweep.work import Work
from glue_bench.training.compute import AUTO, Compute
from glue_bench.training.inputs import Inputs
from glue_bench.values import series

AnyRecord = Record | PretrainingRecord
ANEW = "another folder (--results) runs all of them anew"
_BY = {"device": "on", "precision": "in"}


def remarks(
    cells: Sequence[PlannedCell], inputs: Inputs, store: Store, options: RunOptions, compute: Compute
) -> Iterator[str]:
    """Lines about where this process computes, and about what is no mistake but perhaps not what was meant."""
    yield place(inputs.experiment, options, compute)
    yield from _older_recipes(cells)
    segments = {arm.name: inputs.segments(arm) for arm in inputs.experiment.arms}
    without = [name for name, (told, embedded) in segments.items() if told > 1 >= embedded]
    if without:
        yield f"both texts of a pair are segment 0, because the encoder has no other: {', '.join(without)}"
    yield from _unused_plugins(inputs.experiment)
    yield from room(cells, inputs, store)
    asked = {name: value for name in _BY if (value := getattr(options, name)) != AUTO}
    if asked:
        yield from _computed_otherwise(cells, store, asked)
    for planned in cells:
        if store.has_damaged_record(planned.id):
            yield f"records/{planned.id}.json is damaged; its cell is run again"


def place(experiment: Experiment, options: RunOptions, compute: Compute) -> str:
    """Where this process computes; workers to whom no GPU is promised are shown none."""
    on_cpus = options.side_by_side and not experiment.resources.gpus and compute.device.type != "cpu"
    return f"computing on {compute.name} in {compute.precision}" + (
        "; workers on CPUs, because resources.gpus is 0" if on_cpus else ""
    )


def idle_cores(work: Work, inputs: Inputs, options: RunOptions, compute: Compute) -> Iterator[str]:
    """A line where this process would leave cores idle, and several processes would not."""
    jobs, cores = len(work.all_jobs), room_here(inputs.experiment.resources, compute)
    if options.side_by_side or jobs < 2 or not cores:
        return
    configs = (inputs.initial(planned.cell.arm).config.get_text_config() for planned in work.waiting)
    if all(compute.threads_for(config.hidden_size) == 1 for config in configs):
        yield f"one of {cores} cores is at work (narrow encoder); glue-bench run --workers auto uses {min(cores, jobs)}"


def made_anew(work: Work, store: Store) -> Iterator[str]:
    """A line where weights that finished cells started from are gone, and others need them."""
    gone = {job.id: job.arm for job in work.pretraining if not job.is_search and store.has_pretraining(job.id)}
    done = sum(planned.pretraining in gone and store.has_record(planned.id) for planned in work.cells)
    if done:
        yield (
            f"pretrained once more: {', '.join(dict.fromkeys(gone.values()))} (gone are the weights that {done:,} "
            f"finished cell{'s' * (done > 1)} started from); another processor may make other weights, and then the "
            "tables say so"
        )


def _older_recipes(cells: Sequence[PlannedCell]) -> Iterator[str]:
    """Lines about cells and pretrainings of older recipes among these cells."""
    older = [planned for planned in cells if planned.cell.recipe < recipes.RECIPE]
    if older:
        listed = ", ".join(map(str, sorted({planned.cell.recipe for planned in older})))
        yield (
            f"{len(older):,} of {len(cells):,} cells were run by an older recipe ({listed}; now "
            f"{recipes.RECIPE}), and count as done; --again recipe runs them anew"
        )
    mixed = [p for p in cells if p.cell.steps is not None and p.cell.pretraining_recipe < p.cell.recipe]
    if mixed:
        arms = ", ".join(dict.fromkeys(planned.cell.arm.name for planned in mixed))
        yield f"pretrained by an older recipe, and fine-tuned by this one: {arms}; --again recipe pretrains anew"


def _unused_plugins(experiment: Experiment) -> Iterator[str]:
    """A line about each plugin file that was loaded for nothing."""
    used = {arm.variant for arm in experiment.arms}
    for path in dict.fromkeys(experiment.plugins):
        file = Path(path).expanduser().resolve()
        names = [name for name, plugin in PLUGINS.items() if plugin.file == file]
        if not used & set(names):
            yield f"plugin '{path}' is not used: no arm has the variant {' or '.join(map(repr, names))}"


def _computed_otherwise(cells: Sequence[PlannedCell], store: Store, asked: Mapping[str, str]) -> Iterator[str]:
    """Lines about stored results that were not computed as asked for, as far as their records say.

    They count as done all the same: neither device nor precision is part of a cell's identity.
    """
    ids, starts = {planned.id for planned in cells}, {planned.pretraining for planned in cells}
    records = [record for record in store.scan_records()[0] if record.cell_id in ids]
    pretrainings: list[PretrainingRecord] = []
    with suppress(UserError):  # a damaged one is made again, and its record with it
        pretrainings = [record for record in store.read_pretrainings() if record.pretraining_id in starts]
    for what, value in asked.items():
        if others := [record for record in records if _is_other(record, what, value)]:
            count = f"{len(others):,} of {len(cells):,} cells"
            yield f"{count} were run {_said(others, what, value)}, and count as done; {ANEW}"
        if made := [record for record in pretrainings if _is_other(record, what, value)]:
            names = ", ".join(dict.fromkeys(record.arm for record in made))
            yield f"{names}: pretrained {_said(made, what, value)}, which counts as done; {ANEW}"


def _is_other(record: AnyRecord, what: str, asked: str) -> bool:
    """A cell that fell back to float32 was run as it would be again."""
    found = {_found(record, what), getattr(record, what, None)} - {None}
    return bool(found) and asked not in found


def _found(record: AnyRecord, what: str) -> str | None:
    value: str | None = getattr(record.environment, what)
    return "cuda" if what == "device" and value not in (None, "cpu", "mps") else value  # else the GPU's own name


def _said(records: Iterable[AnyRecord], what: str, asked: str) -> str:
    found = series(sorted({str(_found(record, what)) for record in records}))
    return f"{_BY[what]} {found}, not {_BY[what]} {asked} (--{what})"
