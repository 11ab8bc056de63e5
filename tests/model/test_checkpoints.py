"""Checkpoints of every family compute in our encoder what they compute in transformers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tiny_models import (
    CONFIGS,
    encoder,
    encoder_config,
    max_error,
    pad,
    random_model,
    saved,
    segments,
    states,
    tokens,
)
from torch import Tensor
from transformers import PreTrainedModel

from glue_bench.errors import UserError
from glue_bench.model.checkpoints import graft, read_checkpoint
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.model.locate import fingerprint
from glue_bench.model.start import masked_lm

TOLERANCE = 1e-5


def test_pooler_output_equals_berts(tmp_path: Path) -> None:
    theirs, folder = saved(tmp_path, transformers.BertForSequenceClassification, "bert")
    start, (ids, mask) = read_checkpoint(folder), pad(tokens(), [11, 7, 2], 0)
    with torch.no_grad():
        expected = theirs.bert(ids, mask, segments(ids)).pooler_output
        ours = encoder(start.config, start.weights)(ids, mask, segments(ids)).pooler_output
    torch.testing.assert_close(ours, expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("family", ["roberta", "electra", "distilbert"])
def test_a_pooler_that_nothing_trained_is_left_out(family: str, tmp_path: Path) -> None:
    kinds = {"roberta": transformers.RobertaModel, "electra": transformers.ElectraModel}
    _, folder = saved(tmp_path, kinds.get(family, transformers.DistilBertModel), family)
    assert not any(name.startswith("pooler.") for name in read_checkpoint(folder).weights)


def same_states(folder: Path, theirs: PreTrainedModel) -> bool:
    """Whether the checkpoint in a folder, read by us, computes what `theirs` computes."""
    checkpoint = read_checkpoint(str(folder))
    ids = tokens()
    with torch.no_grad():
        expected = theirs(input_ids=ids, output_hidden_states=True).hidden_states
    return max_error(states(encoder(checkpoint.config, checkpoint.weights), ids), expected) < TOLERANCE


def test_pytorch_model_bin_is_read(tmp_path: Path) -> None:
    theirs = random_model(transformers.BertModel, CONFIGS["bert"]())
    theirs.config.save_pretrained(tmp_path)
    torch.save(theirs.state_dict(), tmp_path / "pytorch_model.bin")
    assert same_states(tmp_path, theirs)


def test_gamma_and_beta_are_read(tmp_path: Path) -> None:
    theirs, _ = saved(tmp_path, transformers.BertForMaskedLM, "bert")
    weights = load_file(tmp_path / "model.safetensors")
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in weights.items()
    }
    assert sum(name.endswith(("gamma", "beta")) for name in old) == 12
    save_file(old, tmp_path / "model.safetensors")
    assert same_states(tmp_path, theirs)
    assert "head_norm.weight" in read_checkpoint(str(tmp_path)).head


def test_sharded_weights_are_read(tmp_path: Path) -> None:
    theirs, _ = saved(tmp_path, transformers.BertModel, "bert", max_shard_size="10KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    assert same_states(tmp_path, theirs)


def test_half_precision_weights_become_float32(tmp_path: Path) -> None:
    random_model(transformers.BertModel, CONFIGS["bert"]()).to(torch.bfloat16).save_pretrained(tmp_path)
    assert {tensor.dtype for tensor in read_checkpoint(str(tmp_path)).weights.values()} == {torch.float32}


def test_old_config_without_defaults_is_read(tmp_path: Path) -> None:
    """bert-base-uncased's config.json predates many keys; transformers' defaults fill them."""
    saved(tmp_path, transformers.BertModel, "bert")
    sizes = '"vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3'
    (tmp_path / "config.json").write_text(
        f'{{"model_type": "bert", {sizes}, "intermediate_size": 40, "max_position_embeddings": 16}}'
    )
    config = read_checkpoint(str(tmp_path)).config
    assert (config.type_vocab_size, config.layer_norm_eps, config.hidden_act) == (2, 1e-12, "gelu")


@pytest.mark.parametrize("kind", [EncoderModel, EncoderForMaskedLM])
def test_our_own_checkpoint_is_read_back(kind: type[PreTrainedModel], tmp_path: Path) -> None:
    model = random_model(kind, encoder_config("untied", origin="adapted"))
    model.save_pretrained(tmp_path)
    checkpoint = read_checkpoint(str(tmp_path))
    assert checkpoint.config.origin == "adapted"
    again = encoder(checkpoint.config, checkpoint.weights)
    assert max_error(states(again, tokens()), states(model.base_model, tokens())) == 0
    assert bool(checkpoint.head) == (kind is EncoderForMaskedLM)


def test_our_own_masked_lm_keeps_its_head(tmp_path: Path) -> None:
    model = random_model(EncoderForMaskedLM, encoder_config("concat"))
    model.save_pretrained(tmp_path)
    again = masked_lm(read_checkpoint(str(tmp_path))).eval()
    with torch.no_grad():
        assert torch.equal(again(tokens()).logits, model(tokens()).logits)


def test_starting_the_same_variant_changes_nothing(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(saved(tmp_path, transformers.BertModel, "bert")[1])
    start = graft(checkpoint, "add", {})
    assert (start.origin, start.exact, start.config.origin) == ("pretrained", True, "pretrained")
    assert start.weights == checkpoint.weights


# What cannot be read is refused in words that say what to do


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A good BERT checkpoint, to be spoilt."""
    saved(tmp_path, transformers.BertModel, "bert")
    return tmp_path


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def change_weights(folder: Path, change: Callable[[dict[str, Tensor]], Any]) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors")


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "~/nowhere-at-all", "runs/arms/untied"])
def test_no_such_folder(name: str) -> None:
    with pytest.raises(UserError, match=r"no checkpoint folder '.*nowhere.*|no checkpoint folder 'runs/arms/untied'"):
        read_checkpoint(name)


