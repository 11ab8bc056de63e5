"""Every name of the package that the frozen comparisons use. Where the package moves, only this file changes.

`original.py` does the same for commit d9d4906 and never changes.

Each function imports what it uses, so that one kind can be compared while another kind's place moves.
"""

import io
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import combinations, islice, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from torch import nn

Told = list[tuple[str, int, float]]


def build_encoder(head: str, seed: int, settings: dict[str, Any]) -> nn.Module:
    """A model with fresh weights; called with ids, mask, segments and labels it gives a loss and logits."""
    from glue_bench.model.configuration import EncoderConfig
    from glue_bench.model.fresh import fresh
    from glue_bench.model.heads import EncoderForMaskedLM, EncoderForSequenceClassification

    heads = {"ForSequenceClassification": EncoderForSequenceClassification, "ForMaskedLM": EncoderForMaskedLM}
    return fresh(heads[head], EncoderConfig(**settings), seed)


def run(experiment: dict[str, Any], results: Path, precision: str) -> Told:
    """Run an experiment whole, without tables, into results/<name>; (id of cell or pretraining, step, loss) of each
    training step.
    """
    from glue_bench.config import load_experiment
    from glue_bench.sweep.run import sweep

    console, search = Console(file=io.StringIO()), experiment.get("pretraining", {}).get("rate_search", {})
    if "seed" in search:  # the only one, in d9d4906
        search["seeds"] = [search.pop("seed")]
    with _hearing() as told:
        where = {"results": results, "device": "auto", "precision": precision, "only": (), "dry_run": False}
        engines = {"workers": None, "address": None, "slurm": None}
        summary = sweep(load_experiment(experiment), console, lambda *_: (), **where, **engines)
    assert not summary.failed, summary.failed
    return told


@contextmanager
def _hearing() -> Iterator[Told]:
    from glue_bench.sweep import attempt

    told: Told = []
    kept = attempt.finetune, attempt.pretrain

    def heard(train: Callable[..., Any]) -> Callable[..., Any]:
        def with_progress(job: Any, *given: Any, **options: Any) -> Any:
            listen = {"progress": lambda step, _, loss: told.append((job.id, step, float(loss())))}
            return train(job, *given, **options | listen)

        return with_progress

    attempt.finetune, attempt.pretrain = map(heard, kept)
    try:
        yield told
    finally:
        attempt.finetune, attempt.pretrain = kept


def cells(folder: Path) -> Iterator[dict[str, Any]]:
    """What each finished cell of an experiment's folder left. `weights` is a safetensors file, None where none is kept.

    `epochs` are (epoch, training loss, split -> metric -> score).
    """
    from glue_bench.records.store import Store

    store = Store(folder)
    for record in store.finished(store.plan()).records.values():
        cell, kept = record.cell, store.model(record)
        yield {
            "id": cell.id,
            "label": f"{cell.arm} {cell.task} rate={cell.settings.learning_rate:g} seed={cell.seed} "
            f"steps={cell.steps} pretraining_seed={cell.pretraining_seed}",
            "facts": {"tokens": record.training_tokens, "parameters": record.parameters},
            "epochs": [(epoch.epoch, epoch.train_loss, epoch.scores) for epoch in record.history],
            "predictions": store.logits(record) | store.logits(record, test=True),
            "weights": kept and kept / "model.safetensors",
        }


def pretrainings(folder: Path) -> Iterator[dict[str, Any]]:
    """What each pretraining of an experiment's folder left; `arrays` are its validation losses and sums of measures."""
    from glue_bench.records.store import Store

    store = Store(folder)
    for name, record in store.finished(store.plan()).pretrainings.items():
        rates = record.pretraining.settings.learning_rates
        yield {
            "id": name,
            "label": f"{record.pretraining.arm} pretraining seed={record.pretraining.seed} steps={record.steps} "
            f"rate={rates[0] if len(rates) == 1 else math.nan:g}",
            "facts": {
                "learning_rate": record.pretraining.rate,
                **{key: getattr(record, key) for key in ("tokens", "validation_tokens")},
                **{key: getattr(record, key) for key in ("corpus_tokens", "segment_pairs", "micro_batch_tokens")},
                **{one.name: one.value for one in record.measures},
            },
            "stream": record.stream,
            "curve": [(one.step, one.tokens, one.train_loss, one.validation_loss) for one in record.losses],
            "arrays": store.losses(record) | store.sums(record),
            "weights": sorted(store.checkpoints(name).glob("step-*/model.safetensors")),
        }


