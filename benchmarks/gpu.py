"""What a GPU gives: is training right on it, how fast is it with and without graphs, and beside transformers' Trainer.

    python benchmarks/gpu.py gpu.json --corpus TEXT --data GLUE --seconds 500

One command for about 25 minutes of a GPU on a machine without a network. The file has each measurement as soon as it is
there; the same command goes on from it, so that it may be cut off, or run in pieces of `--seconds`. Each section has a
budget of time, and what did not fit is listed.

- agreement: every variant against the CPU, from the same weights on the same batches without dropout, in float32 and
  bf16, with operations launched one by one and as graphs
- resume: a pretraining that is stopped half-way and continued, against one that is not; with dropout
- pretraining, fine-tuning: contenders in turns, each in a process of its own: ours with graphs and without, Trainer,
  and Trainer with torch_compile. All compute in bf16. Models have random weights, so scores say nothing
- sharing: several fine-tuning workers on one GPU

Speeds are those of the second half of a round's steps: captures and compilations lie before. Trainer with torch_compile
has one round, and one task: compiling takes most of it, and all its rows have one length. `--tiny` runs all sections
on a CPU, in small, without graphs and without torch_compile. The exit status is 1 where something differs or failed.
"""

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

import common
from checks import compared, continued, worst_difference
from common import SCRATCH_SIZES, Settings, Worker
from glue_bench.files import write_atomically
from glue_bench.model.variants import VARIANTS
from glue_bench.records.environment import versions
from peers import Masked, make_masked_ours, make_masked_peer, make_ours, make_peer

Result = dict[str, Any]
GRAPH = "ours, graphs"
EAGER = "ours, no graphs"
TRAINER = "Trainer"
TO_BATCH = "Trainer, padded to the batch"
COMPILED = "Trainer, torch_compile"
ROUNDS = 3
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


@dataclass(frozen=True)
class Scale:
    """How large everything is, and how many seconds a section may take."""

    device: str
    precision: str
    budgets: dict[str, float]
    variants: tuple[str, ...]
    agreement_steps: int
    pretraining: dict[str, tuple[int, int]]
    pretraining_steps: int
    finetuning: tuple[str, ...]
    tasks: dict[str, int]
    contenders: tuple[str, ...]
    sharing_size: str
    workers: tuple[int, ...]

    @property
    def rounds(self) -> int:
        return 1 if self.device == "cpu" else ROUNDS


FULL = Scale(
    device="cuda",
    precision="bf16",
    budgets={
        "agreement": 240,
        "resume": 60,
        "pretraining": 450,
        "fine-tuning": 540,
        "sharing": 180,
    },
    variants=tuple(VARIANTS),
    agreement_steps=20,
    # Rows and length of a batch.
    pretraining={
        "scratch-minilm": (64, 128),
        "scratch-base": (64, 128),
        "scratch-small": (64, 128),
        "scratch-study": (16, 64),
    },
    pretraining_steps=200,
    finetuning=("scratch-base", "scratch-minilm"),
    # Batches of 32 in the first round: 20,000 rows of MNLI, RTE and CoLA whole, and a part of SST-2.
    tasks={"mnli": 625, "rte": 77, "cola": 267, "sst2": 400},
    contenders=(GRAPH, TRAINER, COMPILED, EAGER, TO_BATCH),
    sharing_size="scratch-minilm",
    workers=(1, 2, 4, 8),
)
TINY = Scale(
    device="cpu",
    precision="float32",
    budgets=dict.fromkeys(FULL.budgets, 600.0),
    variants=("add", "untied"),
    agreement_steps=3,
    pretraining={"scratch-tiny": (4, 32)},
    pretraining_steps=4,
    finetuning=("scratch-tiny",),
    tasks={"rte": 4},
    contenders=(GRAPH, TRAINER),
    sharing_size="scratch-tiny",
    workers=(1, 2),
)


@dataclass(frozen=True)
class Step:
    """One measurement: which worker does it, and what the worker is asked."""

    section: str
    name: str
    worker: str
    request: Any

    @property
    def key(self) -> str:
        return f"{self.section}: {self.name}"


@dataclass(frozen=True)
class Request:
    """One round of one contender, as its worker takes it."""

    kind: str
    contender: str
    settings: Any
    steps: int


