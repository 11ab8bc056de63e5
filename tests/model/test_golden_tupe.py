"""`untied` and `untied-relative` against outputs of the official TUPE code (guolinke/TUPE at 4c64ff7)."""

import argparse
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.families import rename
from glue_bench.model.transformers_api import EncoderForMaskedLM

GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "golden"
OFFICIAL = (
    (r"embed_tokens\.(.*)", r"base.variant.words.\1"),
    (r"pos\.(.*)", r"base.variant.positions.\1"),
    (r"pos_q_linear\.(.*)", r"base.variant.position_query.\1"),
    (r"pos_k_linear\.(.*)", r"base.variant.position_key.\1"),
    (r"pos_ln\.(.*)", r"base.variant.position_norm.\1"),
    (r"relative_attention_bias\.(.*)", r"base.variant.relative.table.\1"),
    (r"emb_layer_norm\.(.*)", r"base.norm.\1"),
    (r"layers\.(\d+)\.self_attn\.in_proj_(.*)", r"base.blocks.\1.attention.qkv.\2"),
    (r"layers\.(\d+)\.self_attn\.out_proj\.(.*)", r"base.blocks.\1.attention.out.\2"),
    (r"layers\.(\d+)\.self_attn_layer_norm\.(.*)", r"base.blocks.\1.attention_norm.\2"),
    (r"layers\.(\d+)\.fc1\.(.*)", r"base.blocks.\1.up.\2"),
    (r"layers\.(\d+)\.fc2\.(.*)", r"base.blocks.\1.down.\2"),
    (r"layers\.(\d+)\.final_layer_norm\.(.*)", r"base.blocks.\1.norm.\2"),
    (r"decoder\.lm_head\.dense\.(.*)", r"dense.\1"),
    (r"decoder\.lm_head\.layer_norm\.(.*)", r"head_norm.\1"),
    (r"decoder\.lm_head\.(weight|bias)", r"decoder.\1"),
)


def read_official(name: str) -> tuple[argparse.Namespace, dict[str, Tensor]]:
    """Settings and weights of a checkpoint in the release's layout, in its names."""
    path = GOLDEN / f"{name}.pt"
    if not path.exists():
        pytest.skip("no golden outputs of the official TUPE code here")
    with torch.serialization.safe_globals([argparse.Namespace]):
        checkpoint = torch.load(path, weights_only=True)
    return checkpoint["args"], checkpoint["model"]


def translate(args: argparse.Namespace, weights: dict[str, Tensor]) -> EncoderForMaskedLM:
    """The official checkpoint as ours, with its masked-LM head."""
    config = EncoderConfig(
        vocab_size=weights["decoder.lm_head.bias"].shape[0],
        hidden_size=args.encoder_embed_dim,
        num_hidden_layers=args.encoder_layers,
        num_attention_heads=args.encoder_attention_heads,
        intermediate_size=args.encoder_ffn_embed_dim,
        hidden_act=args.activation_fn,
        max_position_embeddings=args.max_positions,
        type_vocab_size=0,
        layer_norm_eps=1e-5,
        pad_token_id=1,
        variant="untied-relative" if args.rel_pos else "untied",
    )
    names = rename(weights, OFFICIAL, "decoder.sentence_encoder.")
    model = EncoderForMaskedLM(config).eval()
    state = {ours: weights[theirs] for ours, theirs in names.items()}
    lacking, unknown = model.load_state_dict(state, strict=False)
    assert len(names) == len(weights)
    assert not unknown
    assert set(lacking) == {"base.pooler.dense.weight", "base.pooler.dense.bias"}
    return model


@pytest.fixture(scope="module", params=["tupe_a", "tupe_r"])
def golden(request: pytest.FixtureRequest) -> SimpleNamespace:
    model = translate(*read_official(request.param))
    expected = load_file(GOLDEN / f"{request.param}.expected.safetensors")
    real = expected["mask"].bool()
    with torch.no_grad():
        hidden = model.base(expected["tokens"], expected["mask"]).last_hidden_state
        logits = model(expected["tokens"], expected["mask"]).logits
    return SimpleNamespace(model=model, expected=expected, real=real, hidden=hidden, logits=logits)


def test_hidden_states_are_those_of_the_official_code(golden: SimpleNamespace) -> None:
    error = (golden.hidden - golden.expected["hidden"])[golden.real].abs().max()
    assert error < 1e-4, f"largest error {error:.2e}"


def test_masked_lm_logits_are_those_of_the_official_code(golden: SimpleNamespace) -> None:
    error = (golden.logits - golden.expected["logits"])[golden.real].abs().max()
    assert error < 1e-4, f"largest error {error:.2e}"


def test_the_comparison_sees_a_swap_of_the_two_cls_parameters(golden: SimpleNamespace) -> None:
    positions = golden.model.base.variant.positions.weight
    before = positions.detach().clone()
    with torch.no_grad():
        positions[:2] = before[:2].flip(0)
        hidden = golden.model.base(golden.expected["tokens"], golden.expected["mask"]).last_hidden_state
        positions.copy_(before)
    assert (hidden - golden.expected["hidden"])[golden.real].abs().max() > 1e-2
