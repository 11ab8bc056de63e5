"""What the benchmarks share: contenders in processes of their own, rounds in turns, ratios, and the machine's name."""

import json
import multiprocessing
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import torch
import typer

from glue_bench.config import Experiment, load_experiment
from glue_bench.records.environment import versions
from glue_bench.records.values import Cell
from glue_bench.sweep.plan import settle_jobs
from glue_bench.training.device import choose_compute, is_faster_in_bf16
from glue_bench.training.inputs import Inputs
from glue_bench.training.memory import peak_bytes, reset_peak
from glue_bench.training.quiet import quiet_transformers

SCRATCH_SIZES = {
    "scratch-tiny": (64, 2, 2),
    "scratch-study": (128, 2, 2),
    "scratch-mini": (256, 4, 4),
    "scratch-small": (512, 4, 8),
    "scratch-minilm": (384, 6, 12),
    "scratch-base": (768, 12, 12),
}
"""Hidden size, blocks and heads of BERTs with random weights."""
OURS = "glue-bench"
LOAD = os.getloadavg()[0] if hasattr(os, "getloadavg") else None  # before anything of ours runs
MAX_LENGTH = 128
WARM_UP = 3  # steps of the untimed round
Rounds = list[dict[str, dict[str, Any]]]
Round = Callable[[int], dict[str, Any]]

Data = Annotated[str, typer.Option(help="demo, hub, or a folder of GLUE's TSV files.")]
Tasks = Annotated[
    list[str] | None, typer.Option("--task", help="rte unless given. May be given again.")
]
Turns = Annotated[int, typer.Option("--rounds", help="How often every contender is timed.")]
Steps = Annotated[int, typer.Option(help="Batches in a round.")]
Checkpoint = Annotated[
    str, typer.Option(help=f"A folder, or random weights: {', '.join(SCRATCH_SIZES)}.")
]
Device = Annotated[Literal["auto", "cpu", "cuda"], typer.Option()]
Precision = Annotated[
    Literal["auto", "float32", "bf16"], typer.Option(help="auto: bf16 where it is faster.")
]
Threads = Annotated[int | None, typer.Option(help="CPU threads; all unless given.")]
Json = Annotated[Path | None, typer.Option(help="Keep every measurement in this file.")]


@dataclass(frozen=True)
class Settings:
    """One contender's cell: `data` is demo, hub or a folder, `checkpoint` a folder, `variant` that of our arm."""

    data: str
    task: str
    checkpoint: str
    batch_size: int = 32
    device: str = "cpu"
    precision: str = "float32"
    variant: str = "add"
    graph: bool = False

    @property
    def experiment(self) -> Experiment:
        """The cell as an experiment of one."""
        arm = {"name": self.variant, "variant": self.variant, "checkpoint": self.checkpoint}
        finetuning = {
            "learning_rates": [5e-5],
            "epochs": 1,
            "batch_size": self.batch_size,
            "max_length": MAX_LENGTH,
        }
        what = {"data": self.data, "tasks": [self.task], "seeds": [1], "arms": [arm]}
        return load_experiment({"name": "benchmark", **what, "finetuning": finetuning})

    def cell(self, inputs: Inputs) -> Cell:
        """The one cell; `inputs` are those of `experiment`."""
        return settle_jobs(inputs)[1][0]

    def rows(self, available: int, steps: int) -> np.ndarray:
        """Which rows of train `steps` batches are made of: the first ones of one permutation, drawn anew past its end.

        A sample, not the first rows of the file, whose lengths need not be those of the whole.
        """
        return np.resize(np.random.default_rng(1).permutation(available), steps * self.batch_size)


def checkpoint_folder(name: str, data: str, task: str, aside: Path) -> str:
    """The folder `name`, or a BERT of a scratch size with random weights and a tokenizer of the task's own text."""
    if name not in SCRATCH_SIZES:
        return name
    from transformers import BertConfig, BertModel

    from glue_bench.data.sources import open_source
    from glue_bench.training.tokenizers import train_tokenizer

    quiet_transformers()
    train = open_source(data).load(task).splits["train"]
    texts = [
        text
        for column in train.columns.intersection(["text_a", "text_b"])
        for text in train[column]
    ]
    tokenizer = train_tokenizer(texts, 8000)
    hidden, blocks, heads = SCRATCH_SIZES[name]
    torch.manual_seed(0)
    sizes = {"vocab_size": len(tokenizer), "hidden_size": hidden, "num_hidden_layers": blocks}
    config = BertConfig(
        **sizes, num_attention_heads=heads, intermediate_size=4 * hidden, pad_token_id=0
    )
    BertModel(config).save_pretrained(aside)
    tokenizer.save_pretrained(aside)
    return str(aside)


