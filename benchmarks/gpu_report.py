"""The tables of benchmarks/gpu.py, and what failed or differs."""

from typing import Any

import pandas as pd

import common
from checks import worst_difference
from common import SCRATCH_SIZES
from gpu_scale import COMPILED, ROUNDS, Scale

Result = dict[str, Any]
PEAK_FLOPS = {"H100": 989e12, "H200": 989e12}
"""Of dense products in bf16, by a part of a card's name, as NVIDIA states them."""
TRAIN_ROWS = {
    "cola": 8551,
    "sst2": 67349,
    "mrpc": 3668,
    "stsb": 5749,
    "qqp": 363846,
    "mnli": 392702,
    "qnli": 104743,
    "rte": 2490,
    "wnli": 635,
}
MEASURED_FOR = {"cola": "cola", "sst2": "sst2", "qnli": "rte", "rte": "rte"}
"""At which task's rows per second a task's training is extrapolated; at MNLI's for all others."""
GLUE_EPOCHS = 3


def report(scale: Scale, kept: Result) -> list[str]:
    """All tables."""
    environment = kept["environment"]
    results: dict[str, dict[str, Result]] = {}
    for key, outcome in kept["steps"].items():
        section, name = key.split(": ", 1)
        if "result" in outcome:
            result = dict(outcome["result"])
            result.pop("peak_bytes", None)
            results.setdefault(section, {})[name] = result
    parts = []
    if scale.device == "cpu":
        parts.append("On a CPU nothing is captured: with graphs, steps have fixed shapes.")
    if "agreement" in results:
        differences = pd.DataFrame.from_dict(results["agreement"], orient="index")
        parts.append(common.table(differences.map(text_of), "variant"))
    if "resume" in results:
        outcomes = pd.DataFrame.from_dict(results["resume"], orient="index")
        named = outcomes.rename(columns={"equal": "continued run equal"})
        parts.append(common.table(named.map({True: "yes", False: "no"}.get).fillna(""), "resume"))
    if "pretraining" in results:
        parts.append(pretraining_table(scale, results["pretraining"]))
    if "fine-tuning" in results:
        parts.append(finetuning_table(scale, results["fine-tuning"]))
    if "sharing" in results:
        rates = pd.DataFrame.from_dict(results["sharing"], orient="index")
        parts.append(common.table(rates.map("{:,.0f}".format), "sharing"))
    parts += [f"FAILED {fault}" for fault in faults(kept)]
    versions_text = ", ".join(
        f"{name} {number}" for name, number in environment["packages"].items()
    )
    commit = (environment.get("git_commit") or "unknown")[:16]
    return [*parts, f"{card(scale)}; {versions_text}; Python {environment['python']}; {commit}"]


def card(scale: Scale) -> str:
    """The name of the device."""
    from glue_bench.training.device import choose_compute

    compute = choose_compute(scale.device, scale.precision)
    return f"{compute.name}, {scale.precision}"


def text_of(value: Any) -> str:
    return f"{value:.2g}" if isinstance(value, float) else str(value)


def flops_of_a_token(size: str, length: int, vocabulary: int = 8000, share: float = 0.15) -> float:
    """Floating-point operations of a token in pretraining: three times those of a forward pass.

    Forward: two for each weight of a block's products (4 d^2 in attention, 8 d^2 in the feed-forward layer); 4 l d a
    block for scores and their sum over values; and the head, d^2 + d V weights, on the share that is masked.
    """
    hidden, blocks, _ = SCRATCH_SIZES[size]
    block = 2 * 12 * hidden**2 + 4 * length * hidden
    head = 2 * (hidden**2 + hidden * vocabulary)
    return 3 * (blocks * block + share * head)


def pretraining_table(scale: Scale, results: dict[str, Result]) -> str:
    """Medians over rounds: tokens per second without padding, and the part of the card's peak."""
    rows = {}
    peaks = [peak for name, peak in PEAK_FLOPS.items() if name in card(scale)]
    for size, (rows_of_batch, length) in scale.pretraining.items():
        for contender in scale.contenders:
            rounds = rounds_of(results, f"{size}, {contender}")
            if not rounds:
                continue
            speeds = []
            for result in rounds:
                tokens = result["tokens"] / scale.pretraining_steps
                speeds.append(tokens / result["step_seconds"])
            speed = float(pd.Series(speeds).median())
            used = speed * flops_of_a_token(size, length)
            rows[f"{size}, {rows_of_batch} x {length}, {contender}"] = {
                "tokens/s": f"{speed:,.0f}",
                "model TFLOP/s": f"{used / 1e12:.3g}",
                "utilisation": f"{used / peaks[0]:.1%}" if peaks else "",
                "rounds": str(len(rounds)),
            }
    return common.table(pd.DataFrame.from_dict(rows, orient="index"), "pretraining")


def finetuning_table(scale: Scale, results: dict[str, Result]) -> str:
    """Medians over rounds: rows per second, and the whole of GLUE extrapolated from them."""
    rows = {}
    for size in scale.finetuning:
        for contender in scale.contenders:
            speeds: dict[str, float] = {}
            for task in scale.tasks:
                rounds = rounds_of(results, f"{size}, {task}, {contender}")
                if rounds:
                    seconds = pd.Series([result["step_seconds"] for result in rounds[1:] or rounds])
                    speeds[task] = 32 / float(seconds.median())
            if speeds:
                row = {f"{task}, rows/s": f"{speed:,.0f}" for task, speed in speeds.items()}
                if contender == COMPILED and "mnli" in speeds:  # the same for rows of one length
                    speeds = dict.fromkeys(TRAIN_ROWS, speeds["mnli"])
                row["GLUE, 3 epochs (extrapolated)"] = glue_minutes(speeds)
                rows[f"{size}, {contender}"] = row
    return common.table(pd.DataFrame.from_dict(rows, orient="index").fillna(""), "fine-tuning")


def glue_minutes(speeds: dict[str, float]) -> str:
    """Minutes of training on all nine tasks, from rows per second of four; "" if one is not measured."""
    seconds = 0.0
    for task, rows in TRAIN_ROWS.items():
        measured = MEASURED_FOR.get(task, "mnli")
        if measured not in speeds:
            return ""
        seconds += GLUE_EPOCHS * rows / speeds[measured]
    return f"{seconds / 60:.1f} min"


def rounds_of(results: dict[str, Result], prefix: str) -> list[Result]:
    """The rounds of a contender, in order."""
    names = [f"{prefix}, {number}" for number in range(ROUNDS)]
    return [results[name] for name in names if name in results]


def faults(kept: Result) -> list[str]:
    """What failed or differs."""
    texts = []
    for key, outcome in kept["steps"].items():
        if "error" in outcome:
            texts.append(f"{key}: {outcome['error']}")
            continue
        result = outcome["result"]
        if key.startswith("agreement"):
            fault = worst_difference(result)
            if fault:
                texts.append(f"{key}: {fault}")
        if result.get("captured") is False:
            texts.append(f"{key}: steps were not captured")
        # A device on which no two runs are equal says nothing about continued ones.
        if result.get("repeated run equal") and not result["equal"]:
            texts.append(f"{key}: the continued run ends with other weights")
    return texts
