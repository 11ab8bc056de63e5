"""Each dropout has the rate of its own setting: dropped values are counted, where all three rates
differ.
"""

import pytest
import torch
from helpers.tiny_models import HIDDEN, encoder_config
from scipy.stats import binomtest
from torch import Tensor, nn

from glue_bench.model.encoder import Attention, Block, BlockScores, EncoderModel
from glue_bench.model.heads import EncoderForSequenceClassification

UNCHANGED = BlockScores(None, None, None, all_queries=False)
RATES = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.4, "classifier_dropout": 0.6}
BATCH, LENGTH = 40, 10


def check_rate(dropped: int, trials: int, rate: float) -> None:
    """Check that the number of dropped values fits a binomial distribution."""
    assert binomtest(dropped, trials, rate).pvalue > 1e-4, (
        f"{dropped / trials:.3f} dropped, not {rate}"
    )


def make_constant(linear: nn.Linear | nn.LayerNorm, value: float) -> None:
    """Let a module return this value for any input."""
    nn.init.zeros_(linear.weight)
    nn.init.constant_(linear.bias, value)


def count_zeros(values: Tensor) -> int:
    return int((values == 0).sum())


@pytest.mark.parametrize(
    "mask", [None, torch.ones(BATCH * LENGTH, 1, dtype=torch.bool)], ids=["plain", "masked"]
)
def test_attention_drops_weights_at_its_rate(mask):
    """Texts have one token, whose one weight is 1. If it is dropped, the head's output is 0."""
    torch.manual_seed(0)
    config = encoder_config("add", **RATES)
    attention = Attention(config, scale=1.0).train()
    make_constant(attention.qkv, 1.0)
    attention.out = nn.Identity()
    mixed = attention(torch.zeros(BATCH * LENGTH, 1, HIDDEN), UNCHANGED, mask)
    by_head = mixed.unflatten(-1, (attention.num_heads, -1))[..., 0]
    check_rate(count_zeros(by_head), by_head.numel(), RATES["attention_probs_dropout_prob"])


@pytest.mark.parametrize("part", ["attention", "feed-forward layer"])
def test_a_block_drops_the_output_of_each_part_at_the_rate_of_hidden_states(part):
    torch.manual_seed(0)
    config = encoder_config("add", norm_first=True, **RATES)
    block = Block(config, scale=1.0).train()
    make_constant(block.attention.out, float(part == "attention"))
    make_constant(block.down, float(part != "attention"))
    added = block(torch.zeros(BATCH, LENGTH, HIDDEN), UNCHANGED)
    check_rate(count_zeros(added), added.numel(), RATES["hidden_dropout_prob"])


def test_what_enters_the_first_block_is_dropped_at_the_rate_of_hidden_states():
    torch.manual_seed(0)
    config = encoder_config("add", **RATES)
    model = EncoderModel(config).train()
    make_constant(model.norm, 1.0)
    entering = model.hidden_states(torch.zeros(BATCH, LENGTH, dtype=torch.long))[0]
    check_rate(count_zeros(entering), entering.numel(), RATES["hidden_dropout_prob"])


@pytest.mark.parametrize(("stated", "rate"), [(0.6, 0.6), (0.0, 0.0), (None, 0.2)])
def test_the_classifier_drops_at_its_own_rate_or_at_the_rate_of_hidden_states(stated, rate):
    torch.manual_seed(0)
    config = encoder_config("add", **RATES | {"classifier_dropout": stated}, num_labels=HIDDEN)
    model = EncoderForSequenceClassification(config).train()
    make_constant(model.base.pooler.dense, 1.0)
    model.classifier = nn.Identity()
    logits = model(torch.zeros(BATCH * LENGTH, 2, dtype=torch.long)).logits
    check_rate(count_zeros(logits), logits.numel(), rate)
