"""What the benchmarks share: samples, ratios, the other side; and some simulated experiments
whose truth is known.
"""

import pandas as pd
import pytest
import torch
from transformers import DataCollatorWithPadding, Trainer

import common
from checks import worst_difference
from common import OURS, Settings
from glue_bench.data.sources import open_source
from glue_bench.training.tokenizers import load_tokenizer
from glue_bench.training.tokens import tokenise
from gpu_report import TRAIN_ROWS, flops_of_a_token, glue_minutes
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
    our_result = {"tokens_per_second": 30, "total_seconds": 10, "peak_bytes": 2**20}
    rounds: list[dict[str, dict[str, int]]] = []
    for number in (10, 20, 30):
        peer = {"tokens_per_second": number, "total_seconds": 2 * number, "peak_bytes": 2**21}
        rounds.append({"peer": peer, OURS: our_result})
    line = common.speed_table(rounds).splitlines()[2]
    expected = [
        "peer",
        "20 (15 to 25)",
        "1.50 (1.25 to 2.25)",
        "40.00 (30.00 to 50.00)",
        "4.00 (3.00 to 5.00)",
        "2",
    ]
    assert [cell.strip() for cell in line.split("|")[1:-1]] == expected


@pytest.fixture
def tokenizer(make_bert):
    return load_tokenizer(str(make_bert(texts=TEXTS)))


@pytest.fixture
def demo():
    """The demo's RTE."""
    return open_source("demo").load("rte")


@pytest.mark.parametrize("padding", ["dynamic", "fixed"])
def test_both_sides_see_the_same_labels_and_padding_is_not_counted(demo, tokenizer, padding):
    our_split = tokenise(demo, tokenizer, 12).splits["validation"]
    peer = as_dataset(demo.splits["validation"], tokenizer, 12, padding)
    assert peer["label"] == our_split.labels.tolist()
    assert real_tokens(peer) == len(our_split.ids)


def test_both_sides_see_the_same_token_ids(demo, tokenizer):
    our_split = tokenise(demo, tokenizer, 12).splits["validation"]
    peer = as_dataset(demo.splits["validation"], tokenizer, 12, "dynamic")
    assert [token for ids in peer["input_ids"] for token in ids] == our_split.ids.tolist()


def test_fixed_padding_fills_every_row(demo, tokenizer):
    padded = as_dataset(demo.splits["validation"], tokenizer, 12, "fixed")
    assert {len(ids) for ids in padded["input_ids"]} == {12}


def test_the_operations_of_a_token_are_six_for_each_weight_and_those_of_attention():
    """BERT-base's blocks have 85 million weights in products (Devlin et al. 2019)."""
    weights = 12 * 12 * 768**2
    attention = 12 * 12 * 128 * 768
    without_head = flops_of_a_token("scratch-base", 128, share=0.0)
    assert without_head == 6 * weights + attention
    head = flops_of_a_token("scratch-base", 128, vocabulary=30522, share=1.0) - without_head
    expected = 6 * (768**2 + 768 * 30522)
    assert head == expected


def test_glue_is_extrapolated_from_rows_per_second_only_where_all_four_are_measured():
    speeds = dict.fromkeys(("mnli", "rte", "cola", "sst2"), 1000.0)
    assert glue_minutes(speeds) == f"{3 * sum(TRAIN_ROWS.values()) / 60_000:.1f} min"
    assert glue_minutes({"rte": 1000.0}) == ""


def test_a_difference_is_named_where_rounding_does_not_explain_it():
    near = {"loss, graph, float32": 9e-4, "loss, graph, bf16": 0.02, "captured": True}
    assert worst_difference(near) == ""
    far = near | {"logits, graph, float32": 0.02}
    assert worst_difference(far) == "logits, graph, float32 differs by 0.02"
    assert worst_difference({"loss, graph, bf16": float("nan")})


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
    texts = [" ".join(TEXTS[row % 3].split()[: 1 + row % 5]) for row in range(40)]
    frame = pd.DataFrame({"text_a": texts, "label": [int("old" in text) for text in texts]})
    split = as_dataset(frame, tokenizer, 16)
    finetuning = Settings("demo", "rte", "here").experiment.finetuning
    hyperparameters = finetuning.hyperparameters("rte", 5e-5)
    settings = arguments(hyperparameters, str(tmp_path), padding, epochs=1, rows=4, seed=1)
    assert settings.learning_rate == 5e-5
    assert settings.get_warmup_steps(100) == 6
    assert settings.max_grad_norm == 1
    assert settings.weight_decay == 0.01
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
