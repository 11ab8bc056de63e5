"""VARIANTS: every way of combining embeddings, by name. Plugins add theirs when they are loaded."""

from glue_bench.model.variants.additive import (
    Add,
    AddSinusoidal,
    Gate,
    Infused,
    Multiply,
    NoPosition,
)
from glue_bench.model.variants.base import Variant
from glue_bench.model.variants.concatenated import Concat, ConcatSplit
from glue_bench.model.variants.diet import DietAbs, DietRel
from glue_bench.model.variants.relative import (
    AddRelative,
    Alibi,
    Disentangled,
    Relative,
    RelativeKeyQuery,
    Shaw,
)
from glue_bench.model.variants.rotary import Polar, Rotary
from glue_bench.model.variants.untied import (
    ConcatHeads,
    FourTerm,
    Untied,
    UntiedRelative,
    UntiedTieCls,
)

VARIANTS: dict[str, type[Variant]] = {
    "none": NoPosition,
    "add": Add,
    "add-sinusoidal": AddSinusoidal,
    "add-relative": AddRelative,
    "multiply": Multiply,
    "gate": Gate,
    "concat": Concat,
    "concat-split": ConcatSplit,
    "concat-heads": ConcatHeads,
    "position-infused": Infused,
    "four-term": FourTerm,
    "untied": Untied,
    "untied-tie-cls": UntiedTieCls,
    "untied-relative": UntiedRelative,
    "diet-abs": DietAbs,
    "diet-rel": DietRel,
    "relative": Relative,
    "shaw": Shaw,
    "relative-key-query": RelativeKeyQuery,
    "alibi": Alibi,
    "rotary": Rotary,
    "polar": Polar,
    "disentangled": Disentangled,
}
OURS = frozenset(VARIANTS.values())
"""The variants of this package. What a plugin's variant does besides is not known."""