def settle(device: str, precision: str, threads: int | None) -> tuple[str, str]:
    """What `auto` stands for on this machine; before the first worker is started, which inherits the environment."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if precision == "auto":
        precision = "bf16" if device == "cuda" or is_faster_in_bf16("cpu") else "float32"
    # One card: transformers' Trainer would spread a batch over all that it sees.
    cards = "" if device == "cpu" else os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": cards}
    os.environ |= {"OMP_NUM_THREADS": str(threads)} if threads else {}
    return device, precision


class Worker:
    """A process that calls `make(*arguments)` once, and the round that this returns whenever it is asked.

    A process of its own keeps a contender's peak memory apart from the others'.
    """

    def __init__(self, make: Callable[..., Round], *arguments: Any) -> None:
        context = multiprocessing.get_context(
            "spawn"
        )  # a fork would share what the others have loaded
        self._pipe, end = context.Pipe()
        self._process = context.Process(target=serve, args=(end, make, arguments), daemon=True)
        self._process.start()
        end.close()

    def round(self, steps: int) -> dict[str, Any]:
        """One round of `steps` steps: what it returns, `tokens_per_second`, and `peak_bytes` beyond the imports.

        Raises RuntimeError where the round failed, or its process ended.
        """
        self._pipe.send(steps)
        try:
            result, error = self._pipe.recv()
        except EOFError as ended:
            self._process.join()
            raise RuntimeError(f"a worker ended with exit code {self._process.exitcode}") from ended
        if error:
            raise RuntimeError(error)
        return result

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.join()


def serve(pipe: Connection, make: Callable[..., Round], arguments: tuple[Any, ...]) -> None:
    """What a worker's process does until the pipe is closed."""
    import torch._dynamo  # an optimiser's first use imports it: it belongs to the imports of all contenders

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    reset_peak(device)
    imports = (peak_bytes(device) or 0) if device.type == "cpu" else 0
    work: Round | None = None
    with suppress(EOFError):  # the other end is closed
        while True:
            steps = pipe.recv()
            try:
                work = work or make(*arguments)
                result = work(steps)
                if "training_seconds" in result:
                    result["tokens_per_second"] = result["tokens"] / result["training_seconds"]
                peak = peak_bytes(device)
                pipe.send((result | {"peak_bytes": None if peak is None else peak - imports}, None))
            except Exception:
                pipe.send((None, traceback.format_exc()))


def timed(workers: Mapping[str, Worker], rounds: int, steps: int, warm_up: int = WARM_UP) -> Rounds:
    """Rounds of all workers in turns, never two at once, after an untimed one; the workers are closed."""
    try:
        for worker in workers.values():
            worker.round(warm_up)
        return [
            {name: worker.round(steps) for name, worker in workers.items()} for _ in range(rounds)
        ]
    finally:
        for worker in workers.values():
            worker.close()


def column(rounds: Rounds, key: str) -> pd.DataFrame:
    """One figure of every run: a row a round, a column a run."""
    return pd.DataFrame(
        [{name: result[key] for name, result in turn.items()} for turn in rounds]
    ).astype(float)


def with_quartiles(values: pd.DataFrame, decimals: int) -> dict[str, str]:
    """`median (lower quartile to upper quartile)` of each column."""
    low, middle, high = (
        values.quantile(q).map(f"{{:,.{decimals}f}}".format) for q in (0.25, 0.5, 0.75)
    )
    return {name: f"{middle[name]} ({low[name]} to {high[name]})" for name in values}


def speed_table(rounds: Rounds) -> str:
    """A row a contender; a ratio is of one round, above 1 where ours is faster. Memory: the most until the last round.

    `cell`, where rounds have it: seconds from the checkpoint's folder to the validation scores.
    """
    speed = column(rounds, "tokens_per_second")
    ratios = speed.rdiv(speed[OURS], axis=0)
    columns = {"tokens/s": with_quartiles(speed, 0), "ours / peer": with_quartiles(ratios, 2)}
    if "total_seconds" in rounds[0][OURS]:
        seconds = column(rounds, "total_seconds")
        columns["cell (s)"] = with_quartiles(seconds, 2)
        columns["peer / ours, cell"] = with_quartiles(seconds.div(seconds[OURS], axis=0), 2)
    memory = column(rounds, "peak_bytes").iloc[-1] / 2**20
    columns["peak memory (MiB)"] = {name: f"{value:,.0f}" for name, value in memory.items()}
    return table(pd.DataFrame(columns), "contender")


def table(texts: pd.DataFrame, first: str) -> str:
    """Texts as a Markdown table; the column of row names is headed `first`."""
    return texts.rename_axis(first).to_markdown(
        disable_numparse=True, colalign=["left", *["right"] * texts.shape[1]]
    )


def machine(*, device: str, precision: str, threads: int | None = None) -> str:
    """Processor, device, cores, threads, versions and load: what figures are worth nothing without."""
    made = versions()
    packages = ", ".join(
        f"{name} {version(name)}" for name in ("torch", "transformers", "accelerate")
    )
    load = "" if LOAD is None else f", load {LOAD:.1f} when it began"
    where = (
        made.processor
        if device == "cpu"
        else f"{choose_compute(device).name} with {made.processor}"
    )
    return (
        f"{where}, {os.cpu_count()} cores, {threads or torch.get_num_threads()} threads, {precision}{load}; "
        f"{packages}, Python {made.python}, {made.platform}, glue-bench {(made.git_commit or 'unknown')[:10]}"
    )


def report(parts: Sequence[str], rounds: Any, to: Path | None) -> None:
    """Print the parts and the command; keep them and every single measurement in a JSON file."""
    parts = [*parts, f"```console\npython {shlex.join(sys.argv)}\n```"]
    print("\n\n".join(parts))
    if to is not None:
        kept = {"report": parts, "rounds": rounds, "environment": versions().document()}
        to.write_text(json.dumps(kept, indent=1) + "\n")
