"""What the benchmarks share: samples, ratios, the other side; and some simulated experiments whose truth is known."""

import pandas as pd
import pytest
import torch
from transformers import DataCollatorWithPadding, Trainer

import common
from common import OURS, Settings
from glue_bench.data.sources import open_source
from glue_bench.training.tokenizers import load_tokenizer
from glue_bench.training.tokens import tokenise
from peers import arguments, as_dataset, real_tokens, score_split
from verdicts import NULL, POWER, Setting, figures

TEXTS = ("a cat .", "the old cat saw the fox today .", "a fox .")
FEW = 60  # of the 2,000 experiments that benchmarks/verdicts.py makes of each setting
SOME = [
    Setting(seeds=2),
    Setting(seeds=3, unstable="b"),
    Setting(seeds=2, pretrainings=3, arms=("a", "b")),
]
BY_NAME = {"argnames": "setting", "ids": lambda setting: setting.name}


def test_ratios_are_of_one_round_each_and_above_1_where_ours_is_better():
    peer = [
        {"tokens_per_second": n, "total_seconds": 2 * n, "peak_bytes": 2**21} for n in (10, 20, 30)
    ]
    our_result = {"tokens_per_second": 30, "total_seconds": 10, "peak_bytes": 2**20}
    rounds = [{"peer": peer_result, OURS: our_result} for peer_result in peer]
    row = [cell.strip() for cell in common.speed_table(rounds).splitlines()[2].split("|")[1:-1]]
    assert row == [
        "peer",
        "20 (15 to 25)",
        "1.50 (1.25 to 2.25)",
        "40.00 (30.00 to 50.00)",
        "4.00 (3.00 to 5.00)",
        "2",
    ]


@pytest.fixture
def tokenizer(make_bert):
    return load_tokenizer(str(make_bert(texts=TEXTS)))


def test_both_sides_see_the_same_token_ids_and_padding_is_not_counted(tokenizer):
    data = open_source("demo").load("rte")
    our_split = tokenise(data, tokenizer, 12).splits["validation"]
    peer, padded = (
        as_dataset(data.splits["validation"], tokenizer, 12, padding)
        for padding in ("dynamic", "fixed")
    )
    assert [token for ids in peer["input_ids"] for token in ids] == our_split.ids.tolist()
    assert peer["label"] == our_split.labels.tolist()
    assert {len(ids) for ids in padded["input_ids"]} == {12}
    assert real_tokens(padded) == real_tokens(peer) == len(our_split.ids)


class Oracle(torch.nn.Module):
    """Says 1 where a text has a word."""

    def __init__(self, word: int) -> None:
        super().__init__()
        self.word = word

    def forward(self, input_ids, labels, **_):  # Trainer gives what this names
        assert labels.shape == input_ids.shape[:1]
        has_word = (input_ids == self.word).any(1).float()
        return {"loss": has_word.sum(), "logits": torch.stack([1 - has_word, has_word], 1)}


@pytest.mark.parametrize("padding", ["dynamic", "grouped"])
def test_predictions_are_scored_with_their_own_labels(tmp_path, tokenizer, padding):
    """Grouped by length, Trainer predicts the examples in another order than that of the split."""
    texts = [" ".join(TEXTS[i % 3].split()[: 1 + i % 5]) for i in range(40)]
    split = as_dataset(
        pd.DataFrame({"text_a": texts, "label": [int("old" in text) for text in texts]}),
        tokenizer,
        16,
    )
    hyperparameters = Settings("demo", "rte", "here").experiment.finetuning.hyperparameters(
        "rte", 5e-5
    )
    settings = arguments(hyperparameters, str(tmp_path), padding, epochs=1, rows=4, seed=1)
    assert (
        settings.learning_rate,
        settings.get_warmup_steps(100),
        settings.max_grad_norm,
        settings.weight_decay,
    ) == (5e-5, 6, 1, 0.01)
    oracle = Oracle(tokenizer.convert_tokens_to_ids("old"))
    trainer = Trainer(
        oracle, settings, DataCollatorWithPadding(tokenizer), processing_class=tokenizer
    )
    assert score_split(trainer, "rte", split) == {"accuracy": 1.0}


@pytest.mark.parametrize(**BY_NAME, argvalues=SOME)
def test_equal_arms_are_seldom_told_apart(setting):
    # 60 experiments at 5%: more than 8 wrong ones have a probability below 1%.
    assert figures(setting, FEW)["family errors"] <= 100 * 8 / FEW


def test_a_difference_of_ten_points_is_found():
    # Of 60 at 80%: fewer than 38 have a probability below 0.5%.
    assert figures(POWER[1], FEW)["power"] >= 100 * 38 / FEW


@pytest.mark.slow
@pytest.mark.parametrize(**BY_NAME, argvalues=[*NULL, *POWER])
def test_in_full(setting):
    rates = figures(setting, 2000)
    assert rates["coverage"] >= 94.0
    assert rates["power"] >= 70.0 if setting in POWER else rates["family errors"] <= 6.5
