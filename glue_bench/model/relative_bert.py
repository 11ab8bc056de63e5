"""BERT checkpoints with relative positions (Huang et al. 2020), as transformers 4 computed them.

transformers 5 reads them as absolute ones, so that its outputs cannot be compared; the equation of
transformers 4 is in the tests. Checks of names and settings take the place of that comparison.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from glue_bench.errors import UserError
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.families import FAMILIES, Family

DISTANCE_TABLES = {
    "relative_key": "variant.relative_keys.#.",
    "relative_key_query": "variant.distances.#.",
}
"""Our names of the tables of distances, by `position_embedding_type`."""
THEIR_TABLE = "encoder.layer.#.attention.self.distance_embedding."
BERT_DECODER = "cls.predictions.decoder.weight"
UNUSED_WEIGHTS = ("embeddings.position_embeddings.weight", "embeddings.position_ids")
"""Weights that transformers 4 saved and did not use."""


def relative_family(kind: str) -> Family:
    """Return how a BERT checkpoint of a `position_embedding_type` is read."""
    bert = FAMILIES["bert"]
    pairs = [pair for pair in bert.encoder if "position_embeddings" not in pair[0]]
    return replace(bert, encoder=(*pairs, (THEIR_TABLE, DISTANCE_TABLES[kind])))


def to_relative(config: EncoderConfig, weights: dict[str, Tensor], kind: str) -> None:
    """Give a translated BERT the variant that computes its positions, in place.

    Row i - j + n - 1 of transformers' table is row j - i + n - 1 of ours.
    """
    config.variant = "relative-key-query"
    config.variant_options = {}
    if kind == "relative_key":
        config.variant = "shaw"
        config.variant_options = {"max_distance": config.max_position_embeddings - 1}
    prefix = DISTANCE_TABLES[kind].partition("#")[0]
    for name, table in weights.items():
        if name.startswith(prefix):
            weights[name] = table.flip(0)


def check_relative(
    name: str, settings: Mapping[str, Any], raw: Mapping[str, Tensor], family: Family
) -> None:
    """Refuse mistakes that a comparison with transformers finds in other checkpoints.

    Args:
        name: The name by which the user calls the checkpoint.
        settings: The checkpoint's config.json.
        raw: The checkpoint's weights.
        family: The family by which it is read.

    Raises:
        UserError: the model is a decoder, it has weights that are not read, or the decoder of its
            head is not the word table.
    """
    about = f"checkpoint '{name}'"
    for setting in ("is_decoder", "add_cross_attention"):
        if settings.get(setting):
            raise UserError(f"{about} has {setting}: true; only encoders are read")
    their_names = family.rename(raw)
    read_names = set(their_names.values())
    for key in raw:
        bare_name = key.removeprefix(family.prefix)
        is_of_encoder = bare_name.startswith(("embeddings.", "encoder."))
        if is_of_encoder and key not in read_names and bare_name not in UNUSED_WEIGHTS:
            raise UserError(f"{about} has unknown weights, such as {key}")
    words = their_names.get("variant.words.weight")
    if BERT_DECODER in raw and words and not torch.equal(raw[BERT_DECODER], raw[words]):
        fault = f"{BERT_DECODER} differs from the words, to which it should be tied"
        raise UserError(f"{about}: {fault}. Save its encoder alone")
