"""Writes the start of adapted_none, adapted_gate and adapted: an additive encoder whose positions are noise.

    python results/adapted/start.py SOURCE FOLDER

SOURCE is all-MiniLM-L6-v2, or the checkpoint of `none` that adapted_none.yaml made of it. All of SOURCE is kept but its
positions, which are drawn from N(0, 0.02^2): no arm begins with what they had learnt. MiniLM has no masked-LM head: a
new one is drawn, one for all arms. The SHA-256 of the weights (`weights_digest`) that all-MiniLM-L6-v2 gives is
be1cc1146d27782f3d8e1834b45df7809d0594f302cecbbd320dd775e3422339.
"""

import sys

import torch

from glue_bench.model.checkpoints import read_checkpoint
from glue_bench.model.start import under_head, weights_digest, with_variant
from glue_bench.training.tokenizers import load_tokenizer

source, folder = sys.argv[1:]
start = read_checkpoint(source)
model = under_head(start, with_variant(start.config, "add", {}, "grafted"))
positions = model.base.variant.positions.weight
with torch.no_grad():
    positions.copy_(0.02 * torch.randn(positions.shape, generator=torch.Generator().manual_seed(0)))
weights = {name: tensor for name, tensor in model.state_dict().items() if "pooler" not in name}
print(f"SHA-256 of the weights: {weights_digest(weights)}")
model.save_pretrained(folder, state_dict=weights)
load_tokenizer(source).save_pretrained(folder)
