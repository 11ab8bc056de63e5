"""Official TUPE checkpoints: every weight finds its place, and what does not fit is named."""

import argparse
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from glue_bench.errors import UserError
from glue_bench.model.checkpoints import Checkpoint, graft, masked_lm, read_checkpoint, read_config
from glue_bench.model.locate import fingerprint

Spoil = Callable[[dict[str, Any]], Any]
ENCODER = "decoder.sentence_encoder."
OURS = {
    "embed_tokens.weight": "variant.words.weight",
    "pos.weight": "variant.positions.weight",
    "pos_q_linear.weight": "variant.position_query.weight",
    "pos_k_linear.bias": "variant.position_key.bias",
    "pos_ln.bias": "variant.position_norm.bias",
    "relative_attention_bias.weight": "variant.relative.table.weight",
    "emb_layer_norm.weight": "norm.weight",
    "layers.1.self_attn.in_proj_weight": "blocks.1.attention.qkv.weight",
    "layers.0.self_attn.in_proj_bias": "blocks.0.attention.qkv.bias",
    "layers.1.self_attn.out_proj.bias": "blocks.1.attention.out.bias",
    "layers.0.self_attn_layer_norm.weight": "blocks.0.attention_norm.weight",
    "layers.1.fc1.weight": "blocks.1.up.weight",
    "layers.0.fc2.weight": "blocks.0.down.weight",
    "layers.1.final_layer_norm.bias": "blocks.1.norm.bias",
}
OUR_HEAD = {
    "decoder.lm_head.dense.weight": "dense.weight",
    "decoder.lm_head.dense.bias": "dense.bias",
    "decoder.lm_head.layer_norm.weight": "head_norm.weight",
    "decoder.lm_head.layer_norm.bias": "head_norm.bias",
    "decoder.lm_head.bias": "decoder.bias",
}


def raw(path: Path) -> dict[str, torch.Tensor]:
    """The weights by fairseq's names."""
    with torch.serialization.safe_globals([argparse.Namespace]):
        return torch.load(path, weights_only=True)["model"]


def read(path: Path) -> Checkpoint:
    return read_checkpoint(str(path))


def test_every_weight_has_its_place(make_tupe: Callable[..., Path]) -> None:
    path = make_tupe()
    theirs, ours = raw(path), read(path)
    assert all(torch.equal(ours.weights[mine], theirs[ENCODER + name]) for name, mine in OURS.items())
    assert {name: tensor.tolist() for name, tensor in ours.head.items()} == {
        mine: theirs[name].tolist() for name, mine in OUR_HEAD.items()
    }
    assert len(ours.weights) + len(ours.head) + 1 == len(theirs)  # 1: the decoder, which is the words


def test_the_configuration_is_that_of_its_args(make_tupe: Callable[..., Path]) -> None:
    config = read_config(str(make_tupe()))
    assert (config.vocab_size, config.hidden_size, config.intermediate_size) == (250, 16, 32)
    assert (config.num_hidden_layers, config.num_attention_heads, config.max_position_embeddings) == (2, 2, 20)
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.2, 0.3)
    assert (config.type_vocab_size, config.layer_norm_eps, config.pad_token_id) == (0, 1e-5, 1)
    assert (config.variant, config.origin, config.hidden_act) == ("untied-relative", "pretrained", "gelu")


def test_without_relative_positions_it_is_tupe_a(make_tupe: Callable[..., Path]) -> None:
    path = make_tupe(spoil=lambda saved: drop(saved, "relative_attention_bias.weight"), rel_pos=False)
    checkpoint = read(path)
    start = graft(checkpoint, "untied", {})
    assert (start.config.variant, start.origin, start.exact) == ("untied", "pretrained", True)
    assert masked_lm(checkpoint)(torch.tensor([[0, 7, 9, 2]])).logits.shape == (1, 4, 250)


def drop(saved: dict[str, Any], *names: str) -> None:
    for name in names:
        del saved["model"][ENCODER + name]