def main(
    output: Annotated[
        Path, typer.Argument(help="The JSON file; what it has is not measured again.")
    ],
    corpus: Annotated[str, typer.Option(help="English text: a file or folder, or demo.")] = "demo",
    data: common.Data = "demo",
    seconds: Annotated[
        float | None, typer.Option(help="Begin nothing after so many seconds; run again then.")
    ] = None,
    section: Annotated[
        list[str] | None, typer.Option(help=f"Only these: {', '.join(FULL.budgets)}.")
    ] = None,
    tiny: Annotated[
        bool, typer.Option("--tiny", help="In small, on the CPU, on the demo.")
    ] = False,
) -> None:
    """Measure what is not measured yet, and print all."""
    scale = TINY if tiny else FULL
    common.settle(scale.device, scale.precision, 1 if tiny else None)
    kept = read(output)
    with tempfile.TemporaryDirectory() as aside:
        run = Run(scale, corpus, data, Path(aside), output, kept)
        run.measure(
            [step for step in run.steps() if not section or step.section in section], seconds
        )
    done = kept["steps"]
    left = [step.key for step in run.steps() if "result" not in done.get(step.key, {})]
    print("\n\n".join(report(scale, kept)))
    if left:
        print(f"\nleft: {len(left)} measurements; the same command goes on ({left[0]}, ...)")
    raise typer.Exit(bool(faults(kept)))


def read(path: Path) -> Result:
    """The measurements of earlier runs."""
    if path.exists():
        return json.loads(path.read_text())
    return {"steps": {}, "seconds": {}}


class Run:
    """The measurements of one run, and the workers that make them."""

    def __init__(
        self, scale: Scale, corpus: str, data: str, aside: Path, output: Path, kept: Result
    ) -> None:
        self.scale = scale
        self.corpus = corpus
        self.data = data
        self.aside = aside
        self.output = output
        self.kept = kept
        self.workers: dict[str, Worker] = {}

    def steps(self) -> Iterator[Step]:
        """All measurements, in their order."""
        scale = self.scale
        for variant in scale.variants:
            request = Request("agreement", scale.device, variant, scale.agreement_steps)
            yield Step("agreement", variant, "checks", request)
        for variant in ("add", "untied"):
            for graph in (True, False):
                name = f"{variant}, {'graphs' if graph else 'no graphs'}"
                request = Request("resume", scale.device, (variant, graph), scale.agreement_steps)
                yield Step("resume", name, "checks", request)
        for number in range(scale.rounds):
            for size in scale.pretraining:
                yield from self.pretraining_steps(size, number)
        for number in range(scale.rounds):
            for size in scale.finetuning:
                for task in scale.tasks:
                    yield from self.finetuning_steps(size, task, number)
        for graph in (True, False):
            for workers in scale.workers:
                yield self.sharing_step(workers, graph=graph)

    def pretraining_steps(self, size: str, number: int) -> Iterator[Step]:
        """A round of each contender."""
        scale = self.scale
        rows, length = scale.pretraining[size]
        masked = Masked(self.corpus, size, rows, length, scale.device, scale.precision)
        for contender in scale.contenders:
            if contender == TO_BATCH:  # packed text has hardly any padding
                continue
            if contender == COMPILED and number > 0:  # most of a round is compilation
                continue
            settings = replace(masked, graph=contender == GRAPH)
            request = Request("pretraining", contender, settings, scale.pretraining_steps)
            yield Step("pretraining", f"{size}, {contender}, {number}", contender, request)

    def finetuning_steps(self, size: str, task: str, number: int) -> Iterator[Step]:
        """A round of each contender."""
        first_task = next(iter(self.scale.tasks))
        for contender in self.scale.contenders:
            # Most of such a round is compilation, and all rows are padded to one length.
            if contender == COMPILED and (number > 0 or task != first_task):
                continue
            settings = self.cell(size, task, graph=contender == GRAPH)
            steps = self.scale.tasks[task] if number == 0 else min(self.scale.tasks[task], 200)
            request = Request("fine-tuning", contender, settings, steps)
            name = f"{size}, {task}, {contender}, {number}"
            yield Step("fine-tuning", name, contender, request)

    def sharing_step(self, workers: int, *, graph: bool) -> Step:
        """Several workers at once."""
        settings = self.cell(self.scale.sharing_size, "rte", graph=graph)
        contender = GRAPH if graph else EAGER
        request = Request("fine-tuning", contender, settings, self.scale.tasks["rte"])
        return Step("sharing", f"{contender}, {workers} workers", str(workers), request)

    def cell(self, size: str, task: str, *, graph: bool) -> Settings:
        """The fine-tuning of a model of this size; `prepare` makes its checkpoint."""
        folder = str(self.aside / f"{size}-{task}")
        return Settings(
            self.data,
            task,
            folder,
            device=self.scale.device,
            precision=self.scale.precision,
            graph=graph,
        )

    def measure(self, steps: list[Step], seconds: float | None) -> None:
        """Make the measurements that are not there, as far as time goes; keep each at once."""
        began = time.perf_counter()
        self.kept |= {"environment": versions().document()}
        try:
            for step in steps:
                spent = self.kept["seconds"].get(step.section, 0.0)
                if "result" in self.kept["steps"].get(step.key, {}):
                    continue
                if spent > self.scale.budgets[step.section]:
                    continue
                if seconds and time.perf_counter() - began > seconds:
                    return
                step_began = time.perf_counter()
                outcome = self.outcome(step)
                taken = time.perf_counter() - step_began
                outcome |= {"seconds": round(taken, 2)}
                self.kept["steps"][step.key] = outcome
                self.kept["seconds"][step.section] = round(spent + taken, 2)
                write_atomically(self.output, f"{json.dumps(self.kept, indent=1)}\n".encode())
                print(f"{step.key}: {taken:.1f} s", outcome.get("error", ""), flush=True)
        finally:
            for worker in self.workers.values():
                worker.close()

    def outcome(self, step: Step) -> Result:
        """The result of a measurement, or its error. A worker that failed is started anew."""
        try:
            self.prepare(step.request)
            if step.section == "sharing":
                return {"result": self.shared(int(step.worker), step.request)}
            if step.worker not in self.workers:
                self.workers[step.worker] = Worker(make_any)
            return {"result": self.workers[step.worker].round(step.request)}
        except (RuntimeError, OSError) as error:
            worker = self.workers.pop(step.worker, None)
            if worker:
                worker.close()
            return {"error": str(error).strip().splitlines()[-1]}

    def prepare(self, request: Request) -> None:
        """Make the checkpoint of a cell, if it is not there."""
        if isinstance(request.settings, Settings):
            folder = Path(request.settings.checkpoint)
            if not folder.exists():
                size = folder.name.rsplit("-", 1)[0]
                task = request.settings.task
                common.checkpoint_folder(size, self.data, task, folder)

    def shared(self, count: int, request: Request) -> Result:
        """Rows per second of so many workers at once, after a round of each that is not timed."""
        workers = [Worker(make_any) for _ in range(count)]
        try:
            with ThreadPoolExecutor(count) as threads:
                list(threads.map(lambda worker: worker.round(request), workers))
                began = time.perf_counter()
                results = list(threads.map(lambda worker: worker.round(request), workers))
                seconds = time.perf_counter() - began
        finally:
            for worker in workers:
                worker.close()
        rows = count * request.steps * request.settings.batch_size
        training = [rows / count / result["training_seconds"] for result in results]
        return {"rows_per_second": rows / seconds, "training_rows_per_second": sum(training)}


