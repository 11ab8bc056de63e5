"""What an arm is made of: the shape of its encoder, what its weights started from, and its parameters.

Arms are ranked together only if they have one origin and one shape: a block. The shape is everything that decides how
much an encoder can learn before any variant is chosen: layers, hidden size, heads and vocabulary; the intermediate
size, because feed-forward layers hold most of a block's weights; and the embedding size where the tables are narrower
than the blocks (ELECTRA), because it bounds what a word can say. Tables that are wider than the blocks (an arm's own
`embedding_size`) are part of how the arm combines embeddings: a block still sees no more than the hidden size, and what
they cost shows in the parameters. Positions are left out: rows of a table beyond the longest text take no part.
"""

from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

import pandas as pd

from glue_bench.config import AS_PUBLISHED, SCRATCH
from glue_bench.records.values import ArmFacts, Plan, Shape

BlockKey = tuple[str, str]
BLOCK = ["origin", "shape"]
"""The columns whose values, a BlockKey, name a block."""
ARMS = ("arm", "variant", "origin", "options", "embedding_size", "summary", "shape", "start", "start_digest",
        "checkpoint", "parameters", "non_embedding_parameters", "added_over_add", "flops_per_token",
        "length")  # fmt: skip
FACTS = ["shape", "start", "parameters"]
"""What tables say of an arm's encoder."""
ANY_SHAPE = "each its own"
"""What stands for the shapes of native arms, which are shown together whatever they are."""
FRESH = "fresh weights of this shape"


def arms_frame(plan: Plan) -> pd.DataFrame:
    """One row per arm, in the plan's order, by its name: ARMS.

    `summary` is the variant in words, `options` and `embedding_size` are the arm's own. `start` is what the
    weights started from, before any pretraining of ours, and `start_digest` that of its files, "" of fresh weights;
    `checkpoint` is its name as the experiment gives it. Counts are those of the encoder without any head.
    """
    cells = {cell.arm: cell for cell in plan.cells}
    configured = {arm.name: arm for arm in plan.experiment.arms}
    rows = list[dict[str, Any]]()
    for name, facts in plan.arms.items():
        arm, cell = configured[name], cells[name]
        # Where a person keeps a checkpoint is no one's business.
        shown = PurePath(arm.checkpoint).name if arm.checkpoint.startswith(("/", "~", ".")) else arm.checkpoint
        named = f"{shown}@{arm.revision}" if arm.revision else shown
        rows.append({
            **{each: getattr(facts, each) for each in ARMS if each in ArmFacts.model_fields},
            **{"arm": arm.name, "variant": cell.variant, "origin": cell.origin, "checkpoint": arm.checkpoint},
            **{"options": arm.options, "embedding_size": arm.embedding_size},
            "shape": shape_text(facts.shape) if facts.shape and cell.origin != AS_PUBLISHED else ANY_SHAPE,
            "start": FRESH if named == SCRATCH else named,
            # Of a native arm it says behind the digest, too, how texts are given to the model.
            "start_digest": "" if named == SCRATCH else cell.checkpoint.partition(" ")[0],
        })  # fmt: skip
    kinds = {"parameters": "Int64", "embedding_size": "Int64"}
    return pd.DataFrame(rows, columns=list(ARMS)).astype(kinds).set_index("arm", drop=False)


def with_starts(arms: pd.DataFrame, steps: int | None) -> pd.DataFrame:
    """The arms with the `steps` of their pretraining behind what they started from.

    Where other contents have the same name, digests tell them apart.
    """
    known = arms[arms["start_digest"] != ""]
    contents = known.groupby("start")["start_digest"].nunique()
    unclear = arms["start"].isin(contents.index[contents > 1]) & (arms["start_digest"] != "")
    starts = arms["start"] + (f", then {steps:,} steps of pretraining" if steps else "")
    return arms.assign(start=starts.where(~unclear, starts + " (" + arms["start_digest"].str[:12] + ")"))


def shape_text(shape: Shape) -> str:
    """A shape in words, equal for equal shapes."""
    layers, heads = shape.num_hidden_layers, shape.num_attention_heads
    parts = {
        f"{layers} layer{'s' * (layers != 1)}": True,
        f"hidden size {shape.hidden_size}": True,
        f"{heads} head{'s' * (heads != 1)}": True,
        f"intermediate size {shape.intermediate_size}": True,
        f"embedding size {shape.embedding_size}": shape.embedding_size < shape.hidden_size,
        f"vocabulary {shape.vocab_size}": True,
        "LayerNorm first": shape.norm_first,
        "gated": shape.gated,
    }
    return ", ".join(part for part, is_said in parts.items() if is_said)


def blocks_of(frame: pd.DataFrame) -> list[tuple[BlockKey, pd.DataFrame]]:
    """The blocks of a frame with the columns of BLOCK, in its order."""
    return [((str(origin), str(shape)), block) for (origin, shape), block in frame.groupby(BLOCK, sort=False)]


def block_names(keys: Iterable[BlockKey]) -> dict[BlockKey, str]:
    """Blocks as tables call them: by their origin, and by their shape too where an origin has several."""
    keys = list(dict.fromkeys(keys))
    origins = [origin for origin, _ in keys]
    return {(origin, shape): origin if origins.count(origin) == 1 else f"{origin}, {shape}" for origin, shape in keys}
