"""How fast text of any size is packed, and how much memory it takes to pack it and to pretrain on it.

    python benchmarks/pack_text.py --corpus TEXT_FOLDER --megabytes 1000

The files of the corpus are repeated in random orders, and within each file its lines in blocks, until there is so much
text; all of it lies in a temporary folder, like the cache, and goes when the benchmark ends. One process then does what
a run does: it checks the text, trains a WordPiece vocabulary, packs, and pretrains a tiny `add`. Memory is the peak of
the resident set of each stage, pages of mapped files included.
"""

import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from cells import SCRATCH_SIZES
from glue_bench.config import Arm, Experiment, Pretraining, ScratchEncoder
from measure import command, machine, report, row_table
from options import Json, Threads
from workers import set_environment

LINES = 200  # of a block that stays as it is
Made = TypeVar("Made")


def main(
    corpus: Annotated[Path, typer.Option(help="English text: a folder of .txt files.")],
    megabytes: Annotated[int, typer.Option(help="Of text.")] = 1000,
    files: Annotated[int, typer.Option(help="That the text is written to.")] = 20,
    steps: Annotated[int, typer.Option(help="Of pretraining.")] = 200,
    threads: Threads = None,
    json: Json = None,
) -> None:
    """Print seconds, megabytes and tokens per second, and the peak of memory, of each stage."""
    set_environment("cpu", "no", threads)
    with tempfile.TemporaryDirectory() as aside:
        os.environ["GLUE_BENCH_CACHE"] = str(Path(aside) / "cache")
        text = Path(aside) / "text"
        text.mkdir()
        size = write_text(sorted(corpus.rglob("*.txt")), text, megabytes * 10**6 // files, files)
        stages = measure(text, steps)
    tokens = stages["pack"]["tokens"]
    rows = {
        name: {
            "seconds": f"{stage['seconds']:.0f}",
            "MB/s": f"{size / 1e6 / stage['seconds']:.1f}" if name != "pretrain" else "",
            "tokens/s": f"{stage['tokens'] / stage['seconds']:,.0f}" if "tokens" in stage else "",
            "peak memory (MB)": f"{stage['peak_bytes'] / 1e6:,.0f}",
        }
        for name, stage in stages.items()
    }
    what = f"{size / 1e6:,.0f} MB of text in {files} files, {tokens:,.0f} tokens; {steps} steps of pretraining"
    report([what, row_table(rows, "stage"), machine(device="cpu", precision="float32", threads=threads), command()],
           stages, json)  # fmt: skip


def write_text(sources: list[Path], folder: Path, bytes_each: int, files: int) -> int:
    """Write so many files of about `bytes_each` bytes; the bytes of all of them."""
    generator, total = random.Random(0), 0
    blocks = [block for path in sources for block in _blocks(path.read_text(encoding="utf-8", errors="ignore"))]
    for number in range(files):
        with (folder / f"{number}.txt").open("w", encoding="utf-8") as file:
            while file.tell() < bytes_each:
                file.write(generator.choice(blocks))
            total += file.tell()
    return total


def _blocks(text: str) -> list[str]:
    lines = text.splitlines(keepends=True)
    return ["".join([*lines[start : start + LINES], "\n"]) for start in range(0, len(lines), LINES)]


def measure(text: Path, steps: int) -> dict[str, dict[str, float]]:
    """Each stage's seconds, peak of memory, and tokens."""
    from glue_bench.training.inputs import Inputs
    from glue_bench.training.pretrain import pretrain
    from glue_bench.training.pretrained import PretrainingFolder

    stages: dict[str, dict[str, float]] = {}
    inputs = Inputs(experiment(str(text), steps))
    arm = inputs.experiment.arms[0]
    timed(stages, "check", lambda: inputs.corpus)
    timed(stages, "vocabulary", lambda: inputs.tokenizer(arm))
    task = timed(stages, "pack", lambda: inputs.pretraining_task(arm))
    stages["pack"]["tokens"] = sum(len(part.ids) for part in task.text.values())
    with tempfile.TemporaryDirectory() as folder:
        start = inputs.initial(arm)
        made = timed(stages, "pretrain", lambda: pretrain(start, task, PretrainingFolder(Path(folder), {})))
    stages["pretrain"] |= {"tokens": made.facts["tokens"], "seconds": made.facts["seconds"]}
    return stages


def timed(stages: dict[str, dict[str, float]], name: str, work: Callable[[], Made]) -> Made:
    """What `work` returns; its seconds and the peak of memory in the meantime are noted under its name."""
    from glue_bench.training.memory import peak_bytes, reset_peak

    reset_peak()
    began = time.perf_counter()
    made = work()
    stages[name] = {"seconds": time.perf_counter() - began, "peak_bytes": float(peak_bytes() or 0)}
    return made


def experiment(corpus: str, steps: int) -> Experiment:
    """A tiny `add` that is pretrained on the text."""
    hidden, blocks, heads = SCRATCH_SIZES["scratch-tiny"]
    return Experiment(
        name="benchmark",
        data="demo",
        arms=[Arm(name="add", variant="add", checkpoint="scratch")],
        scratch=ScratchEncoder(
            hidden_size=hidden, num_hidden_layers=blocks, num_attention_heads=heads, intermediate_size=4 * hidden
        ),
        pretraining=Pretraining(corpus=[corpus], steps=steps, batch_tokens=4096, validations=1),
    )


if __name__ == "__main__":
    typer.run(main)