def tokens(experiment: dict[str, Any]) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """For each arm the bytes of its tokenizer; for each arm and task the arrays of its splits."""
    from glue_bench.config import load_experiment
    from glue_bench.sweep.plan import make_plan
    from glue_bench.training.inputs import Inputs

    inputs = Inputs(load_experiment(experiment), Path("none"))
    for arm in inputs.experiment.arms:
        written = inputs.tokenizer(arm).backend_tokenizer.to_str()
        yield f"{arm.name} tokenizer", {"json": np.frombuffer(written.encode(), np.uint8)}
    for cell in make_plan(inputs.experiment, inputs).cells:
        splits = inputs.tokens(cell).splits
        names = ("ids", "segments", "offsets", "labels")
        arrays = {f"{split}.{name}": getattr(each, name) for split, each in splits.items() for name in names}
        yield f"{cell.arm} {cell.task}", arrays


def packed(experiment: dict[str, Any], steps: int) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """The packed text of an experiment's first arm, the first batches of each seed and those of validation."""
    from glue_bench.config import load_experiment
    from glue_bench.training.inputs import Inputs
    from glue_bench.training.masking import Vocabulary, evaluation_batches, training_batch

    inputs = Inputs(load_experiment(experiment), Path("none"))
    arm = inputs.experiment.arms[0]
    whole, settings, vocabulary = inputs.text(arm), inputs.pretraining, Vocabulary.of(inputs.tokenizer(arm))
    for split, text in whole.items():
        arrays = {name: getattr(text, name) for name in ("ids", "offsets", "starts", "documents", "cuts")}
        pieces = dict(zip(("piece_starts", "piece_documents"), text.pieces, strict=True))
        yield split, {name: array for name, array in (arrays | pieces).items() if array is not None}
    how = {"rows": settings.rows, "mask_probability": settings.mask_probability}
    for seed in settings.seeds:
        for step in range(steps):
            yield (
                f"batch {seed} {step}",
                _batch(training_batch(whole["train"], vocabulary, **how, seed=seed, step=step)),
            )
    batches = evaluation_batches(whole["validation"], vocabulary, settings.mask_probability)
    for number, batch in enumerate(islice(batches, steps)):
        yield f"validation {number}", _batch(batch)


def _batch(batch: Any) -> dict[str, np.ndarray]:
    named = {name: getattr(batch, name) for name in ("ids", "mask", "places", "targets", "segments")}
    return {name: tensor.numpy() for name, tensor in named.items() if tensor is not None}


def data(source: str) -> Iterator[tuple[str, str, dict[str, pd.DataFrame], dict[str, int]]]:
    """Each task of a source: its name, its digest, its splits, and how many rows of each were skipped."""
    from glue_bench.data.sources import open_source

    opened = open_source(source)
    for task in opened.tasks():
        loaded = opened.load(task)
        yield task, loaded.digest, dict(loaded.splits), dict(loaded.skipped)


def described(source: str) -> pd.DataFrame:
    """What `glue-bench data` shows of a source."""
    from glue_bench.data.sources import describe, open_source

    return describe(open_source(source))


