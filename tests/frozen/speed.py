"""Training speed of this checkout against that of a clone of d9d4906, in turns on one machine.

python tests/frozen/speed.py CLONE --data GLUE_FOLDER --corpus TEXT [--rounds 5] [--case rte-float32 ...]

Each checkout has a process of its own, which waits while the other works. One line a case: this checkout's tokens a
second over the clone's, the median over the rounds and its quartiles. Random weights at the sizes of all-MiniLM-L6-v2
stand in for the checkpoint: no figure depends on what the weights are.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import quantiles
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CASES = {
    "rte-float32": ("rte", "add", "float32", 128),
    "rte-bf16": ("rte", "add", "bf16", 128),
    "cola-float32": ("cola", "add", "float32", 512),
    "cola-bf16": ("cola", "add", "bf16", 512),
    "rte-native": ("rte", "native", "float32", 128),
    "pretraining": ("cola", "add", "float32", 32),
}
"""Task, variant, precision, and rows of train. Pretraining is at the study's size."""
STUDY = {"vocab_size": 8000, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
TEXT = {"segments": "pairs", "steps": 300, "batch_tokens": 1024, "length": 64, "dropout": 0.0, "validations": 1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clone", type=Path)
    parser.add_argument("--data", default="demo")
    parser.add_argument("--corpus", default="demo")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--case", nargs="*", default=list(CASES), choices=CASES)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as aside:
        folder = checkpoint(Path(aside))
        made = {"new": served(ROOT, aside, asked.threads), "old": served(asked.clone.resolve(), aside, asked.threads)}
        for name in asked.case:
            told = experiment(name, asked, folder), CASES[name][2]
            speeds = [{each: ask(process, *told) for each, process in made.items()} for _ in range(asked.rounds + 1)]
            ratios = sorted(each["new"] / each["old"] for each in speeds[1:])  # the first round finds nothing ready
            low, middle, high = quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
            new, old = (sorted(each[who] for each in speeds[1:])[asked.rounds // 2] for who in ("new", "old"))
            print(f"{name}: {middle:.3f} ({low:.3f} to {high:.3f}); {new:,.0f} and {old:,.0f} tokens/s", flush=True)
        for process in made.values():
            process.stdin.close()
            process.wait()


def experiment(name: str, asked: argparse.Namespace, folder: str) -> dict[str, Any]:
    """A case as an experiment of one cell, or of one pretraining and a small cell."""
    task, variant, _, rows = CASES[name]
    finetuning = {"learning_rates": [5e-5], "epochs": 1, "batch_size": 32, "max_length": 128}
    values = {"name": name, "data": asked.data, "limit": rows, "tasks": [task], "seeds": [1], "finetuning": finetuning}
    if name == "pretraining":
        sizes = STUDY | {"intermediate_size": 512, "max_position_embeddings": 128}
        more = {"checkpoint": "scratch", "scratch": sizes, "pretraining": TEXT | {"corpus": [asked.corpus]}}
        return values | more | {"arms": ["add"]}
    return values | {"checkpoint": folder, "arms": [{"name": "arm", "variant": variant}]}


def served(checkout: Path, aside: str, threads: int) -> subprocess.Popen[str]:
    """A process that runs what it is asked for with the package of a checkout."""
    environment = os.environ | {
        "PYTHONPATH": str(checkout),
        "OMP_NUM_THREADS": str(threads),
        "GLUE_BENCH_CACHE": f"{aside}/cache-{checkout.name}",
        "TOKENIZERS_PARALLELISM": "false",
    }
    command = [sys.executable, __file__, "serve"]
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=aside
    )


def ask(process: subprocess.Popen[str], values: dict[str, Any], precision: str) -> float:
    """Tokens a second of a process's checkout."""
    assert process.stdin is not None
    assert process.stdout is not None
    print(json.dumps([values, precision]), file=process.stdin, flush=True)
    for line in process.stdout:
        if line.startswith("speed "):
            return float(line.split()[1])
    raise RuntimeError("a checkout's process has ended; what it said stands above")


def checkpoint(folder: Path) -> str:
    """Random weights at MiniLM's sizes, with a tokenizer of letters and common words."""
    from transformers import BertConfig, BertModel, BertTokenizer

    letters = [chr(code) for code in range(33, 127)]
    words = ["the", "a", "an", "of", "to", "in", "and", "is", "was", "that", "it", "for", "on", "with", "as", "at"]
    vocabulary = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *letters,
        *(f"##{letter}" for letter in letters),
        *words,
    ]
    BertModel(
        BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
    ).save_pretrained(folder)
    BertTokenizer(vocab={word: number for number, word in enumerate(vocabulary)}).save_pretrained(folder)
    return str(folder)


def serve() -> None:
    """Run each experiment that comes on standard input; answer with the tokens a second of its training."""
    from glue_bench import api

    api.write_page = lambda *_: None
    for line in sys.stdin:
        values, precision = json.loads(line)
        with tempfile.TemporaryDirectory() as results:
            summary = api.run(values, results=results, device="cpu", precision=precision)
            assert not summary.failed, summary.failed
            print("speed", next(speeds(Path(summary.folder))), flush=True)


def speeds(folder: Path) -> Iterator[float]:
    """Tokens a second of the pretraining, if there is one, and of the cell; in the format of either checkout."""
    for pattern in ("pretrainings/*/record.json", "pretraining/*.json"):
        for path in folder.glob(pattern):
            record = json.loads(path.read_bytes())
            yield record["tokens"] / record["seconds"]
    for path in folder.glob("cells/*/record.json"):
        record = json.loads(path.read_bytes())
        yield record["training_tokens"] / record["training_seconds"]
    for path in folder.glob("records/*.json"):
        record = json.loads(path.read_bytes())
        yield record["tokens"]["training"] / record["seconds"]["training"]


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else main()
