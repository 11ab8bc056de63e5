"""Both sides of the benchmarks of speed: transformers' Trainer, and the functions that a sweep of ours calls.

Trainer is driven as examples/pytorch/text-classification/run_glue.py does. Left out is what that script does beside
training and scoring and can be told not to do: saving, progress bars, reporting.
"""

import math
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    DataCollatorWithPadding,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    default_data_collator,
    set_seed,
)

from common import MAX_LENGTH, SCRATCH_SIZES, Round, Settings
from glue_bench.config import (
    NATIVE,
    Experiment,
    Hyperparameters,
    PretrainingSettings,
    load_experiment,
)
from glue_bench.data.metrics import score_logits
from glue_bench.data.tasks import TASKS
from glue_bench.model.checkpoints import read_checkpoint
from glue_bench.model.grafts import graft
from glue_bench.model.native import read_native
from glue_bench.model.start import Start
from glue_bench.records.values import Cell
from glue_bench.sweep.plan import settle_jobs
from glue_bench.training.device import choose_compute
from glue_bench.training.finetune import finetune
from glue_bench.training.inputs import Inputs
from glue_bench.training.pretrain import pretrain
from glue_bench.training.quiet import quiet_transformers
from glue_bench.training.tokens import TokenisedTask

Settled = Hyperparameters | PretrainingSettings


class Given(Inputs):
    """The inputs of one arm, whose start and tokens are given."""

    def __init__(self, inputs: Inputs, start: Start, tokens: TokenisedTask) -> None:
        super().__init__(inputs.experiment, inputs.store.folder)
        self.first_arm.start = start
        self._tokens = tokens

    def tokens(self, _cell: Cell) -> TokenisedTask:
        """Return the given tokens."""
        return self._tokens


def make_ours(settings: Settings) -> Round:
    """Tokenise; a round then goes from the checkpoint's folder to scores.

    A sweep reads a checkpoint once for all its cells; here every round reads it again, as the peers do.
    """
    quiet_transformers()
    inputs = Inputs(settings.experiment, Path("none"))
    cell = settings.cell(inputs)
    compute = choose_compute(settings.device, settings.precision)
    compute = replace(compute, graph=settings.graph)
    tokens, tokenizer = inputs.tokens(cell), inputs.first_arm.tokenizer
    scored = {name: tokens.splits[name] for name in TASKS[cell.task].validation_splits}

    def work(steps: int) -> dict[str, Any]:
        train = tokens.splits["train"].take(settings.rows(len(tokens.splits["train"]), steps))
        began = time.perf_counter()
        if settings.variant == NATIVE:
            start: Start = read_native(settings.checkpoint, None, tokenizer)
        else:
            start = graft(read_checkpoint(settings.checkpoint), settings.variant, {})
        clock = StepClock()
        facts = finetune(
            cell,
            Given(inputs, start, replace(tokens, splits={"train": train, **scored})),
            compute,
            progress=clock,
        ).record
        seconds = {
            "training_seconds": facts.training_seconds,
            "step_seconds": clock.step_seconds(),
            "total_seconds": time.perf_counter() - began,
        }
        return {"tokens": int(train.offsets[-1]), "scores": facts.scores, **seconds}

    return work


def make_peer(settings: Settings, padding: str, *, compiled: bool = False) -> Round:
    """Tokenise; a round then goes from the checkpoint's folder to scores. `padding` is fixed, dynamic or grouped."""
    quiet_transformers()
    inputs, bf16 = Inputs(settings.experiment, Path("none")), settings.precision == "bf16"
    cell, (arm,) = settings.cell(inputs), inputs.experiment.arms
    tokenizer, frames = inputs.first_arm.tokenizer, inputs.tasks.data(cell.task).splits
    task = TASKS[cell.task]
    scored = {
        name: as_dataset(frames[name], tokenizer, MAX_LENGTH, padding)
        for name in task.validation_splits
    }

    def work(steps: int) -> dict[str, Any]:
        rows = frames["train"].iloc[settings.rows(len(frames["train"]), steps)]
        splits, clock = (
            {"train": as_dataset(rows, tokenizer, MAX_LENGTH, padding), **scored},
            Clock(),
        )
        began = time.perf_counter()
        scores = train_and_score(
            cell,
            arm.checkpoint,
            splits,
            tokenizer,
            padding,
            [clock],
            bf16=bf16,
            compiled=compiled,
        )
        seconds = {
            "training_seconds": clock.seconds,
            "step_seconds": clock.step_clock.step_seconds(),
            "total_seconds": time.perf_counter() - began,
        }
        return {"tokens": real_tokens(splits["train"]), "scores": scores, **seconds}

    return work


