"""VARIANTS: every way of combining embeddings, by name. Those of plugins join them when they are loaded."""

from glue_bench.model.variants.add import Add, NoPosition
from glue_bench.model.variants.base import Variant
from glue_bench.model.variants.blend import Gate, Multiply
from glue_bench.model.variants.concat import Concat
from glue_bench.model.variants.concat_split import ConcatSplit
from glue_bench.model.variants.diet import DietAbs, DietRel
from glue_bench.model.variants.disentangled import Disentangled
from glue_bench.model.variants.four_term import FourTerm
from glue_bench.model.variants.relative import AddRelative, Alibi
from glue_bench.model.variants.shaw import Shaw
from glue_bench.model.variants.sinusoidal import AddSinusoidal, Rotary
from glue_bench.model.variants.untied import Untied, UntiedRelative, UntiedTieCls

VARIANTS: dict[str, type[Variant]] = {
    "none": NoPosition,
    "add": Add,
    "add-sinusoidal": AddSinusoidal,
    "add-relative": AddRelative,
    "multiply": Multiply,
    "gate": Gate,
    "concat": Concat,
    "concat-split": ConcatSplit,
    "four-term": FourTerm,
    "untied": Untied,
    "untied-tie-cls": UntiedTieCls,
    "untied-relative": UntiedRelative,
    "diet-abs": DietAbs,
    "diet-rel": DietRel,
    "shaw": Shaw,
    "alibi": Alibi,
    "rotary": Rotary,
    "disentangled": Disentangled,
}


def is_ours(variant: type[Variant] | None) -> bool:
    """Whether a variant is part of this package; nobody knows what else one of a plugin does."""
    return variant is not None and variant.__module__.split(".")[0] == "glue_bench"
