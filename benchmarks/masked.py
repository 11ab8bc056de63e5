"""Both sides of the pretraining benchmark."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
from datasets import Dataset
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    PrinterCallback,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.modeling_outputs import MaskedLMOutput

from glue_bench.config import PretrainingSettings
from glue_bench.model.checkpoints import Start
from glue_bench.sweep.plan import settle_jobs
from glue_bench.training import pretrain as pretraining
from glue_bench.training.compute import choose_compute, quiet_libraries
from glue_bench.training.inputs import Inputs
from glue_bench.training.packing import PackedText
from glue_bench.training.pretrain import pretrain
from peer import Clock, plain_arguments
from workers import Round

if TYPE_CHECKING:
    from pretrain import Settings


def make_ours(settings: "Settings", folder: str) -> Round:
    """A round is a pretraining of its own, in a folder of its own."""
    quiet_libraries()
    made, compute = Inputs(settings.experiment(1)), choose_compute()
    made.text(made.experiment.arms[0])  # in the cache for all rounds

    def work(steps: int) -> dict[str, Any]:
        experiment = settings.experiment(steps)
        with tempfile.TemporaryDirectory(dir=folder) as own:
            inputs = Inputs(experiment, Path(own))
            ((job,), _) = settle_jobs(experiment, inputs)
            facts = pretrain(job, inputs, compute).facts
        return {"tokens": facts["tokens"], "training_seconds": facts["seconds"]}

    return work


def plan(settings: "Settings", steps: int) -> PretrainingSettings:
    """How both are trained."""
    pretraining = settings.experiment(steps).pretraining
    assert pretraining is not None
    return pretraining


def make_peer(settings: "Settings") -> Round:
    """A round trains a fresh BertForMaskedLM on a random sample of the same sequences."""
    quiet_libraries()
    inputs = Inputs(settings.experiment(1))
    arm = inputs.experiment.arms[0]
    config, tokenizer = bert_config(inputs.initial(arm).config), inputs.tokenizer(arm)
    text = inputs.text(arm)["train"]

    def work(steps: int) -> dict[str, Any]:
        dataset, clock, pretraining = sample(text, steps * settings.rows), Clock(), plan(settings, steps)
        set_seed(pretraining.seed)
        with tempfile.TemporaryDirectory() as folder:
            trainer = Trainer(
                model=BertForMaskedLM(config),
                args=arguments(pretraining, folder, bf16=settings.bf16),
                train_dataset=dataset,
                data_collator=DataCollatorForLanguageModeling(tokenizer, mlm_probability=pretraining.mask_probability),
                processing_class=tokenizer,
                callbacks=[clock],
            )
            trainer.remove_callback(PrinterCallback)
            trainer.train()
        return {"tokens": sum(map(len, dataset["input_ids"])), "training_seconds": clock.seconds}

    return work


def make_same_loop(settings: "Settings", folder: str) -> Round:
    """A round of our own loop, batches and optimiser, with transformers' model in the place of ours."""
    work = make_ours(settings, folder)

    def of_bert(steps: int) -> dict[str, Any]:
        with mock.patch.object(pretraining, "build_masked_lm", _build_bert):
            return work(steps)

    return of_bert


class _Bert(BertForMaskedLM):
    """Called as ours; like its parent it projects every token to the vocabulary."""

    def forward(self, ids: Any, mask: Any = None, _segments: Any = None, *, places: Any) -> MaskedLMOutput:
        logits = super().forward(input_ids=ids, attention_mask=None if mask is None else mask.long()).logits
        return MaskedLMOutput(logits=logits.flatten(0, 1)[places])


def _build_bert(start: Start, seed: int, _dropout: float | None = None) -> _Bert:
    set_seed(seed)
    return _Bert(bert_config(start.config))


def bert_config(ours: Any) -> BertConfig:
    """Our encoder's shape in transformers' own model."""
    same = (
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "max_position_embeddings",
        "hidden_dropout_prob",
        "attention_probs_dropout_prob",
        "pad_token_id",
    )
    return BertConfig(**{name: getattr(ours, name) for name in same})


def sample(text: PackedText, sequences: int) -> Dataset:
    """The first sequences of a permutation, from its start again past its end."""
    chosen = np.resize(np.random.default_rng(0).permutation(len(text)), sequences)
    return Dataset.from_dict({"input_ids": [text.ids[text.offsets[i] : text.offsets[i + 1]] for i in chosen]})


def arguments(settings: PretrainingSettings, folder: str, *, bf16: bool) -> TrainingArguments:
    """The pretraining's settings in Trainer's names."""
    rows = settings.rows
    more = {"num_train_epochs": 1, "per_device_train_batch_size": rows, "bf16": bf16, "seed": settings.seed}
    return plain_arguments(settings, folder, **more)
