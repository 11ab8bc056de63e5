import pandas as pd
import pytest
import torch
from transformers import DataCollatorWithPadding, Trainer

from common import Settings
from glue_bench.data.sources import open_source
from glue_bench.training.tokenizers import load_tokenizer
from glue_bench.training.tokens import tokenise
from peers import arguments, as_dataset, real_tokens, score_split

HYPERPARAMETERS = Settings("demo", "rte", "here").experiment.finetuning.hyperparameters("rte", 5e-5)
TEXTS = ("a cat .", "the old cat saw the fox today .", "a fox .")


@pytest.fixture
def tokenizer(make_bert):
    return load_tokenizer(str(make_bert(texts=TEXTS)))


def test_both_sides_see_the_same_token_ids_and_padding_is_not_counted(tokenizer):
    data = open_source("demo").load("rte")
    ours = tokenise(data, tokenizer, 12).splits["validation"]
    peer, padded = (as_dataset(data.splits["validation"], tokenizer, 12, padding) for padding in ("dynamic", "fixed"))
    assert [token for ids in peer["input_ids"] for token in ids] == ours.ids.tolist()
    assert peer["label"] == ours.labels.tolist()
    assert {len(ids) for ids in padded["input_ids"]} == {12}
    assert real_tokens(padded) == real_tokens(peer) == len(ours.ids)


@pytest.mark.parametrize("padding", ["dynamic", "grouped"])
def test_predictions_are_scored_with_their_own_labels(tmp_path, tokenizer, padding):
    """Grouped by length, Trainer predicts the examples in another order than that of the split."""
    texts = [" ".join(TEXTS[i % 3].split()[: 1 + i % 5]) for i in range(40)]
    split = as_dataset(pd.DataFrame({"text_a": texts, "label": [int("old" in text) for text in texts]}), tokenizer, 16)
    made = arguments(HYPERPARAMETERS, tmp_path, padding, epochs=1, rows=4, seed=1)
    assert (made.learning_rate, made.get_warmup_steps(100), made.max_grad_norm, made.weight_decay) == (5e-5, 6, 1, 0.01)
    oracle = Oracle(tokenizer.convert_tokens_to_ids("old"))
    trainer = Trainer(oracle, made, DataCollatorWithPadding(tokenizer), processing_class=tokenizer)
    assert score_split(trainer, "rte", split) == {"accuracy": 1.0}


class Oracle(torch.nn.Module):
    """Says 1 where a text has a word."""

    def __init__(self, word: int) -> None:
        super().__init__()
        self.word = word

    def forward(self, input_ids, labels, **_):  # Trainer gives what this names
        assert labels.shape == input_ids.shape[:1]
        has = (input_ids == self.word).any(1).float()
        return {"loss": has.sum(), "logits": torch.stack([1 - has, has], 1)}
