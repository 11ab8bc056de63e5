"""Compare the package of the current folder with values of commit d9d4906.

python tests/frozen/compare.py [bits|losses|tokens|frames|analysis|data ...] [--quick] [--across]

One line a kind: equal, or what differs and by how much; exit status 1 on a difference. Without a kind: all.
"""

import argparse
import importlib
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
os.environ |= {"TOKENIZERS_PARALLELISM": "false", "ACCELERATE_MIXED_PRECISION": "no", "GLUE_BENCH_PRECISION": "float32"}
sys.path.insert(0, str(Path.cwd()))

import numpy as np
import pandas as pd
import sets
import torch

KINDS = ("bits", "losses", "tokens", "data", "frames", "analysis")
TOLERANCE = {"analysis": 1e-6, "frames": 1e-9}
"""The largest difference that counts as none, of values above LARGE in proportion; 0 for the other kinds."""
LARGE = 100.0
CONSTANTS = (
    *(r"terms\.(?:block|sequences|baseline_sequences|kl_sequences|share\.left_out)", r"layers\.sequences"),
    *(r"subspaces\.(?:rotations|words|positions|width)", r"dimensions\.(?:width|permutations|sinusoid\..*)"),
    *(r"decoding\.(?:pairs\..*|collisions\.sums|random\.left_out)", r"decoding\.(?:layers\.)?position_mae_constant"),
    *(r"decoding\.layers\.sequences", r"positions\.(?:scores\.)?positions", r"positions\.absolute_mae_constant"),
    *(r"positions\.order_chance", r"order\.(?:sequences|chance\..*)"),
)
"""What an analysis no longer repeats for each checkpoint, or has in the columns `layer` and `n` of its table."""
CHANGED = {
    "losses": "(?: native-| shuffled )",
    "tokens": r"_shuffled\.",
    "analysis": f"^finetuned | (?:{'|'.join(CONSTANTS)})$",
}
"""Rows that are meant to differ, by what their first two columns have. Native arms: the last block is computed of all
tokens, as transformers does, and no longer of [CLS] alone, so that its dropout draws more numbers. GLUE with shuffled
words is gone.
"""
ACROSS = 1e-6
"""Between processors, of values above 1 in proportion; a frame's column `across` may say another one for a row."""
SHOWN = 12
ACCEPTED = {
    r"minilm_(pairs|letters|power)": "a converted arm is in one group, with the arm that it was made from: its pairs "
    "and its power are of that group",
    r"\w+_(arms|counts)_\w+: no longer there$": "only marks and CSV show them, of which there are files",
    r"\w+_power\w*: no column best_finetuning_seeds$": "the cheapest design says it",
    r"\w+_columns_\w+: no column \w+_seeds$": "no page shows them",
    r"\w+_letters: no longer there$": "there are no tables of all pairs",
    r"\w+_columns_\w+: no column constant$": "the majority class stands among the baselines",
    r"\w+_budget: no column recipe$": "recipes are gone: one version of the format, one number in every id",
    "frame_order: no column standard_error": "a measure has its interval",
    "frame_positions_scores: no longer there$": "it had the single heads, whose means are among the numbers",
    "frame_(positions_cosine|spectrum|dimensions|terms|terms_heads): no longer there$": "no figure draws them",
    "frame_order_glue: no longer there$": "GLUE with shuffled words is gone",
    r"\w+_paper_.*: no column (low|high|inside)$": "published tables have no intervals of ours: none was ever tested",
    r"\w+_paper_.*\.column: ": "columns of published tables are named as ours",
    r"\w+_paper_.*: no column unlike$": "in what theirs and ours differ stands in a table of its own",
}
"""Frames and columns that were changed on purpose since, and why."""
REORDERED = r"\w+_losses$"
"""Frames whose rows were in the order of ids, which are others now."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; without one: all")
    parser.add_argument(
        "--quick", action="store_true", help="a part: 54 settings of bits, two runs of losses, no real data"
    )
    parser.add_argument("--across", action="store_true", help="compare with sets of other processors, to 1e-6")
    parser.add_argument("--make", action="store_true", help="store the values of d9d4906, which is the current folder")
    parser.add_argument("--all", action="store_true", help="show every difference, not the first twelve of a kind")
    asked = parser.parse_args()
    if unknown := set(asked.kinds) - set(KINDS):
        parser.error(f"no kind {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    adapter = importlib.import_module("original" if asked.make else "adapter")
    package = Path(importlib.import_module("glue_bench").__file__ or "").parent
    if package.parent != Path.cwd():
        parser.error(f"the package comes from '{package}'; call this from a checkout's root")
    differs = False
    for kind in asked.kinds or KINDS:
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as cache:
            os.environ["GLUE_BENCH_CACHE"] = cache
            found = importlib.import_module(kind).values(adapter, asked.quick)
        if asked.make:
            sets.write(sets.place(kind), found)
        else:
            differs |= report(kind, found, asked, began)
    return int(differs)


def report(kind: str, found: dict[str, pd.DataFrame], asked: argparse.Namespace, began: float) -> bool:
    """Print how the values found differ from the stored ones; returns whether they do."""
    places, differs = _stored(kind, asked.across), False
    if not places:
        print(f"{kind}: NOT COMPARED, there is no set to compare with", flush=True)
        return True
    for place in places:
        is_across = kind in sets.BOUND and place != sets.place(kind)
        stored, notes, largest = sets.read(place), [], 0.0
        stored, found = (_unchanged(each, CHANGED.get(kind)) for each in (stored, found))
        if kind == "analysis":  # what a document has in another order is the same
            for frames in (stored, found):
                frames["numbers"] = frames["numbers"].sort_values(["source", "name"], ignore_index=True)
                for name, frame in frames.items():
                    frames[name] = frame[frame["head"] == 0].reset_index(drop=True) if "head" in frame else frame
        away = {name for name in stored if name.startswith("shared") and not sets.shared()}
        if asked.quick:
            away |= stored.keys() - found.keys()
        for name in sorted((stored.keys() | found.keys()) - away):
            more, by = _frame(
                name,
                _part(stored, found, name, asked.quick),
                found.get(name),
                None if is_across else TOLERANCE.get(kind, 0.0),
            )
            notes += more
            largest = max(largest, by)
        notes = [note for note in notes if not _is_accepted(note)]
        rows = sum(map(len, found.values()))
        said = f"DIFFERS in {len(notes)} places" if notes else f"equal to {sets.COMMIT}"
        with_whom = f", with {place.name.removesuffix('.tar.xz')}" if is_across else ""
        print(f"{kind}: {said} ({rows} rows, largest difference {largest:.3g}, {_seconds(began)}{with_whom})")
        print("".join(f"  {note}\n" for note in (notes if asked.all else notes[:SHOWN])), end="", flush=True)
        differs |= bool(notes)
    return differs


def _unchanged(frames: dict[str, pd.DataFrame], changed: str | None) -> dict[str, pd.DataFrame]:
    """The frames without the rows that are meant to differ."""
    if changed is None:
        return frames
    named = {name: frame.iloc[:, :2].astype(str).agg(" ".join, axis=1) for name, frame in frames.items()}
    kept = {name: ~labels.str.contains(changed) for name, labels in named.items()}
    return {name: frame[kept[name]].reset_index(drop=True) for name, frame in frames.items()}


def _seconds(began: float) -> str:
    return f"{time.perf_counter() - began:.0f} s"


def _stored(kind: str, across: bool) -> list[Path]:
    """The sets to compare with: this machine's, made first if need be, or those of other kinds of processor."""
    mine, others = sets.place(kind), sets.others(kind)
    if across and kind in sets.BOUND:
        return others
    if not mine.is_file():
        try:
            print(f"{kind}: no set {mine.name}; making it from {sets.COMMIT}", flush=True)
            sets.make(kind)
        except subprocess.CalledProcessError:
            print(f"{kind}: it cannot be made here; comparing with other processors to {ACROSS:g}")
            return others
    return [mine]


