"""What a native model costs, counted by hand: parameters outside of all tables, and operations of
its products.
"""

import pytest
import torch
import transformers
from scipy.stats import binomtest
from torch.utils.flop_counter import FlopCounterMode

from glue_bench.model.checks import native_budget
from glue_bench.model.native import read_native
from glue_bench.model.native_attention import attention
from glue_bench.training.tokenizers import train_tokenizer

HIDDEN, INNER, LAYERS, POSITIONS, TYPES, VOCABULARY, LENGTH = 16, 24, 3, 32, 3, 250, 20


@pytest.fixture(scope="module")
def counted(tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("native")
    sizes = {
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 2,
        "intermediate_size": INNER,
    }
    tables = {
        "vocab_size": VOCABULARY,
        "max_position_embeddings": POSITIONS,
        "type_vocab_size": TYPES,
    }
    config = transformers.BertConfig(**sizes, **tables)
    transformers.BertModel(config).save_pretrained(folder)
    tokenizer = train_tokenizer(("one of the many", "a short one"), 200)
    tokenizer.save_pretrained(folder)
    start = read_native(str(folder), None, tokenizer)
    return native_budget(start, tokenizer, LENGTH, "arm")


def test_parameters_outside_of_tables_are_without_words_positions_and_segments(counted):
    of_tables = (VOCABULARY + POSITIONS + TYPES) * HIDDEN
    block = 4 * HIDDEN * (HIDDEN + 1) + HIDDEN * (INNER + 1) + INNER * (HIDDEN + 1) + 4 * HIDDEN
    outside = LAYERS * block + 2 * HIDDEN + HIDDEN * (HIDDEN + 1)
    assert counted["non_embedding_parameters"] == outside
    assert counted["parameters"] == of_tables + outside


def test_operations_are_three_times_the_operations_of_a_forward_pass(counted):
    """They count for each token in each block. Pooler and classifier count once for each text."""
    projections = 2 * 4 * HIDDEN * HIDDEN + 2 * 2 * HIDDEN * INNER
    of_attention = 2 * 2 * LENGTH * HIDDEN
    of_text = 2 * HIDDEN * HIDDEN + 2 * HIDDEN * 2
    forward = LAYERS * (projections + of_attention) + of_text / LENGTH
    assert counted["length"] == LENGTH
    assert counted["flops_per_token"] == pytest.approx(3 * forward, abs=1)


FAMILIES = {
    "bert": {"intermediate_size": 32},
    "roberta": {"intermediate_size": 32},
    "electra": {"intermediate_size": 32, "embedding_size": 8},
    "distilbert": {"hidden_dim": 32},
    "deberta-v2": {"intermediate_size": 32, "relative_attention": True},
    "gpt2": {},
    "qwen2": {"intermediate_size": 32, "num_key_value_heads": 1},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_operations_count_eager_attention_in_every_family(family, tmp_path):
    """torch's counter knows every product of eager attention."""
    sizes = {"vocab_size": 250, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    limits = {"max_position_embeddings": 40, "pad_token_id": 0}
    config = transformers.AutoConfig.for_model(family, **sizes, **limits, **FAMILIES[family])
    transformers.AutoModel.from_config(config).save_pretrained(tmp_path)
    tokenizer = train_tokenizer(("one of the many", "a short one"), 200)
    tokenizer.save_pretrained(tmp_path)
    start = read_native(str(tmp_path), None, tokenizer)
    budget = native_budget(start, tokenizer, LENGTH, "arm")
    eager = start.classifier(("one", "other"), seed=0).eval().requires_grad_(False)
    eager.model.set_attn_implementation("eager")
    token_ids = torch.ones(2, budget["length"], dtype=torch.long)
    mask = torch.ones_like(token_ids, dtype=torch.bool)
    mask[1, 5:] = False
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        eager(token_ids, mask, torch.zeros_like(token_ids))
    assert budget["flops_per_token"] == 3 * counter.get_total_flops() // token_ids.numel()


@pytest.mark.parametrize("rate", [0.2, 0.6])
def test_native_attention_drops_at_the_rate_that_it_is_called_with(rate):
    """The texts have one token, whose one weight is 1."""
    torch.manual_seed(0)
    query, key = torch.zeros(2, 800, 2, 1, 4)
    mixed, _ = attention(
        torch.nn.Module(), query, key, torch.ones(800, 2, 1, 4), None, dropout=rate
    )
    dropped = int((mixed[..., 0] == 0).sum())
    assert binomtest(dropped, mixed[..., 0].numel(), rate).pvalue > 1e-4, dropped