def test_folder_without_config(folder: Path) -> None:
    (folder / "config.json").unlink()
    with pytest.raises(UserError, match=r"has no config\.json"):
        read_checkpoint(str(folder))


def test_config_that_is_not_json(folder: Path) -> None:
    (folder / "config.json").write_text("{'model_type': 'bert'}")
    with pytest.raises(UserError, match=r"config\.json' is not valid JSON"):
        read_checkpoint(str(folder))


def test_config_that_is_a_list(folder: Path) -> None:
    (folder / "config.json").write_text("[]")
    with pytest.raises(UserError, match=r"config\.json' is not a JSON object"):
        read_checkpoint(str(folder))


@pytest.mark.parametrize(
    "changes", [{"hidden_size": "wide"}, {"hidden_size": 30, "num_attention_heads": 7}, {"num_hidden_layers": None}]
)
def test_config_that_does_not_fit(folder: Path, changes: dict[str, Any]) -> None:
    change_config(folder, **changes)
    with pytest.raises(UserError, match=r"config\.json does not fit"):
        read_checkpoint(str(folder))


def test_half_a_pooler_is_refused(folder: Path) -> None:
    """Without any pooler it is drawn; of half of one nobody knows where the rest went."""
    change_weights(folder, lambda weights: weights.pop("pooler.dense.bias"))
    with pytest.raises(UserError, match=r"lacks 1 weights of its encoder, such as pooler\.dense\.bias"):
        read_checkpoint(str(folder))


def test_unknown_activation(folder: Path) -> None:
    change_config(folder, hidden_act="gelou")
    with pytest.raises(UserError, match="its activation 'gelou' is not known"):
        read_checkpoint(str(folder))


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """A good checkpoint of our own, to be spoilt."""
    random_model(EncoderForMaskedLM, encoder_config("add")).save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("act", "said"),
    [("gelou", "is not known"), ("prelu", "has weights of its own"), (3, "must be a text")],
)
def test_unknown_activation_of_the_head(ours: Path, act: Any, said: str) -> None:
    change_config(ours, head_act=act)
    with pytest.raises(UserError, match=said):
        read_checkpoint(str(ours))


def test_a_decoder_that_is_not_the_table_of_the_words_is_refused(ours: Path) -> None:
    change_config(ours, tie_word_embeddings=False)
    with pytest.raises(UserError, match="tie_word_embeddings is False; it must be true"):
        read_checkpoint(str(ours))
    with pytest.raises(ValueError, match="tie_word_embeddings is False; it must be true"):
        EncoderConfig(tie_word_embeddings=False)