class StepClock:
    """The time of a step when half of the steps are done: captures and compilations lie before."""

    def __init__(self) -> None:
        self.times: dict[int, float] = {}

    def __call__(self, step: int, steps: int, _loss: Any = None) -> None:
        if step in (steps // 2, steps) and step not in self.times:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            self.times[step] = time.perf_counter()

    def step_seconds(self) -> float:
        """Seconds of a step of the second half; NaN if there was one step."""
        if len(self.times) < 2:
            return math.nan
        (first, began), (last, ended) = sorted(self.times.items())
        return (ended - began) / (last - first)


class Clock(TrainerCallback):
    """Seconds of the training loop, without the making of model, optimiser and data loader."""

    def __init__(self) -> None:
        self.step_clock = StepClock()

    def on_step_end(self, _how: Any, state: Any, _control: Any, **_: Any) -> None:
        self.step_clock(state.global_step, state.max_steps)

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.began = time.perf_counter()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.seconds = time.perf_counter() - self.began


def as_dataset(frame: Any, tokenizer: Any, max_length: int, padding: str = "dynamic") -> Dataset:
    """A split, tokenised as run_glue does: padded to `max_length` only with `fixed` padding."""
    texts = [frame[column].tolist() for column in ("text_a", "text_b") if column in frame]
    to = "max_length" if padding == "fixed" else False
    encoded = tokenizer(*texts, padding=to, truncation=True, max_length=max_length)
    return Dataset.from_dict({**encoded, "label": frame["label"].tolist()})


def real_tokens(split: Dataset) -> int:
    """Tokens that are not padding."""
    return sum(map(sum, split["attention_mask"]))


def train_and_score(
    cell: Cell,
    checkpoint: str,
    splits: dict[str, Dataset],
    tokenizer: Any,
    padding: str,
    callbacks: Any,
    *,
    bf16: bool,
    compiled: bool = False,
) -> dict[str, dict[str, float]]:
    """Scores of each validation split after the last epoch."""
    task = TASKS[cell.task]
    set_seed(cell.seed)
    model = AutoModelForSequenceClassification.from_pretrained(
        checkpoint, num_labels=task.num_labels
    )
    collator = default_data_collator if padding == "fixed" else DataCollatorWithPadding(tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        batches = {"epochs": cell.settings.epochs, "rows": cell.settings.batch_size}
        chosen = {"bf16": bf16, "compiled": compiled}
        how = arguments(cell.settings, folder, padding, **batches, seed=cell.seed, **chosen)
        trainer = trained(model, how, splits["train"], tokenizer, collator, callbacks)
        return {
            name: score_split(trainer, cell.task, splits[name]) for name in task.validation_splits
        }


def trained(
    model: Any, how: TrainingArguments, train: Dataset, tokenizer: Any, collator: Any, calls: Any
) -> Trainer:
    """A Trainer that has trained, and printed nothing."""
    if how.torch_compile:
        # After eight models in one process torch.compile would leave the next one as it is.
        torch.compiler.reset()
    trainer = Trainer(model, how, collator, train, processing_class=tokenizer, callbacks=calls)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return trainer


def arguments(
    settings: Settled,
    folder: str,
    padding: str = "dynamic",
    *,
    epochs: int,
    rows: int,
    seed: int,
    bf16: bool = False,
    compiled: bool = False,
) -> TrainingArguments:
    """The settings in Trainer's names, batches of `rows`, its own default optimiser, and nothing saved or reported."""
    return TrainingArguments(
        output_dir=folder,
        num_train_epochs=epochs,
        per_device_train_batch_size=rows,
        per_device_eval_batch_size=64,  # run_glue's own default is 8, which would be slow
        train_sampling_strategy="group_by_length" if padding == "grouped" else "random",
        learning_rate=settings.learning_rate,
        warmup_steps=settings.warmup_ratio,  # below 1 it is a share of all steps
        lr_scheduler_type="linear",
        weight_decay=settings.weight_decay,
        adam_epsilon=settings.adam_epsilon,
        max_grad_norm=settings.clip_norm,
        bf16=bf16,
        torch_compile=compiled,
        seed=seed,
        use_cpu=not torch.cuda.is_available(),  # else bf16 is refused
        dataloader_pin_memory=torch.cuda.is_available(),
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


def score_split(trainer: Trainer, task: str, split: Dataset) -> dict[str, float]:
    """Metrics of one split, by the project's own scoring: those of `evaluate` need the hub.

    Labels are Trainer's, too: where it groups by length, it predicts the examples in another order than the split's.
    """
    found = trainer.predict(split)
    return score_logits(task, np.asarray(found.predictions), np.asarray(found.label_ids))


@dataclass(frozen=True)
class Masked:
    """One pretraining: `corpus` is demo, a file or a folder, `size` one of SCRATCH_SIZES."""

    corpus: str
    size: str
    rows: int
    length: int
    device: str
    precision: str
    graph: bool = False

    def experiment(self, steps: int) -> Experiment:
        """The pretraining as an experiment whose one arm is `add`."""
        hidden, blocks, heads = SCRATCH_SIZES[self.size]
        sizes = {"hidden_size": hidden, "num_hidden_layers": blocks, "num_attention_heads": heads}
        sizes |= {
            "intermediate_size": 4 * hidden,
            "vocab_size": 8000,
            "max_position_embeddings": self.length,
        }
        text = {
            "corpus": self.corpus,
            "batch_tokens": self.rows * self.length,
            "length": self.length,
        }
        pretraining = {**text, "steps": steps, "validations": 1}
        arms = {
            "checkpoint": "scratch",
            "arms": ["add"],
            "scratch": sizes,
            "pretraining": pretraining,
        }
        return load_experiment({"name": "benchmark", "data": "demo", **arms})


def make_masked_ours(settings: Masked, folder: str) -> Round:
    """A round is a pretraining of its own, in a folder of its own."""
    quiet_transformers()
    made, compute = (
        Inputs(settings.experiment(1), Path("none")),
        replace(choose_compute(settings.device, settings.precision), graph=settings.graph),
    )
    made.text.packed_text(made.first_arm.tokenizer)  # in the cache for all rounds

    def work(steps: int) -> dict[str, Any]:
        experiment = settings.experiment(steps)
        with tempfile.TemporaryDirectory(dir=folder) as own:
            inputs = Inputs(experiment, Path(own))
            ((job,), _) = settle_jobs(inputs)
            clock = StepClock()
            facts = pretrain(job, inputs, compute, progress=clock).record
        seconds = {"training_seconds": facts.seconds, "step_seconds": clock.step_seconds()}
        return {"tokens": facts.tokens, **seconds}

    return work


def make_masked_peer(settings: Masked, *, compiled: bool = False) -> Round:
    """A round trains a fresh BertForMaskedLM on a random sample of the same sequences."""
    quiet_transformers()
    inputs = Inputs(settings.experiment(1), Path("none"))
    ours, tokenizer, text = (
        inputs.first_arm.start.config,
        inputs.first_arm.tokenizer,
        inputs.text.packed_text(inputs.first_arm.tokenizer)["train"],
    )
    same = (
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
    )
    more = (
        "max_position_embeddings",
        "hidden_dropout_prob",
        "attention_probs_dropout_prob",
        "pad_token_id",
    )
    config = BertConfig(**{name: getattr(ours, name) for name in (*same, *more)})

    def work(steps: int) -> dict[str, Any]:
        plan, clock = settings.experiment(steps).pretraining, Clock()
        assert plan is not None
        # The first sequences of a permutation, from its start again past its end.
        chosen = np.resize(np.random.default_rng(0).permutation(len(text)), steps * settings.rows)
        sequences = [text.ids[text.offsets[i] : text.offsets[i + 1]] for i in chosen]
        set_seed(plan.seed)
        collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=plan.mask_probability)
        with tempfile.TemporaryDirectory() as folder:
            chosen = {"bf16": settings.precision == "bf16", "compiled": compiled}
            how = arguments(plan, folder, epochs=1, rows=settings.rows, seed=plan.seed, **chosen)
            data = Dataset.from_dict({"input_ids": sequences})
            trained(BertForMaskedLM(config), how, data, tokenizer, collator, [clock])
        seconds = {
            "training_seconds": clock.seconds,
            "step_seconds": clock.step_clock.step_seconds(),
        }
        return {"tokens": sum(map(len, sequences)), **seconds}

    return work
