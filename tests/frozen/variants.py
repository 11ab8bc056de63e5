"""The 27 variants with options whose values are frozen: each variant's defaults, and options that build other modules.

The names are written down here, so that a variant that leaves the package is missed.
"""

from typing import Any

NAMES = (
    *("none", "add", "add-sinusoidal", "multiply", "gate", "concat", "concat-split"),
    *("untied", "untied-tie-cls", "untied-relative", "four-term"),
    *("add-relative", "alibi", "rotary", "shaw", "disentangled", "diet-abs", "diet-rel"),
)
OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    *((name, {}) for name in NAMES),
    ("untied", {"share": False}),
    ("diet-abs", {"share": False, "rank": 4}),
    ("diet-rel", {"share": True}),
    ("four-term", {"terms": ["word-position", "position-position"]}),
    ("four-term", {"terms": ["word-word"]}),
    ("disentangled", {"terms": ["content-position"]}),
    ("add", {"segments": "scores"}),
    ("untied", {"segments": "scores"}),
    ("concat", {"init": "identity"}),
)


def label(variant: str, options: dict[str, Any]) -> str:
    """A variant with its options, in short."""
    return " ".join([variant, *(f"{key}={value}" for key, value in options.items())])
