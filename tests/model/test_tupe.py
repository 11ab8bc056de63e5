"""The official TUPE checkpoints are read as TUPE's equations and its own code compute them, or
refused.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from glue_bench.errors import UserError
from glue_bench.model.checkpoints import read_checkpoint
from glue_bench.model.start import Start, under_head

Spoil = Callable[[dict[str, Any]], Any]
ENCODER = "decoder.sentence_encoder."
GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "golden"
ACTIVATIONS = {"gelu": F.gelu, "relu": F.relu, "tanh": torch.tanh}


def read(path: Path) -> Start:
    return read_checkpoint(str(path))


def random_weights(saved: dict[str, Any]) -> None:
    """Return weights far from zero, with the decoder tied to the words."""
    generator = torch.Generator().manual_seed(0)
    saved["model"] = {
        name: 0.4 * torch.randn(weight.shape, generator=generator)
        for name, weight in saved["model"].items()
    }
    saved["model"]["decoder.lm_head.weight"] = saved["model"][f"{ENCODER}embed_tokens.weight"]
    if not saved["args"].embedding_normalize:
        drop(saved, "emb_layer_norm.weight", "emb_layer_norm.bias")
    if not saved["args"].rel_pos:
        drop(saved, "relative_attention_bias.weight")


def drop(saved: dict[str, Any], *names: str) -> None:
    for name in names:
        del saved["model"][ENCODER + name]


def put(saved: dict[str, Any], name: str, *shape: int) -> None:
    saved["model"][name] = torch.zeros(shape)


class Equations:
    """TUPE by its equations 10 and 11, one sequence (l) at a time and without padding."""

    def __init__(self, weights: dict[str, Tensor], args: dict[str, Any]) -> None:
        self.args = args
        self.heads = args["encoder_attention_heads"]
        self.weights: dict[str, Tensor] = {}
        for name, weight in weights.items():
            self.weights[name.removeprefix(ENCODER)] = weight.double()

    def linear(self, x: Tensor, name: str) -> Tensor:
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, x: Tensor, name: str) -> Tensor:
        weight = self.weights[f"{name}.weight"]
        bias = self.weights[f"{name}.bias"]
        return F.layer_norm(x, x.shape[-1:], weight, bias, eps=1e-5)

    def activation(self, x: Tensor) -> Tensor:
        function = ACTIVATIONS[self.args["activation_fn"]]
        return function(x)

    def split(self, x: Tensor) -> Tensor:
        """Divide (l, d) among the heads: (h, l, k)."""
        return x.view(len(x), self.heads, -1).transpose(0, 1)

    def products(self, query: Tensor, key: Tensor) -> Tensor:
        """Return scores (h, l, l), scaled for two terms."""
        return query @ key.mT / (2 * query.shape[-1]) ** 0.5

    def position_scores(self, length: int) -> Tensor:
        """Return scores (h, l, l) of the positions.

        theta_1 = (p_0 U^Q)(p_0 U^K)^T is of [CLS] to all, theta_2 = (p_1 U^Q)(p_1 U^K)^T of the
        others to [CLS]. Position i is row i + 1 of the table.
        """
        rows = self.norm(self.weights["pos.weight"], "pos_ln")
        queries = self.split(self.linear(rows, "pos_q_linear"))
        keys = self.split(self.linear(rows, "pos_k_linear"))
        products = self.products(queries, keys)
        scores = products[:, 1 : length + 1, 1 : length + 1].clone()
        scores[:, :, 0] = products[:, 1, 1, None]
        scores[:, 0] = products[:, 0, 0, None]
        return scores

    def bucket_scores(self, length: int) -> Tensor:
        """Return scores (h, l, l) of the relative part.

        [CLS] to others is of bucket 16, others to [CLS] of bucket 32. Of distances below 8 every
        one has a bucket; those of keys to the right lie 16 further on.
        """
        places = torch.arange(length)
        distances = places - places[:, None]
        buckets = distances.abs() + 16 * (distances > 0)
        buckets[:, 0] = 32
        buckets[0] = 16
        return self.weights["relative_attention_bias.weight"][buckets].permute(2, 0, 1)

    def block(self, x: Tensor, bias: Tensor, name: str) -> Tensor:
        """Return the states (l, d) after a block. The names of its weights begin with `name`."""
        in_weight = self.weights[f"{name}self_attn.in_proj_weight"]
        in_bias = self.weights[f"{name}self_attn.in_proj_bias"]
        query, key, value = map(self.split, (x @ in_weight.T + in_bias).chunk(3, dim=-1))
        mixed = (self.products(query, key) + bias).softmax(-1) @ value
        attention = self.linear(mixed.transpose(0, 1).flatten(1), f"{name}self_attn.out_proj")
        x = self.norm(x + attention, f"{name}self_attn_layer_norm")
        inner = self.activation(self.linear(x, f"{name}fc1"))
        return self.norm(x + self.linear(inner, f"{name}fc2"), f"{name}final_layer_norm")

    def logits(self, ids: Tensor) -> Tensor:
        """Return the logits (l, v) of the masked-LM head."""
        x = self.weights["embed_tokens.weight"][ids]
        if self.args["embedding_normalize"]:
            x = self.norm(x, "emb_layer_norm")
        bias = self.position_scores(len(ids))
        if self.args["rel_pos"]:
            bias = bias + self.bucket_scores(len(ids))
        for number in range(self.args["encoder_layers"]):
            x = self.block(x, bias, f"layers.{number}.")
        dense = self.activation(self.linear(x, "decoder.lm_head.dense"))
        x = self.norm(dense, "decoder.lm_head.layer_norm")
        return x @ self.weights["embed_tokens.weight"].T + self.weights["decoder.lm_head.bias"]


@pytest.mark.parametrize("rel_pos", [False, True])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"embedding_normalize": False},
        {"activation_fn": "relu"},
        {"activation_fn": "tanh"},
        {"dropout": 0.0},
    ],
)
def test_what_is_read_is_the_equation(rel_pos, changes, make_tupe):
    path = make_tupe(spoil=random_weights, rel_pos=rel_pos, **changes)
    with torch.serialization.safe_globals([argparse.Namespace]):
        saved = torch.load(path, weights_only=True)
    ids = torch.tensor([0, 7, 9, 31, 9, 200, 2])
    with torch.no_grad():
        actual = under_head(start := read(path), start.config).double().eval()(ids[None]).logits[0]
    equations = Equations(saved["model"], vars(saved["args"]))
    expected = equations.logits(ids)
    error = (actual - expected).abs()
    assert error.max().item() < 1e-5
    assert float(expected.std()) > 0.1


@torch.no_grad()
@pytest.mark.skipif(not GOLDEN.is_dir(), reason="no golden outputs of the official TUPE code here")
@pytest.mark.parametrize("name", ["tupe_a", "tupe_r"])
def test_hidden_states_and_logits_equal_the_official_code(name):
    """The checkpoints have the layout of the release."""
    model = under_head(start := read(GOLDEN / f"{name}.pt"), start.config).eval()
    expected = load_file(GOLDEN / f"{name}.expected.safetensors")
    real = expected["mask"].bool()
    actual = model(expected["tokens"], expected["mask"], output_hidden_states=True)
    assert float((actual.hidden_states[-1] - expected["hidden"])[real].abs().max()) < 1e-4
    error = (actual.logits - expected["logits"])[real].abs()
    assert error.max().item() < 1e-4
    positions = model.base.variant.positions.weight
    positions[:2] = positions[:2].flip(0)  # the comparison sees a swap of the two [CLS] parameters
    hidden = model.base(expected["tokens"], expected["mask"]).last_hidden_state
    assert float((hidden - expected["hidden"])[real].abs().max()) > 1e-2


def test_what_a_training_or_fine_tuning_leaves_is_no_hindrance(make_tupe, monkeypatch):
    """fairseq's trainer pickles its meters beside the weights; fine-tuning adds its own heads."""
    meters = ModuleType("fairseq.meters")
    vars(meters)["TimeMeter"] = type("TimeMeter", (), {"__module__": "fairseq.meters"})
    monkeypatch.setitem(sys.modules, "fairseq", ModuleType("fairseq"))
    monkeypatch.setitem(sys.modules, "fairseq.meters", meters)

    def train(saved: dict[str, Any]) -> None:
        saved["extra_state"] = {"train_meters": {"wall": meters.TimeMeter()}}
        put(saved, "classification_heads.sentence_classification_head.out_proj.weight", 2, 16)

    path = make_tupe(spoil=train)
    monkeypatch.undo()
    assert read(path).config.variant == "untied-relative"


