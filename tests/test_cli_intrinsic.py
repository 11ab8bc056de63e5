"""`glue-bench intrinsic` and `glue_bench.intrinsic`: measures of any masked-LM checkpoint on any text."""

import json
from pathlib import Path

import pytest
import torch
import transformers

import glue_bench as package
from glue_bench.errors import UserError
from glue_bench.training.convert import SENTENCES
from glue_bench.training.tokenizers import train_tokenizer

MEASURES = [
    "validation_loss", "swap_1", "swap_2", "swap_4", "swap_8",
    "shuffle_1", "shuffle_2", "shuffle_3", "reverse", "start_8",
]  # fmt: skip
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("\n".join(SENTENCES))
    return path


@pytest.fixture
def checkpoint(tmp_path: Path):
    """Save a tiny random model with a masked-LM head, and its tokenizer; the folder."""

    def save(name: str = "bert", seed: int = 0, **changes) -> Path:
        torch.manual_seed(seed)
        tokenizer = train_tokenizer(SENTENCES, 150)
        config = transformers.BertConfig(
            **SIZES, vocab_size=len(tokenizer), max_position_embeddings=32, initializer_range=0.3, **changes
        )
        transformers.BertForMaskedLM(config).save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
        return tmp_path / name

    return save


def test_every_measure_of_every_checkpoint(checkpoint, text, glue_bench):
    first, second = checkpoint("first"), checkpoint("second", seed=1)
    said = glue_bench("intrinsic", first, second, "--corpus", text, "--format", "json")
    assert said.status == 0
    rows = json.loads(said.out)["rows"]
    assert [row["measure"] for row in rows] == [*MEASURES, *MEASURES]
    assert [row["checkpoint"] for row in rows] == [str(first)] * len(MEASURES) + [str(second)] * len(MEASURES)
    frame = package.intrinsic([first, second], text)
    assert frame["value"].round(4).tolist() == [row["value"] for row in rows]
    assert frame["standard_error"].round(4).tolist() == [row["standard_error"] for row in rows]
    swaps = frame[frame["measure"].str.startswith("swap_")]
    assert swaps["value"].between(0, 1).all()


def test_the_page_says_what_the_numbers_are(checkpoint, text, glue_bench):
    page = glue_bench("intrinsic", checkpoint(), "--corpus", text).out
    assert "| Swap test, 8 apart (%)" in page
    assert "| Rise, start moved by 8" in page
    assert "50% is chance" in page


def test_a_pretraining_is_measured_by_its_last_checkpoint_and_on_the_positions_that_it_used(checkpoint, text, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    for step, seed in ((9, 0), (10, 1)):
        checkpoint(f"run/step-{step}", seed=seed)
    (run / "identity.json").write_text(json.dumps({"settings": {"length": 20}}))
    measured = package.intrinsic(run, text)
    assert measured["checkpoint"].unique().tolist() == [str(run)]
    assert not measured["measure"].str.startswith("start_").any()  # 20 positions leave no room for a start at 8
    last = package.intrinsic(run / "step-10", text)
    assert measured.drop(columns="checkpoint").equals(last.drop(columns="checkpoint"))
    first = package.intrinsic(run / "step-9", text)
    assert measured["value"][0] != first["value"][0]


def test_without_a_head_there_is_one_line(make_bert, text, refused):
    said = refused("intrinsic", make_bert(texts=SENTENCES), "--corpus", text)
    assert "has no masked-LM head" in said
    assert len(said.splitlines()) == 1


def test_other_bad_input_is_one_line(checkpoint, text, refused, tmp_path):
    assert "does not exist" in refused("intrinsic", checkpoint(), "--corpus", tmp_path / "nothing.txt")
    small = checkpoint("small")
    train_tokenizer(SENTENCES, 160).save_pretrained(small)
    assert "give the tokenizer it was trained with as --tokenizer" in refused("intrinsic", small, "--corpus", text)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "identity.json").write_text("{}")
    with pytest.raises(UserError, match="has kept no checkpoint yet"):
        package.intrinsic(tmp_path / "empty", text)
