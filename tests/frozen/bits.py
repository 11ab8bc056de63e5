"""Gradients, updates and logits of 648 small encoders: 27 variants with options x sizes, dropout, bf16, heads, padding.

A zero counts the same whatever its sign.
"""

import hashlib
from itertools import product
from types import ModuleType
from typing import Any

import pandas as pd
import torch
from variants import OPTIONS, label

SIZES: tuple[dict[str, Any], ...] = (
    {"hidden_size": 48, "num_attention_heads": 4, "intermediate_size": 96, "num_hidden_layers": 3},
    {"hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 512, "num_hidden_layers": 2},
)
WAYS = [
    (size, drop, bf16, head, padded)
    for size, drop, bf16, head, padded in product(
        SIZES, (0.1, 0.0), (False, True), ("ForSequenceClassification", "ForMaskedLM"), (True, False)
    )
    if not (bf16 and size is SIZES[0])
]
LENGTHS = torch.tensor([37, 30, 5, 20, 37, 9])
TOKENS, STEPS, SHOWN = 300, 2, 8


def values(adapter: ModuleType, quick: bool) -> dict[str, pd.DataFrame]:
    """One row a setting: hashes of gradients, weights and logits; losses, the first norm, some logits."""
    rows = []
    for number, (variant, options) in enumerate(OPTIONS):
        chosen = {(7 * number) % len(WAYS), (7 * number + 11) % len(WAYS)} if quick else range(len(WAYS))
        for way in sorted(chosen):
            size, drop, bf16, head, padded = WAYS[way]
            name = f"{label(variant, options)} {size['hidden_size']} drop={drop} bf16={bf16} {head} padded={padded}"
            dropout = {"hidden_dropout_prob": drop, "attention_probs_dropout_prob": drop}
            settings = {"variant": variant, "variant_options": options, **size, **dropout}
            rows.append({"setting": name, **_setting(adapter, settings, head, bf16, padded)})
    return {"bits": pd.DataFrame(rows)}


def _setting(adapter: ModuleType, settings: dict[str, Any], head: str, bf16: bool, padded: bool) -> dict[str, Any]:
    sizes = {"vocab_size": TOKENS, "max_position_embeddings": 64, "num_labels": 3}
    model = adapter.build_encoder(head, 1, sizes | settings).train()
    draw = torch.Generator().manual_seed(5)
    for parameter in model.parameters():
        parameter.data.add_(torch.randn(parameter.shape, generator=draw) * 0.05)
    ids = torch.randint(5, TOKENS, (len(LENGTHS), 37), generator=draw)
    segments = torch.zeros_like(ids)
    segments[:, 15:] = 1
    mask = (torch.arange(37) < LENGTHS[:, None]).long() if padded else None
    classes = torch.randint(0, 3, (len(LENGTHS),), generator=draw)
    labels = ids if head == "ForMaskedLM" else classes
    torch.manual_seed(7)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    gradients, found = hashlib.sha256(), {"across": 0.01 if bf16 else 1e-6}
    for step in range(STEPS):
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            said = model(ids, mask, segments, labels=labels)
        said.loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                gradients.update(name.encode() + _bytes(parameter.grad))
        optimizer.step()
        optimizer.zero_grad()
        found |= {f"loss_{step}": said.loss.item()}
        if step == 0:  # AdamW makes 1e-3 of a gradient's last bit, so that later values are another processor's own
            shown = said.logits.flatten()[torch.linspace(0, said.logits.numel() - 1, SHOWN).long()]
            found |= {"norm": norm.item()} | {f"logit_{number}": value.item() for number, value in enumerate(shown)}
    weights = hashlib.sha256(b"".join(name.encode() + _bytes(value) for name, value in model.named_parameters()))
    model.eval()
    with torch.inference_mode():
        logits = model(ids, mask, segments).logits
    hashes = (gradients, weights, hashlib.sha256(_bytes(logits)))
    named = zip(("gradients", "weights", "logits"), hashes, strict=True)
    return {f"bits_{name}": value.hexdigest()[:16] for name, value in named} | found


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.detach().add(0.0).numpy().tobytes()