MISFITS: list[tuple[Spoil, str]] = [
    (
        lambda saved: drop(saved, "pos_ln.weight", "layers.1.fc2.bias"),
        "lacks 2 weights of its encoder",
    ),
    (lambda saved: drop(saved, "embed_tokens.weight"), r"lacks 1 weights .* variant\.words"),
    (
        lambda saved: put(saved, f"{ENCODER}pos_proj.weight", 32, 16),
        "unknown weights.*pos_proj.weight",
    ),
    (
        lambda saved: put(saved, f"{ENCODER}layers.2.fc1.bias", 32),
        "unknown weights.*blocks.2.up.bias",
    ),
    (
        lambda saved: put(saved, f"{ENCODER}pos.weight", 33, 16),
        r"positions\.weight has shape \(33, 16\)",
    ),
    (
        lambda saved: put(saved, "decoder.lm_head.weight", 250, 16),
        "lm_head.weight differs from the words",
    ),
    (lambda saved: saved.pop("args"), "a file of torch.save with args and model"),
    (
        lambda saved: saved.update(args={"rel_pos": True}),
        "a file of torch.save with args and model",
    ),
    (lambda saved: saved.update(model={"a": 1}), "its a is no plain tensor"),
    (
        lambda saved: saved.update(extra_state=Path()),
        r"as an official TUPE .* it pickles \S+, which might run code$",
    ),
]
ARGS: list[tuple[dict[str, Any], str]] = [
    ({"max_positions": None}, "its args do not fit: no max_positions"),
    ({"encoder_layers": "2"}, "num_hidden_layers is '2'"),
    ({"encoder_ffn_embed_dim": 64}, r"up.weight has shape \(32, 16\), its settings say \(64, 16\)"),
    ({"encoder_layers": 4}, "lacks 24 weights"),
    ({"encoder_layers": 1}, "unknown weights"),
    ({"embedding_normalize": False}, "unknown weights, such as norm"),
    ({"embedding_normalize": "yes"}, "embedding_norm is 'yes'; it must be true or false"),
    ({"encoder_normalize_before": True}, "encoder_normalize_before=True"),
    ({"dropout": "high"}, "hidden_dropout_prob is 'high'"),
    ({"attention_dropout": 1.0}, "attention_probs_dropout_prob is 1.0"),
    ({"rel_pos": False}, "unknown weights, such as variant.relative.table"),
    ({"rel_pos_bins": 64}, "rel_pos_bins=64"),
    ({"max_rel_pos": 256}, "max_rel_pos=256"),
]


@pytest.mark.parametrize(
    ("change", "message"), [*MISFITS, *ARGS], ids=[message for _, message in [*MISFITS, *ARGS]]
)
def test_a_file_that_does_not_fit_is_refused_in_one_line(change, message, make_tupe):
    path = make_tupe(**change) if isinstance(change, dict) else make_tupe(spoil=change)
    with pytest.raises(UserError, match=f"tupe.pt'.*{message}") as refused:
        read(path)
    assert "\n" not in str(refused.value)