def score(task: str, logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """A task's metrics."""
    from glue_bench.data.metrics import score_logits

    return score_logits(task, logits, labels)


def submission(outputs: dict[str, np.ndarray]) -> dict[str, bytes]:
    """The files that the GLUE site takes, by name, and the `zip` of them; outputs are by the file's task."""
    from glue_bench.data.submission import FILES, fill_file, make_zip, write_file

    files = {name: write_file(file, outputs[file.task]) for name, file in FILES.items()}
    return files | {f"filled {name}": fill_file(file) for name, file in FILES.items()} | {"zip": make_zip(files)}


def frames(folder: Path) -> Iterator[tuple[str, pd.DataFrame]]:
    """Every frame behind the tables of an experiment's folder, by name."""
    from glue_bench.stats.power import power_frame
    from glue_bench.stats.verdicts import VERDICT_COLUMNS, contrast_rows, equivalence
    from glue_bench.tables.board import (
        BOTH_SEEDS,
        RUN,
        SCORE_COLUMNS,
        averages,
        make_board,
        open_board,
        reported_epochs,
        steps_frame,
    )
    from glue_bench.tables.budget import budget_frame, rates_frame
    from glue_bench.tables.compare import compare
    from glue_bench.tables.contrasts import measured_costs
    from glue_bench.tables.pages import of_group
    from glue_bench.tables.papers import TABLES, paper_page
    from glue_bench.tables.results import read_results

    results = read_results(folder)
    own = make_board(results)
    protocols = {"own": [], "best": ["epoch=best"], "median": ["seeds=median", "rate=best-median"]}
    protocols["reference"] = [f"reference={own.arms[-1]}"]
    if len(results.losses):
        protocols["loss"] = ["primary=validation_loss"]
    facts = [
        "arm",
        "variant",
        "origin",
        "task",
        "learning_rate",
        *BOTH_SEEDS[::-1],
        "finished",
        "collapsed",
        "precision",
    ]
    of_arms = own.table.set_index("arm")[["parameters", "shape", "start"]]
    yield "cells", own.cells[[*facts, "processor"]].join(of_arms, on="arm")
    for name, changes in protocols.items():
        board = open_board(folder, changes)
        yield f"scores_{name}", board.scores[list(SCORE_COLUMNS)]
        scores = results.scores.merge(board.cells[["cell_id", *RUN]], on="cell_id")
        yield f"choosing_{name}", reported_epochs(scores, board.protocol)[[*RUN, "value"]]
        yield f"leaderboard_{name}", board.table
        yield f"rates_{name}", board.runs[["arm", "task", "learning_rate"]].drop_duplicates()
        yield f"averages_{name}", averages(board)
        found = compare(board)
        blocks, contrasts = board.table.set_index("arm")[["origin", "shape"]], equivalence(found.contrasts, 0.5)
        if "declared" in set(contrasts["kind"]):  # by the rule of d9d4906, which pooled over all arms
            pairs = [(a, b) for a, b in board.protocol.contrasts]
            rows = [row for one in found.assessed for row in contrast_rows(one, pairs, len(pairs))]
            declared = equivalence(pd.DataFrame(rows, columns=VERDICT_COLUMNS), 0.5).join(blocks, on="arm")
            declared = declared.assign(kind="declared")
            contrasts = pd.concat([contrasts[contrasts["kind"] != "declared"], declared], ignore_index=True)
        yield f"statistics_{name}", contrasts.drop(columns=["agree", "paired"])
        rows = []
        for one, each in ((group, each) for group in found.assessed for each in group.estimates):
            kinds = of_group(found.contrasts, one)
            row = {"column": each.column, "reference": one.reference, "seeds": each.kind, "arm": one.arms[-1]}
            row["smallest"] = kinds[kinds["column"] == each.column]["smallest"].median()
            row |= dict.fromkeys(("pretraining_deviation", "finetuning_deviation", "example_deviation"), math.nan)
            if each.arms:
                row["pretraining_deviation"] = math.sqrt(each.pretraining_variance)
                finetuning = sum(scores.finetuning_variance for scores in each.tasks.values())
                row["finetuning_deviation"] = math.sqrt(finetuning)
                row["example_deviation"] = math.sqrt(each.example_variance(one.reference))
            rows.append(row)
        columns = blocks.join(pd.DataFrame(rows).set_index("arm"), how="right")
        yield f"columns_{name}", columns.reset_index(drop=True)
        if name == "own":
            pairs = [(one, list(combinations(one.arms, 2))) for one in found.assessed]
            rows = [row for one, every in pairs for row in contrast_rows(one, every, len(every))]
            pairs = pd.DataFrame(rows, columns=VERDICT_COLUMNS).join(blocks, on="arm")
            yield "pairs", pairs.drop(columns=["kind", "agree", "paired"])
            costs = measured_costs(results)
            asked = product((0.02, 0.3, 1.0, 2.0, 3.0, 5.0, 8.0), (0.8, 0.95))
            powers = pd.concat([power_frame(found.assessed, apart, power, costs) for apart, power in asked])
            powers = {"power": powers, "power_no_costs": power_frame(found.assessed, 2.5, 0.9).assign(cost=math.nan)}
            for of, frame in powers.items():
                yield of, frame.join(blocks, on="reference").drop(columns=["kind", "reference"])
    yield "steps", steps_frame(own)
    yield "budget", budget_frame(results)
    yield "losses", results.losses.drop(columns="pretraining_id")
    yield "searched", rates_frame(results)
    yield "intrinsic", results.measures.drop(columns="pretraining_id")
    for name in TABLES:
        yield f"paper_{name}", paper_page(TABLES[name], results).rows


def predicted(folder: Path) -> pd.DataFrame:
    """What every finished run has predicted, as `glue_bench.predictions`."""
    from glue_bench.tables.export import predictions

    return predictions(folder)


def analysis(sources: list[Path], sequences: int) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
    """The numbers of analysis.json by checkpoint, with means of fine-tuned runs as `finetuned`; and the tidy frames.

    Both are put together from the long table of measures, under the names that d9d4906 had.
    """
    from glue_bench.analysis.analyse import analyse

    found = analyse([str(source) for source in sources], sequences=sequences, device="cpu")
    numbers = {facts["checkpoint"]: _numbers(found, facts) for facts in found.subjects.to_dict("records")}
    frames = {**found.matrices, **_tidy(found)}
    return numbers, frames


FOUR = ("word_word", "word_position", "position_word", "position_position")
NULL = {
    "terms.share": ("terms.share", FOUR),
    "terms.kl": ("terms.kl", FOUR),
    "layers": ("layers", ()),
    "subspaces": ("subspaces", ("overlap", "overlap_random", "mean_abs_cosine", "mean_abs_cosine_random")),
    "tables": ("tables.participation_ratio", ("words", "positions")),
    "decoding.sum": ("decoding.sum", ("word_accuracy", "position_accuracy", "position_mae")),
    "decoding.layers": ("decoding.layers", ()),
    "positions": ("positions", ("absolute_mae", "order_accuracy")),
    "positions.scores": ("positions.scores", ("toeplitz", "locality", "symmetric")),
    "positions.attention": ("positions.attention", ()),
    "dimensions.share_95": ("dimensions", ("share_95",)),
    "dimensions.spearman": ("dimensions", ("spearman",)),
    "order": ("order.swap", ("1",)),
}
"""Where d9d4906 wrote what was left out, and which keys were null there."""
CONSTANT = {
    **{"decoding.sum": "decoding.random_interval", "decoding.norm": "decoding.chance"},
    **{"decoding.layers": "decoding.layers.chance"},
}


def _numbers(found: Any, facts: dict[str, Any]) -> dict[str, Any]:
    """What d9d4906 wrote of a checkpoint, but for constants."""
    numbers: dict[str, Any] = {
        name: facts[name] for name in ("variant", "origin", "blocks", "heads", "width", "positions")
    }

    def put(name: str, value: Any) -> None:
        place = numbers
        *parts, last = name.split(".")
        for part in parts:
            if not isinstance(place.get(part), dict):  # `positions` were both a number and a measure
                place[part] = {}
            place = place[part]
        place[last] = float(f"{value:.8g}") if isinstance(value, float) else value

    def put_both(name: str, low: float, high: float) -> None:
        if low == low:
            put(name, [float(f"{bound:.8g}") for bound in (low, high)])

    mine = found.measures.query("checkpoint == @facts['checkpoint']")
    terms = mine[mine["measure"].str.startswith("terms.")]["layer"].min()
    for row in mine.itertuples():
        parent, _, last = row.measure.rpartition(".")
        kind = row.measure.split(".")[0]
        if kind == "terms" and row.layer != terms:
            continue
        told = kind != "terms" and row.measure[:16] != "positions.scores" and not pd.isna(row.layer)
        name = f"{parent}.{row.layer}.{last}" if told else row.measure
        first, second, *rest = row.measure.split(".")
        put(name, row.value)
        put_both(".".join([first, f"{second}_interval", *rest]), row.low, row.high)
        if parent in CONSTANT:
            both = (row.chance_low, row.chance_high) if parent == "decoding.sum" else (row.chance_low,)
            name = f"{CONSTANT[parent]}.{last}"
            put_both(name, *both) if len(both) == 2 else put(name, *both)
        elif last in ("mean_abs_cosine", "cosine"):
            put(f"{name}_random", math.sqrt(2 / (math.pi * facts["width"])))
            put_both(f"{name}_random_interval", row.chance_low, row.chance_high)
        elif kind in ("terms", "tables") and rest:
            put_both(".".join([first, f"{second}_random", *rest]), row.chance_low, row.chance_high)
        elif kind not in ("order", "decoding"):
            put_both(f"{name}_random", row.chance_low, row.chance_high)
    for measure, reason in found.left_out.query("checkpoint == @facts['checkpoint']")[["measure", "reason"]].to_numpy():
        place, keys = NULL.get(measure, (measure.rpartition(".")[0], (measure.rpartition(".")[2],)))
        if measure == "decoding.sum":
            put("decoding.random.position_accuracy", None)
        if measure == "terms.loss_rise":
            place, keys = measure, ()
        for key in keys:
            put(f"{place}.{key}", None)
        if measure in NULL or place == measure:
            put(f"{place}.left_out", reason)
    return numbers


def _tidy(found: Any) -> dict[str, pd.DataFrame]:
    """The frames of d9d4906 that are rows of the long table now."""
    rows = found.measures.assign(head=0)
    parts = rows["measure"].str.rsplit(".", n=1, expand=True)
    rows[["of", "last"]] = parts
    pairs = rows["last"].replace({"bias": "bias_bias"}).str.split("_", n=1, expand=True)
    terms = rows.assign(query=pairs[0], key=pairs[1], block=rows["layer"], head=0)
    order = {name: number for number, name in enumerate(rows["checkpoint"].unique())}
    frames = {}
    share = terms[terms["of"] == "terms.share"].rename(columns={"value": "share", "n": "sequences"})
    share = share.assign(at=share["checkpoint"].map(order)).sort_values(["at", "block", "head"], kind="stable")
    frames["terms_share"] = share[["checkpoint", "block", "head", "query", "key", "share", "low", "high", "sequences"]]
    turned = terms[terms["of"].str.startswith("terms.share_")].rename(columns={"value": "share"})
    turned = turned.assign(baseline=turned["of"].str.removeprefix("terms.share_"))
    frames["terms_baseline"] = turned[["checkpoint", "baseline", "query", "key", "share"]]
    kl, rise = (
        terms[terms["of"] == of].set_index(["checkpoint", "query", "key"]) for of in ("terms.kl", "terms.loss_rise")
    )
    effect = (
        kl[["value", "low", "high"]]
        .set_axis(["kl", "kl_low", "kl_high"], axis=1)
        .join(rise[["value", "low", "high"]].set_axis(["loss_rise", "loss_rise_low", "loss_rise_high"], axis=1))
    )
    frames["terms_effect"] = effect.reset_index()
    frames["decoding"] = _decoding(rows)
    layers = rows[rows["of"] == "layers"].pivot(index=["checkpoint", "layer"], columns="last")
    layers = layers.reindex(
        pd.MultiIndex.from_frame(rows[rows["of"] == "layers"][["checkpoint", "layer"]].drop_duplicates())
    )
    told = []
    for part in ("position", "context", "residual"):
        each = layers[[("value", part), ("chance_low", part), ("chance_high", part)]].set_axis(
            ["share", "low", "high"], axis=1
        )
        extra = {"rank": layers[("value", "rank")], "cosine": layers[("value", "cosine")]}
        width = each.index.get_level_values(0).map(found.subjects.set_index("checkpoint")["width"])
        extra["cosine_random"] = pd.Series((2 / (math.pi * width)) ** 0.5, index=each.index)
        told.append(each.assign(part=part, **(extra if part == "position" else {})))
    told = pd.concat(told).reset_index()
    told["at"] = told["checkpoint"].map(order)
    told = told.sort_values(["at", "layer"], kind="stable")
    names = ["checkpoint", "layer", "part", "share", "low", "high", "rank", "cosine", "cosine_random"]
    frames["layers"] = told[names]
    seen = rows[rows["of"] == "positions.attention"].assign(block=rows["layer"], head=0)
    keys = ["checkpoint", "block", "head"]
    wide = seen.pivot(index=keys, columns="last", values="value")
    wide = wide.reindex(pd.MultiIndex.from_frame(seen[keys].drop_duplicates())).reset_index()
    frames["attention"] = wide[[*keys, "within_1", "within_2", "within_5", "left_minus_right"]]
    mean = seen[seen["head"] == 0].rename(columns={"chance_low": "lowest", "chance_high": "highest"})
    mean = mean.assign(measure=mean["last"], low=mean["lowest"], high=mean["highest"])
    frames["attention_baseline"] = mean[["checkpoint", "block", "measure", "value", "low", "high"]]
    frames["positions_probe"] = _probes(rows)
    ordered = rows[rows["measure"].str.startswith("order.")]
    names = ordered["measure"].str.removeprefix("order.").str.replace(".", "_")
    half = (ordered["high"] - ordered["low"]) / 2
    frames["order"] = ordered.assign(measure=names, half=half, chance=ordered["chance_low"])[
        ["checkpoint", "measure", "value", "chance", "n"]
    ]
    return {name: frame.reset_index(drop=True) for name, frame in frames.items() if len(frame)}


def _decoding(rows: pd.DataFrame) -> pd.DataFrame:
    told = []
    for label, mine in rows[rows["of"].str.startswith("decoding.")].groupby("checkpoint", sort=False):
        by = mine.set_index(["of", mine["layer"].astype("object").where(mine["layer"].notna(), None), "last"])
        places = [("decoding.sum", None), ("decoding.norm", None)]
        places += [("decoding.layers", layer) for layer in sorted(mine["layer"].dropna().unique())]
        values = {(of, layer, last): row for (of, layer, last), row in zip(by.index, by.itertuples(), strict=True)}
        values = {(of, None if pd.isna(layer) else int(layer), last): row for (of, layer, last), row in values.items()}
        for of, layer in places:
            if (of, layer, "word_accuracy") not in values:
                continue
            name = of.removeprefix("decoding.") if layer is None else str(layer)
            luck = "decoding.norm" if layer is None else of
            for what in ("position", "word"):
                row, chance = values[of, layer, f"{what}_accuracy"], values[luck, layer, f"{what}_accuracy"]
                error = values[of, layer, "position_mae"].value if what == "position" else math.nan
                by_luck = values[luck, layer, "position_mae"].chance_low if what == "position" else math.nan
                random = values["decoding.random", None, f"{what}_accuracy"].value if name == "sum" else math.nan
                told.append((label, name, what, row.value, chance.chance_low, error, by_luck, random))
    names = ["checkpoint", "layer", "what", "accuracy", "chance", "mae", "mae_chance", "random"]
    return pd.DataFrame(told, columns=names)


def _probes(rows: pd.DataFrame) -> pd.DataFrame:
    told = []
    mine = rows[rows["of"] == "positions"].set_index(["checkpoint", "last"])
    for label in mine.index.get_level_values(0).unique():
        for probe in ("absolute_mae", "order_accuracy"):
            row = mine.loc[(label, probe)]
            told.append((label, probe, "own", row["value"], math.nan, math.nan))
            middle = (row["chance_low"] + row["chance_high"]) / 2
            told.append((label, probe, "random", middle, row["chance_low"], row["chance_high"]))
            for other in ("shuffled", "sinusoid"):
                told.append((label, probe, other, mine.loc[(label, f"{probe}_{other}")]["value"], math.nan, math.nan))
    return pd.DataFrame(told, columns=["checkpoint", "probe", "table", "value", "low", "high"])