@pytest.mark.parametrize(
    ("index", "problem"),
    [
        ('{"weight_map": {', "not valid JSON"),
        ("{}", "has no weight_map"),
        ('{"weight_map": {"a": []}}', "has no weight_map of names of files"),
        ('{"weight_map": {"a": 1, "b": "x"}}', "has no weight_map of names of files"),
    ],
)
def test_damaged_shard_index(folder: Path, index: str, problem: str) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(index)
    with pytest.raises(UserError, match=problem):
        read_checkpoint(str(folder))


def test_key_of_another_width(folder: Path) -> None:
    name = "encoder.layer.0.attention.self.key.weight"
    change_weights(folder, lambda weights: weights.update({name: torch.zeros(24, 7)}))
    with pytest.raises(UserError, match=r"lacks 1 weights .* blocks\.0\.attention\.qkv\.weight"):
        read_checkpoint(str(folder))


def test_masked_lm_without_a_head(folder: Path) -> None:
    with pytest.raises(UserError, match="has no masked-LM head"):
        masked_lm(read_checkpoint(str(folder)))


def test_folder_without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"has no weights; expected one of model\.safetensors"):
        read_checkpoint(str(folder))
    with pytest.raises(UserError, match="has no weights"):
        fingerprint(folder)


def test_truncated_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match=r"cannot read weights from '.*model\.safetensors'.*may be cut short"):
        read_checkpoint(str(folder))


def test_pickle_that_would_run_code_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"weights": Path("a function call, not a tensor")}, folder / "pytorch_model.bin")
    with pytest.raises(UserError, match="cannot read weights"):
        read_checkpoint(str(folder))


def test_missing_shard(tmp_path: Path) -> None:
    saved(tmp_path, transformers.BertModel, "bert", max_shard_size="10KB")
    sorted(tmp_path.glob("model-*.safetensors"))[0].unlink()
    with pytest.raises(UserError, match=r"cannot read weights from '.*model-00001-of"):
        read_checkpoint(str(tmp_path))


def test_unknown_family(folder: Path) -> None:
    change_config(folder, model_type="gpt2")
    known = "bert, roberta, xlm-roberta, camembert, electra, distilbert, glue_bench"
    with pytest.raises(UserError, match=f"model_type 'gpt2'; glue-bench reads {known}"):
        read_checkpoint(str(folder))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("embeddings.position_embeddings.weight", "variant.positions.weight"),
        ("embeddings.LayerNorm.bias", "norm.bias"),
        ("encoder.layer.1.output.dense.weight", "blocks.1.down.weight"),
        ("encoder.layer.1.attention.self.query.weight", "blocks.1.attention.qkv.weight"),
        ("encoder.layer.0.attention.self.key.bias", "blocks.0.attention.qkv.bias"),
    ],
)
def test_missing_weight(folder: Path, theirs: str, ours: str) -> None:
    change_weights(folder, lambda weights: weights.pop(theirs))
    with pytest.raises(UserError, match=f"lacks 1 weights of its encoder, such as {ours}"):
        read_checkpoint(str(folder))


def test_fewer_layers_than_the_config_says(folder: Path) -> None:
    change_config(folder, num_hidden_layers=3)
    with pytest.raises(UserError, match=r"lacks 12 weights of its encoder, such as blocks\.2"):
        read_checkpoint(str(folder))


@pytest.mark.parametrize("size", ["vocab_size", "max_position_embeddings", "intermediate_size"])
def test_shape_that_the_config_does_not_say(folder: Path, size: str) -> None:
    change_config(folder, **{size: 99})
    with pytest.raises(UserError, match=r"has shape \(.*\), its settings say \(.*99.*\)"):
        read_checkpoint(str(folder))


@pytest.mark.parametrize("key", ["num_attention_heads", "hidden_size", "num_hidden_layers", "max_position_embeddings"])
@pytest.mark.parametrize("value", [0, -2, 10**9, 2.5, None, "2", [2]])
def test_a_size_that_no_encoder_has_is_refused(tmp_path, key, value):
    config = {"model_type": "glue_bench", "vocab_size": 10, "hidden_size": 4, "num_attention_heads": 2, key: value}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"config.json does not fit: .*(must be a whole number|multiple|expected int)"):
        read_checkpoint(str(tmp_path))