def _part(
    stored: dict[str, pd.DataFrame], found: dict[str, pd.DataFrame], name: str, quick: bool
) -> pd.DataFrame | None:
    """The stored frame; with `quick` its rows of what was asked for, as their first column says."""
    whole, mine = stored.get(name), found.get(name)
    if not quick or whole is None or mine is None:
        return whole
    return whole[whole.iloc[:, 0].isin(mine.iloc[:, 0])].reset_index(drop=True)


def _keys(frame: pd.DataFrame) -> list[str]:
    """The columns that say what a row is about."""
    return [name for name in frame if _is_text(frame[name]) and not str(name).startswith(("bits", "digest"))]


def _frame(
    name: str, stored: pd.DataFrame | None, found: pd.DataFrame | None, tolerance: float | None
) -> tuple[list[str], float]:
    """What differs between two frames, and the largest difference of a number. No tolerance: another processor's."""
    if stored is None or found is None:
        return [f"{name}: {'not stored' if stored is None else 'no longer there'}"], 0.0
    if re.match(REORDERED, name):
        stored, found = (each.sort_values(list(stored), ignore_index=True) for each in (stored, found))
    keys = _keys(stored)
    notes = [f"{name}: no column {column}" for column in stored if column not in found]
    notes += [f"{name}: a new column {column}" for column in found if column not in stored]
    if len(stored) != len(found):
        return [*notes, f"{name}: {len(found)} rows, not {len(stored)}{_unmatched(stored, found, keys)}"], 0.0
    largest = 0.0
    for column in [column for column in stored if column in found]:
        note, by = _column(stored, found, column, keys, tolerance)
        if note and _is_accepted(f"{name}.{column}: {note}"):
            continue
        notes += [f"{name}.{column}: {note}"] if note else []
        largest = max(largest, by)
    return notes, largest


