"""Checkpoints of every family compute in our encoder what they compute in transformers."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tiny_models import (
    CONFIGS,
    NARROW,
    POSITIONS,
    encoder,
    encoder_config,
    max_error,
    pad,
    random_model,
    saved,
    segments,
    shuffled,
    states,
    tokens,
)
from torch import Tensor
from transformers import PreTrainedModel

from glue_bench.model.checkpoints import Checkpoint, graft, masked_lm, read_checkpoint, read_config
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.heads import EncoderForMaskedLM

TOLERANCE = 1e-5
CHECKPOINTS = {
    "BertModel": "bert",
    "BertForMaskedLM": "bert",
    "BertForPreTraining": "bert",
    "BertForSequenceClassification": "bert",
    "RobertaModel": "roberta",
    "RobertaForMaskedLM": "roberta",
    "ElectraModel": "electra",
    "ElectraForMaskedLM": "electra",
    "DistilBertModel": "distilbert",
    "DistilBertForMaskedLM": "distilbert",
}
MASKED_LM = [
    "BertForMaskedLM",
    "BertForPreTraining",
    "RobertaForMaskedLM",
    "ElectraForMaskedLM",
    "DistilBertForMaskedLM",
]


@dataclass(frozen=True)
class Pair:
    """One saved checkpoint, as transformers has it and as we read it."""

    theirs: PreTrainedModel
    checkpoint: Checkpoint
    ours: EncoderModel

    def inputs(self, padded: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Token ids, mask and segment ids."""
        ids, mask = pad(tokens(), [11, 7, 2] if padded else [11] * 3, self.checkpoint.config.pad_token_id)
        return ids, mask, segments(ids, self.checkpoint.config.type_vocab_size)

    @torch.no_grad()
    def expected(self, ids: Tensor, mask: Tensor, segment_ids: Tensor) -> tuple[Tensor, ...]:
        extra = {"token_type_ids": segment_ids} if self.checkpoint.config.type_vocab_size else {}
        return self.theirs(input_ids=ids, attention_mask=mask, output_hidden_states=True, **extra).hidden_states


def read_pair(folder: Path, kind: str, **options: object) -> Pair:
    theirs, name = saved(folder, getattr(transformers, kind), CHECKPOINTS[kind], **options)
    checkpoint = read_checkpoint(name)
    return Pair(theirs, checkpoint, encoder(checkpoint.config, checkpoint.weights))


@pytest.fixture(scope="module", params=CHECKPOINTS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return read_pair(tmp_path_factory.mktemp(request.param), request.param)


@pytest.mark.parametrize("padded", [True, False])
def test_every_layer_equals_transformers(pair: Pair, padded: bool) -> None:
    ids, mask, segment_ids = pair.inputs(padded)
    ours = states(pair.ours, ids, mask if padded else None, segment_ids)
    assert max_error(ours, pair.expected(ids, mask, segment_ids), mask) < TOLERANCE


def test_the_comparison_is_not_vacuous(pair: Pair) -> None:
    ids, _, segment_ids = pair.inputs(padded=False)
    ours = states(pair.ours, ids, None, segment_ids)
    assert max_error(ours[-1:], states(pair.ours, shuffled(ids), None, segment_ids)[-1:]) > 1e-2
    assert float((ours[-1][:, 1] - ours[-1][:, 2]).abs().max()) > 1e-2
    if pair.checkpoint.config.type_vocab_size > 1:
        assert max_error(ours[-1:], states(pair.ours, ids)[-1:]) > 1e-2


def test_longest_sequence_is_the_one_transformers_can_read(pair: Pair) -> None:
    ids = tokens(1, POSITIONS)
    extra = torch.ones_like(ids), torch.zeros_like(ids)
    assert max_error(states(pair.ours, ids), pair.expected(ids, *extra)) < TOLERANCE


def test_configuration_says_where_the_weights_come_from(pair: Pair) -> None:
    config = pair.checkpoint.config
    assert (config.variant, config.origin) == ("add", "pretrained")
    assert config.max_position_embeddings == POSITIONS
    narrow = pair.theirs.config.model_type == "electra"
    assert config.embedding_size == (NARROW if narrow else config.hidden_size)


@pytest.mark.parametrize("kind", MASKED_LM)
def test_masked_lm_logits_equal_transformers(kind: str, tmp_path: Path) -> None:
    pair = read_pair(tmp_path, kind)
    ids, mask, segment_ids = pair.inputs(padded=True)
    extra = {"token_type_ids": segment_ids} if pair.checkpoint.config.type_vocab_size else {}
    with torch.no_grad():
        theirs = pair.theirs(input_ids=ids, attention_mask=mask, **extra)
        ours = masked_lm(pair.checkpoint).eval()(ids, mask, segment_ids).logits
    expected = theirs.prediction_logits if kind == "BertForPreTraining" else theirs.logits
    assert float((ours - expected)[mask.bool()].abs().max()) < TOLERANCE


def test_pooler_output_equals_berts(tmp_path: Path) -> None:
    pair = read_pair(tmp_path, "BertModel")
    ids, mask, segment_ids = pair.inputs(padded=True)
    with torch.no_grad():
        theirs = pair.theirs(ids, mask, segment_ids).pooler_output
        ours = pair.ours(ids, mask, segment_ids).pooler_output
    torch.testing.assert_close(ours, theirs, atol=TOLERANCE, rtol=0)


def test_pooler_is_absent_where_the_checkpoint_has_none(pair: Pair) -> None:
    has_pooler = any(name.startswith("pooler.") for name in pair.checkpoint.weights)
    assert has_pooler == (
        type(pair.theirs).__name__ in {"BertModel", "BertForPreTraining", "BertForSequenceClassification"}
    )


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
    assert read_config(str(tmp_path)).origin == checkpoint.config.origin == "adapted"
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
    checkpoint = read_pair(tmp_path, "BertModel").checkpoint
    start = graft(checkpoint, "add", {})
    assert (start.origin, start.exact, start.config.origin) == ("pretrained", True, "pretrained")
    assert start.weights == checkpoint.weights
