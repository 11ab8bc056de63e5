"""What a JSON file of `gpu.py` says, in one short table."""

from typing import Any

from glue_bench.data.tasks import TASKS, TRAINABLE
from glue_bench.reporting.markdown import aligned
from gpu_results import GOOD

OURS = "glue-bench"


def to_table(content: dict[str, Any]) -> str:
    """A row a part; of what is timed a row a contender."""
    rows: dict[str, str] = {}
    for part, found in content["parts"].items():
        items = found["items"]
        rows[part] = _counts(items)
        rows |= {f"{part}: {name}": text for name, text in _figures(items).items()}
    return aligned([["what", "result"], *map(list, rows.items())], {0, 1})


def _counts(items: dict[str, Any]) -> str:
    """How many are good, the largest share of a limit that was used up, and what went wrong."""
    good = [record for record in items.values() if record["status"] in GOOD]
    used = [
        record["figures"][name] / limit
        for record in good
        for name, limit in record.get("limits", {}).items()
        if limit  # of a count none is allowed
    ]
    bad = [f"{name} {record['status']}" for name, record in items.items() if record["status"] not in GOOD]
    worst = f", at most {max(used):.2g} of a limit" if used else ""
    return "; ".join([f"{len(good)} of {len(items)}{worst}", *bad])


def _figures(items: dict[str, Any]) -> dict[str, str]:
    """Speeds, each beside ours; seconds of all of GLUE as one row."""
    measured = {name: record["figures"] for name, record in items.items() if record["status"] == "measured"}
    if any("trained_rows" in figures for figures in measured.values()):
        return {"in all": _whole(measured)}
    return {name: _speed(name, figures, measured) for name, figures in measured.items()}


def _speed(name: str, figures: dict[str, Any], measured: dict[str, Any]) -> str:
    if "times_faster" in figures:
        return (
            f"{figures['cells']} cells in {figures['at_once']:.1f} s at once, {figures['one_after_another']:.1f} s one "
            f"after another: {figures['times_faster']:.2f} times as fast"
        )
    ours = measured.get(f"{name.split(', ')[0]}, {OURS}")
    words = [f"{figures['tokens_per_second']:,.0f} tokens/s"]
    if ours and ours is not figures:
        words.append(f"ours {ours['tokens_per_second'] / figures['tokens_per_second']:.2f} times that")
    if "of_peak" in figures:
        words.append(f"{figures['of_peak']:.0%} of peak")
    if figures["peak_mib"] is not None:
        words.append(f"{figures['peak_mib']:,.0f} MiB")
    if "later_cell_seconds" in figures:
        words.append(f"first cell {figures['first_cell_seconds']:.1f} s, later {figures['later_cell_seconds']:.2f} s")
    return ", ".join(words)


def _whole(measured: dict[str, Any]) -> str:
    seconds = {task: f["train"] * f["trained_rows"] + f["score"] * f["scored_rows"] for task, f in measured.items()}
    missing = [TASKS[task].title for task in TRAINABLE if task not in measured]
    words = f"{sum(seconds.values()) / 60:.1f} minutes for three epochs of {len(seconds)} tasks"
    return words + (f"; without {', '.join(missing)}" if missing else "")