def _is_accepted(note: str) -> bool:
    return any(re.match(pattern, note) for pattern in ACCEPTED)


def _unmatched(stored: pd.DataFrame, found: pd.DataFrame, keys: list[str]) -> str:
    """Some of the rows that only one of two frames has."""
    if not keys or not set(keys) <= set(found):
        return ""
    old, new = (list(map(" ".join, frame[keys].astype(str).to_numpy())) for frame in (stored, found))
    lost, added = ([row for row in some if row not in set(other)][:3] for some, other in ((old, new), (new, old)))
    return f"; lost, for example: {lost}; new: {added}"


def _column(
    stored: pd.DataFrame, found: pd.DataFrame, column: str, keys: list[str], tolerance: float | None
) -> tuple[str, float]:
    """How a column differs, with the row where it differs most, and by how much."""
    old, new, by = stored[column], found[column].reset_index(drop=True), 0.0
    if _is_text(old):
        if str(column).startswith("bits") and tolerance is None:
            return "", 0.0
        wrong = (old.fillna("") != new.fillna("")).to_numpy()
        worst = int(wrong.argmax())
    else:
        before, after = (_numbers(each) for each in (old, new))
        apart = np.where(before == after, 0.0, np.abs(after - before))
        apart = np.where(np.isnan(before) & np.isnan(after), 0.0, np.where(np.isnan(apart), np.inf, apart))
        size = np.nan_to_num(np.abs(before), posinf=1.0)
        if tolerance is None:
            allowed = (stored["across"].to_numpy() if "across" in stored else ACROSS) * np.maximum(1.0, size)
        else:
            allowed = tolerance * np.maximum(1.0, size / LARGE)
            if "within" in stored:  # rows that need not have the same bits
                allowed = np.maximum(allowed, stored["within"].to_numpy())
        wrong = apart > allowed
        worst, by = int(apart.argmax()) if len(apart) else 0, float(apart.max(initial=0.0))
    if not wrong.any():
        return "", by
    where = " ".join(str(stored[key].iloc[worst]) for key in keys if key != column)
    said = f"{wrong.sum()} of {len(wrong)} rows differ, most: {old.iloc[worst]} -> {new.iloc[worst]}"
    return f"{said} (row {worst}{': ' + where if where else ''})", by


def _numbers(column: pd.Series) -> np.ndarray:
    return pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan)


def _is_text(column: pd.Series) -> bool:
    return not (pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column))


if __name__ == "__main__":
    sys.exit(main())