def make_any() -> Callable[[Any], Result]:
    """What a worker does: the rounds of any request."""
    from glue_bench.training import fixed_steps, pretrain

    fixed_steps.MIN_STEPS = 1  # rounds are shorter than cells
    pretrain.CURVE_POINTS = 1  # each point waits for the device, in so few steps too often
    made: dict[tuple[str, str, Any], Callable[[int], Result]] = {}

    def work(request: Any) -> Result:
        if request.kind == "agreement":
            return compared(request.settings, request.steps, request.contender)
        if request.kind == "resume":
            variant, graph = request.settings
            return continued(variant, request.steps, request.contender, graph=graph)
        key = (request.kind, request.contender, request.settings)
        if key not in made:
            made[key] = make(*key)
        result = made[key](request.steps)
        if request.contender == GRAPH and request.settings.device == "cuda":
            result["captured"] = fixed_steps.FixedSteps.is_capturable
        return result

    return work


def make(kind: str, contender: str, settings: Any) -> Callable[[int], Result]:
    """A contender's rounds."""
    is_ours = contender in (GRAPH, EAGER)
    compiled = contender == COMPILED
    if kind == "pretraining":
        if is_ours:
            return make_masked_ours(settings, tempfile.gettempdir())
        return make_masked_peer(settings, compiled=compiled)
    if is_ours:
        return make_ours(settings)
    padding = "dynamic" if contender == TO_BATCH else "fixed"
    return make_peer(settings, padding, compiled=compiled)


def flops_of_a_token(size: str, length: int, vocabulary: int = 8000, share: float = 0.15) -> float:
    """Floating-point operations of a token in pretraining: three times those of a forward pass.

    Forward: two for each weight of a block's products (4 d^2 in attention, 8 d^2 in the feed-forward layer); 4 l d a
    block for scores and their sum over values; and the head, d^2 + d V weights, on the share that is masked.
    """
    hidden, blocks, _ = SCRATCH_SIZES[size]
    block = 2 * 12 * hidden**2 + 4 * length * hidden
    head = 2 * (hidden**2 + hidden * vocabulary)
    return 3 * (blocks * block + share * head)


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
        parts.append(common.table(named.map({True: "yes", False: "no"}.get), "resume"))
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


if __name__ == "__main__":
    typer.run(main)
