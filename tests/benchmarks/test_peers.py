import pandas as pd
import pytest
import torch
from transformers import DataCollatorWithPadding, Trainer

from common import Settings
from glue_bench.training.tokenizers import load_tokenizer
from glue_bench.training.tokens import tokenise
from peers import PADDINGS, arguments, as_dataset, real_tokens, score_split

HYPERPARAMETERS = Settings("demo", "rte", "here", batch_size=4).experiment.finetuning.hyperparameters("rte", 5e-5)
TEXTS = ("a cat .", "the old cat saw the fox today .", "a fox .")


@pytest.fixture
def tokenizer(make_bert):
    return load_tokenizer(str(make_bert(texts=TEXTS)))


@pytest.mark.parametrize("padding", PADDINGS)
def test_only_fixed_padding_pads_and_none_of_it_counts(tokenizer, padding):
    frame = pd.DataFrame({"text_a": TEXTS, "label": [0, 1, 0]})
    split = as_dataset(frame, tokenizer, 16, padding)
    lengths = [len(ids) for ids in split["input_ids"]]
    assert (lengths == [16, 16, 16]) if padding == "fixed" else (len(set(lengths)) == 2)
    assert real_tokens(split) == sum(len(tokenizer(text)["input_ids"]) for text in TEXTS)


def test_both_sides_see_the_same_token_ids(tokenizer):
    from glue_bench.data.sources import open_source

    data = open_source("demo").load("rte")
    ours = tokenise(data, tokenizer, 12).splits["validation"]
    peer = as_dataset(data.splits["validation"], tokenizer, 12)
    assert [token for ids in peer["input_ids"] for token in ids] == ours.ids.tolist()
    assert peer["label"] == ours.labels.tolist()


@pytest.mark.parametrize(("padding", "strategy"), [("dynamic", "random"), ("grouped", "group_by_length")])
def test_trainer_has_the_cells_hyperparameters(tmp_path, padding, strategy):
    made = arguments(HYPERPARAMETERS, 1, tmp_path, padding)
    assert (made.per_device_train_batch_size, made.learning_rate, made.num_train_epochs) == (4, 5e-5, 1)
    assert (made.get_warmup_steps(100), made.max_grad_norm, made.weight_decay) == (6, 1.0, 0.01)
    assert made.train_sampling_strategy == strategy


@pytest.mark.parametrize("padding", ["dynamic", "grouped"])
def test_predictions_are_scored_with_their_own_labels(tmp_path, tokenizer, padding):
    """Grouped by length, Trainer predicts the examples in another order than that of the split."""
    texts = [" ".join(TEXTS[i % 3].split()[: 1 + i % 5]) for i in range(40)]
    split = as_dataset(pd.DataFrame({"text_a": texts, "label": [int("old" in text) for text in texts]}), tokenizer, 16)
    trainer = Trainer(
        model=Oracle(tokenizer.convert_tokens_to_ids("old")),
        args=arguments(HYPERPARAMETERS, 1, tmp_path, padding),
        processing_class=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer),
    )
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