def put(saved: dict[str, Any], name: str, *shape: int) -> None:
    saved["model"][name] = torch.zeros(shape)


def test_half_precision_becomes_float32(make_tupe: Callable[..., Path]) -> None:
    def halve(saved: dict[str, Any]) -> None:
        saved["model"] = {name: tensor.half() for name, tensor in saved["model"].items()}

    checkpoint = read(make_tupe(spoil=halve))
    assert {tensor.dtype for tensor in (*checkpoint.weights.values(), *checkpoint.head.values())} == {torch.float32}


def test_what_a_training_or_fine_tuning_leaves_is_no_hindrance(
    make_tupe: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """fairseq's trainer pickles its meters beside the weights; fine-tuning adds heads of its own."""
    meters = ModuleType("fairseq.meters")
    meters.TimeMeter = type("TimeMeter", (), {"__module__": "fairseq.meters"})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fairseq", ModuleType("fairseq"))
    monkeypatch.setitem(sys.modules, "fairseq.meters", meters)

    def train(saved: dict[str, Any]) -> None:
        meter = meters.TimeMeter()
        meter.start = 1.5
        saved["extra_state"] = {"train_meters": {"wall": meter}}
        saved["last_optimizer_state"] = {"state": {0: {"exp_avg": torch.zeros(3)}}}
        put(saved, "classification_heads.sentence_classification_head.out_proj.weight", 2, 16)

    path = make_tupe(spoil=train)
    monkeypatch.undo()
    assert read(path).config.variant == "untied-relative"


MISFITS: dict[str, tuple[Spoil, str]] = {
    "missing": (lambda saved: drop(saved, "pos_ln.weight", "layers.1.fc2.bias"), "lacks .*1.fc2.bias.*pos_ln.weight"),
    "no words": (lambda saved: drop(saved, "embed_tokens.weight"), r"lacks decoder\.sentence_encoder\.embed_tokens"),
    "no head": (lambda saved: saved["model"].pop("decoder.lm_head.dense.bias"), r"lacks decoder\.lm_head\.dense\.bias"),
    "unknown": (lambda saved: put(saved, f"{ENCODER}pos_proj.weight", 32, 16), "unknown .*pos_proj.weight"),
    "a block more": (lambda saved: put(saved, f"{ENCODER}layers.2.fc1.bias", 32), "unknown .*layers.2.fc1.bias"),
    "shape": (
        lambda saved: put(saved, f"{ENCODER}pos.weight", 33, 16),
        r"another shape: decoder.*pos.weight \(33, 16\) where its args say \(21, 16\)",
    ),
    "untied decoder": (
        lambda saved: put(saved, "decoder.lm_head.weight", 250, 16),
        "lm_head.weight differs from .*embed_tokens.weight",
    ),
}


@pytest.mark.parametrize("case", MISFITS)
def test_weights_that_do_not_fit_are_named(case: str, make_tupe: Callable[..., Path]) -> None:
    spoil, said = MISFITS[case]
    with pytest.raises(UserError, match=f"TUPE checkpoint '.*tupe.pt'.*{said}"):
        read(make_tupe(spoil=spoil))


def test_one_message_names_all_that_does_not_fit(make_tupe: Callable[..., Path]) -> None:
    def spoil(saved: dict[str, Any]) -> None:
        drop(saved, "pos_ln.weight")
        put(saved, "surplus", 1)
        put(saved, f"{ENCODER}pos.weight", 1, 1)

    with pytest.raises(UserError, match=r"lacks .*pos_ln.weight; unknown surplus; of another shape: .*pos.weight"):
        read(make_tupe(spoil=spoil))


def test_a_long_list_of_names_is_cut(make_tupe: Callable[..., Path]) -> None:
    with pytest.raises(UserError, match=r"lacks (\S+, ){11}\S+ and 12 more$"):
        read(make_tupe(encoder_layers=4))


ARGS: dict[str, tuple[dict[str, Any], str]] = {
    "missing": ({"max_positions": None, "rel_pos": None}, "its args lack max_positions, rel_pos"),
    "not a number": ({"encoder_layers": "2"}, "encoder_layers='2'"),
    "zero": ({"encoder_attention_heads": 0}, "encoder_attention_heads=0"),
    "heads": ({"encoder_attention_heads": 3}, "hidden_size 16 is not a multiple of num_attention_heads 3"),
    "activation": ({"activation_fn": "gelou"}, "activation_fn='gelou'"),
    "no norm": ({"embedding_normalize": False}, "embedding_normalize=False"),
    "pre-norm": ({"encoder_normalize_before": True}, "encoder_normalize_before=True"),
    "dropout": ({"dropout": "high"}, "dropout='high'"),
    "other sizes": ({"encoder_ffn_embed_dim": 64}, r"fc1.bias \(32,\) where its args say \(64,\)"),
    "not relative": ({"rel_pos": False}, "unknown .*relative_attention_bias.weight"),
}


@pytest.mark.parametrize("case", ARGS)
def test_args_that_do_not_fit_are_named(case: str, make_tupe: Callable[..., Path]) -> None:
    changes, said = ARGS[case]
    with pytest.raises(UserError, match=f"TUPE checkpoint '.*tupe.pt'.*{said}"):
        read(make_tupe(**changes))


LAYOUTS: dict[str, tuple[Spoil, str]] = {
    "no args": (lambda saved: saved.pop("args"), "holds model, extra_state, not args and model"),
    "no model": (lambda saved: saved.pop("model"), "holds args, extra_state, not args and model"),
    "nothing": (lambda saved: saved.clear(), "holds nothing, not args and model"),
    "plain args": (lambda saved: saved.update(args={"rel_pos": True}), r"its args are no argparse\.Namespace"),
    "no tensors": (lambda saved: saved.update(model={"a": 1}), "its model is no dictionary of tensors"),
}


@pytest.mark.parametrize("case", LAYOUTS)
def test_other_files_of_torch_are_refused(case: str, make_tupe: Callable[..., Path]) -> None:
    spoil, said = LAYOUTS[case]
    with pytest.raises(UserError, match=f"tupe.pt' is no official TUPE checkpoint: .*{said}"):
        read(make_tupe(spoil=spoil))


def test_a_tensor_alone_is_refused(tmp_path: Path) -> None:
    torch.save(torch.zeros(3), tmp_path / "tensor.pt")
    with pytest.raises(UserError, match="it holds a Tensor, not args and model"):
        read(tmp_path / "tensor.pt")


class RunsCode:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_pickled_code_is_not_run(make_tupe: Callable[..., Path], tmp_path: Path) -> None:
    path = make_tupe(spoil=lambda saved: saved.update(extra_state=RunsCode(tmp_path / "ran")))
    with pytest.raises(UserError, match=r"tupe.pt' pickles \S+, which might run code, and is not read") as error:
        read(path)
    assert "weights_only" not in str(error.value)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", pickle.dumps({"args": 1}), None], ids=repr)
def test_files_that_are_none_of_torch_are_refused(
    content: bytes | None, make_tupe: Callable[..., Path], tmp_path: Path
) -> None:
    path = tmp_path / "bad.pt"
    path.write_bytes(make_tupe().read_bytes()[:-3000] if content is None else content)
    with pytest.raises(UserError, match=r"cannot read '.*bad.pt' as an official TUPE checkpoint.* or cut short"):
        read(path)


def test_no_such_file() -> None:
    with pytest.raises(UserError, match=r"no checkpoint file 'runs/tupe\.pt'"):
        read_checkpoint("runs/tupe.pt")


def test_the_fingerprint_of_a_file_is_that_of_its_content(make_tupe: Callable[..., Path]) -> None:
    path = make_tupe()
    before = fingerprint(path)
    other = path.with_name("renamed.pt")
    other.write_bytes(path.read_bytes())
    assert fingerprint(other) == before
    assert fingerprint(make_tupe("other.pt", spoil=lambda saved: saved.update(extra_state={"epoch": 1}))) != before
