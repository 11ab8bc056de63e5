"""The options under which variants are tested beside their defaults: each way in which they build other modules."""

from itertools import combinations
from typing import Any

from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.untied import TERMS

OPTIONS: dict[str, list[dict[str, Any]]] = {
    "none": [{"segments": "none"}],
    "add": [{"segments": "scores"}, {"segments": "none"}],
    "add-sinusoidal": [{"scale": 0.1}, {"scale": "words"}],
    "concat": [{"segments": "scores"}, {"segments": "none"}, {"init": "identity"}],
    "concat-split": [{"position_share": 0.25}],
    "four-term": [{"terms": list(terms)} for count in range(1, len(TERMS)) for terms in combinations(TERMS, count)],
    "untied": [{"share": False}, {"segments": "scores"}],
    "untied-tie-cls": [{"share": False}],
    "untied-relative": [{"share": False}, {"segments": "scores"}, {"segments": "none"}],
    "diet-abs": [{"rank": 2}, {"rank": 2, "share": False}],
    "diet-rel": [{"share": True}],
    "shaw": [{"max_distance": 3}],
    "disentangled": [{"terms": ["content-position"]}, {"terms": ["position-content"]}],
}
ARMS = [(variant, options) for variant in VARIANTS for options in ({}, *OPTIONS.get(variant, []))]
