"""What the verbs do, as plain functions that return frames; some verbs' functions stand in their own rooms."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glue_bench.config import Experiment, load_experiment, parse_experiment, with_sources
from glue_bench.sweep.options import RunOptions
from glue_bench.values import listed

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from glue_bench.audit.explain import Explanation
    from glue_bench.records.plan import AskedCell
    from glue_bench.records.store import Store
    from glue_bench.sweep.again import Agree
    from glue_bench.sweep.run import Summary
    from glue_bench.tables.compare import Comparison


def run(
    experiment: str | Path | Mapping[str, Any] | Experiment,
    *,
    data: str | None = None,
    corpus: Sequence[str] = (),
    plugins: Iterable[str | Path] = (),
    limit: int | None = None,
    console: "Console | None" = None,
    agree: "Agree | None" = None,
    told: "Callable[[Summary], None] | None" = None,
    **options: Any,
) -> "Summary":
    """Pretrain and fine-tune what an experiment lacks, and write its tables and its page to `results/<experiment>`.

    `experiment` is a YAML file, its content as a mapping, or an Experiment. `data` (hub, demo or a folder) takes the
    place of the experiment's own, as `corpus` does of its text to pretrain on. With `limit`, that many rows of train
    and of each validation split are used, which every record and table marks as no benchmark. `plugins` are Python
    files with variants, beside those that the experiment names. `options` are those of
    `glue_bench.sweep.options.RunOptions`: results, only, dry_run, workers, address, device, precision, track,
    again. Where `finetuning.keep` asks for models of runs that were finished without, `agree` is called with their ids
    and about how many seconds it takes to train them once more; they are if it returns True. Before that, `told` is
    called with what is returned in the end.

    Example:
        >>> summary = glue_bench.run("configs/demo.yaml", only=["task=rte", "seed=1"])  # doctest: +SKIP

    Raises:
        UserError: bad input, before any cell is run; later, results that cannot be written, workers that cannot start,
            or a run that was to be kept and did not come out the same.
    """
    from glue_bench.files import results_written_to
    from glue_bench.records.store import Store
    from glue_bench.sweep.again import train_again
    from glue_bench.sweep.run import sweep
    from glue_bench.sweep.stop import TERMINATED
    from glue_bench.tables.board import open_board
    from glue_bench.tables.submission import chosen_runs
    from glue_bench.watch.observers import check_observers, make_observers

    how = RunOptions(**options)
    parsed = _experiment(experiment, data, corpus, plugins, limit)
    check_observers(how)
    observers = partial(make_observers, options=how)
    summary = sweep(parsed, how, console, observers, lambda store: chosen_runs(open_board(store.folder)))
    if not how.dry_run and summary.cause != TERMINATED:  # whoever ends us waits for seconds
        with results_written_to(summary.folder):
            write_results(summary.folder)
    if told:
        told(summary)
    if agree and summary.unkept and not summary.interrupted:
        train_again(parsed, Store(summary.folder), summary.unkept, agree, keep=True, console=console)
    return summary


def write_results(folder: Path) -> None:
    """Write the tables of an experiment and its report, from one reading of its records, into its folder."""
    from glue_bench.tables.export import find, write_tables

    comparison = find(folder)
    write_tables(comparison)
    write_page(comparison)


def write_page(comparison: "Comparison") -> None:
    """Write the report of an experiment beside its tables."""
    from glue_bench.files import write_atomically
    from glue_bench.tables.report import FILE, make_report

    write_atomically(comparison.board.results.folder / FILE, make_report(comparison).to_html().encode())


def explain(
    cell: str,
    experiment: str | Path | Mapping[str, Any] | Experiment,
    *,
    data: str | None = None,
    corpus: Sequence[str] = (),
    results: str | Path = RunOptions.results,
    plugins: Iterable[str | Path] = (),
    limit: int | None = None,
) -> "Explanation":
    """Why a cell of the experiment would run, or why not, by what is stored in `results/<experiment>`.

    `cell` is its id, or as much of it as no other has; the rest is as for `run`.

    Example:
        >>> print(glue_bench.explain("add-rte-lr0.003-s1-step200", "configs/demo.yaml").state)  # doctest: +SKIP

    Raises:
        UserError: bad input, or no cell or several have such an id.
    """
    from glue_bench.audit.explain import explain as explain_cell
    from glue_bench.records.environment import versions
    from glue_bench.records.store import Store
    from glue_bench.sweep.records import plan_of

    parsed = _experiment(experiment, data, corpus, plugins, limit)
    store = Store(Path(results) / parsed.name)
    return explain_cell(store, plan_of(parsed, store.folder), cell, versions())


def plan(
    experiment: str | Path | Mapping[str, Any] | Experiment,
    *,
    data: str | None = None,
    corpus: Sequence[str] = (),
    results: str | Path = RunOptions.results,
    plugins: Iterable[str | Path] = (),
    limit: int | None = None,
) -> "pd.DataFrame":
    """The cells that an experiment asks for, all checked, as `run` would run them; nothing is run or written.

    One row per cell, in the order of the experiment: `cell_id`, `arm`, `variant`, `origin`, `task`, `learning_rate`,
    `seed`, `pretraining_seed`, `steps` (both missing without pretraining) and its `state` by what is stored in
    `results/<experiment>`: done, failed or missing.

    Example:
        >>> glue_bench.plan("configs/demo.yaml").groupby("task").size()  # doctest: +SKIP

    Raises:
        UserError: bad input, as for `run`.
    """
    from glue_bench.records.store import Store
    from glue_bench.sweep.records import plan_of

    parsed = _experiment(experiment, data, corpus, plugins, limit)
    store = Store(Path(results) / parsed.name)
    return _cells_frame(plan_of(parsed, store.folder).cells, store)


def status(path: str | Path) -> "pd.DataFrame":
    """The cells of the experiment in the folder `path` (DIR/<experiment>) with their states, as `plan`.

    Example:
        >>> glue_bench.status("runs/demo").value_counts(["arm", "state"])  # doctest: +SKIP

    Raises:
        UserError: there is no such experiment, or it has no plan.
    """
    from glue_bench.records.store import open_store

    store = open_store(path)
    return _cells_frame(store.needed_plan().cells, store)


def _cells_frame(cells: "Iterable[AskedCell]", store: "Store") -> "pd.DataFrame":
    import pandas as pd

    names = ("cell_id", "arm", "variant", "origin", "task", "learning_rate", "seed", "pretraining_seed", "steps")
    states = {cell.cell_id: store.state(cell.cell_id) for cell in cells}
    frame = pd.DataFrame([{name: getattr(cell, name) for name in names} for cell in cells], columns=list(names))
    return frame.assign(state=frame["cell_id"].map(states)).astype({"pretraining_seed": "Int64", "steps": "Int64"})


def predictions(path: str | Path, *, task: str | None = None) -> "pd.DataFrame":
    """What the finished runs of the experiment in the folder `path` predicted, of all tasks or of one.

    One row per run and example: `cell_id`, `arm`, `task`, `learning_rate`, `pretraining_seed`, `seed`, `split`, `row`
    (from 0, in the order of the data), `predicted` and `label`: ids of classes, or scores of STS-B. `label` is missing
    where no gold labels are stored, as for test splits.

    Example:
        >>> glue_bench.predictions("runs/demo", task="rte").eval("predicted == label").mean()  # doctest: +SKIP

    Raises:
        UserError: there is no such experiment or task, or a file is damaged.
    """
    import numpy as np
    import pandas as pd

    from glue_bench.data.metrics import decide
    from glue_bench.data.tasks import find_task
    from glue_bench.tables.results import read_results

    results, wanted = read_results(path), find_task(task).name if task else None
    columns = ["cell_id", "arm", "task", "learning_rate", "pretraining_seed", "seed"]
    cells, frames = results.cells[results.cells["finished"]].sort_values("cell_id"), []
    for cell in (cells[cells["task"] == wanted] if wanted else cells).to_dict("records"):
        labels = results.arrays.gold(cell["task"], cell["data"])
        for split, logits in results.arrays.predicted(cell["cell_id"]).items():
            said = decide(cell["task"], logits)
            values = {"row": np.arange(len(said)), "predicted": said, "label": labels.get(split, np.nan)}
            frames.append(pd.DataFrame({**{name: cell[name] for name in columns}, "split": split, **values}))
    columns += ["split", "row", "predicted", "label"]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)


def statistics(
    path: str | Path, *, reference: str | None = None, lower: Sequence[str] = (), equivalent: float | None = None,
    pairs: bool = False,
) -> "pd.DataFrame":  # fmt: skip
    """Which arms of the experiment in the folder `path` differ from the reference, and by how much.

    One row per comparison and column. `kind` is reference, conversion, declared or pair (with `pairs`); the other
    columns are `glue_bench.stats.verdicts.VERDICT_COLUMNS`. With `equivalent`, a margin in points, those of a test of
    differing by less are added.

    If `path` is a table of anyone's runs (FILE.csv), its systems are compared with the `reference`; `lower` has metrics
    whose lowest is best, and the columns are `glue_bench.tables.foreign.CONTRAST_COLUMNS`.

    Example:
        >>> glue_bench.statistics("runs/demo").query("verdict != ''")  # doctest: +SKIP

    Raises:
        UserError: there is no such experiment, the margin is not above 0, or as `glue_bench.tables.foreign.judge_runs`.
    """
    from glue_bench.tables.contrasts import contrasts_frame
    from glue_bench.tables.export import find
    from glue_bench.tables.foreign_page import is_table, judge_file

    if is_table(path, reference, lower, pairs):
        return judge_file(path, reference, lower, equivalent).contrasts
    return contrasts_frame(find(path), equivalent, pairs)


def power(path: str | Path, difference: float, power: float = 0.8, *, costs: Sequence[float] = ()) -> "pd.DataFrame":
    """How many seeds it takes to see a difference of so many points, from how far scores spread in `path`.

    The frame is that of `glue_bench.stats.power.power_frame`. `costs` are those of a pretraining seed and of a
    fine-tuning seed, by default the measured seconds.

    Example:
        >>> glue_bench.power("runs/demo", difference=1.0)  # doctest: +SKIP

    Raises:
        UserError: there is no such experiment, the difference is not above 0, or the power not between 0.05 and 1.
    """
    from glue_bench.tables.contrasts import seeds_frame
    from glue_bench.tables.export import find

    return seeds_frame(find(path), difference, power, costs)


def table(name: str, path: str | Path | None = None) -> "pd.DataFrame":
    """A published table by its name, beside the experiment in the folder `path` if that is given.

    One row per printed value and arm of ours: `glue_bench.tables.papers.Beside.cells`.

    Example:
        >>> glue_bench.table("tupe-1", "runs/minilm")  # doctest: +SKIP

    Raises:
        UserError: there is no such table or experiment.
    """
    from glue_bench.tables.papers import beside_named

    return beside_named(name, path).cells


def export(
    paths: str | Path | Sequence[str | Path],
    output: str | Path,
    *,
    format: str = "zip",
    organization: str | None = None,
    data: str | None = None,
) -> dict[str, Any]:
    """Bundle experiments, or all in a folder, into one zip for others; its manifest is returned.

    With `format="eee"` the scores are written in the schema of Every Eval Ever to a folder instead, as statements of
    the `organization`; `data` are then the texts for a line about each example. Returned is what `write_logs` returns.

    Example:
        >>> glue_bench.export("runs/demo", "demo.zip")["experiments"]  # doctest: +SKIP

    Raises:
        UserError: there is no experiment in a folder, the format is unknown, an organization or data do not go with it,
            or a file cannot be written.
    """
    from glue_bench.audit.bundle import write_bundle
    from glue_bench.errors import UserError, unknown
    from glue_bench.records.store import experiments_in
    from glue_bench.tables.board import open_board
    from glue_bench.tables.every_eval import write_logs

    if format not in ("zip", "eee"):
        raise unknown("format", format, ("zip", "eee"), "export")
    if format == "zip" and (organization or data):
        raise UserError("an organization and data go with the format eee; a bundle has neither")
    if format == "eee" and not organization:
        raise UserError("the format eee needs an organization: who states these scores (--organization my-lab)")
    folders = [paths] if isinstance(paths, str | Path) else paths
    stores = [store for folder in folders for store in experiments_in(folder)]
    if organization:
        return write_logs([open_board(store.folder) for store in stores], Path(output), organization, data)
    return write_bundle(stores, Path(output))


def submit(path: str | Path, output: str | Path, *, arm: str | None = None, fill: bool = False) -> dict[str, Any]:
    """Write the zip of an arm's stored test predictions that the GLUE site takes, and which run each file came from.

    The latter, which is returned, is written beside the zip as JSON. With `fill` the majority class stands in place
    of files that have no predictions. The only arm needs no name.

    Example:
        >>> glue_bench.submit("runs/bert_base", "add.zip", arm="add")["files"]  # doctest: +SKIP

    Raises:
        UserError: there is no such experiment or arm, predictions are missing, or a file cannot be written.
    """
    from glue_bench.tables.board import open_board
    from glue_bench.tables.submission import complete, gather, write_submission

    return write_submission(complete(gather(open_board(path), arm), filling=fill), Path(output))


def _experiment(
    given: str | Path | Mapping[str, Any] | Experiment,
    data: str | None,
    corpus: Sequence[str],
    plugins: Iterable[str | Path],
    limit: int | None = None,
) -> Experiment:
    if isinstance(given, str | Path):
        parsed = load_experiment(given, data, corpus, limit)
    else:
        raw = given.model_dump(by_alias=True) if isinstance(given, Experiment) else given
        parsed = parse_experiment(with_sources(raw, data, corpus, limit))
    return parsed.model_copy(update={"plugins": [*parsed.plugins, *listed(plugins)]})
