"""What an arm is made of: the shape of its encoder, what its weights started from, and its parameters.

Arms are ranked together only if they have one origin and one shape. The shape is everything that decides how much an
encoder can learn before any variant is chosen: layers, hidden size, heads and vocabulary; the intermediate size,
because feed-forward layers hold most of a block's weights; and the embedding size where the tables are narrower than
the blocks (ELECTRA), because it bounds what a word can say. Tables that are wider than the blocks (an arm's own
`embedding_size`) are part of how the arm combines embeddings: a block still sees no more than the hidden size, and what
they cost shows in the parameters. Positions are left out: rows of a table beyond the longest text take no part.
"""

from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

import pandas as pd

from glue_bench.config import AS_PUBLISHED, SCRATCH
from glue_bench.data.tasks import TASKS
from glue_bench.records.identity import pretraining_of
from glue_bench.records.plan import ArmFacts, Plan
from glue_bench.records.record import Checkpoint, Record, Shape
from glue_bench.values import BLOCK, BlockKey

FACTS = ["shape", "start", "parameters"]
"""What tables say of an arm's encoder."""
UNRECORDED = "unrecorded shape"
ANY_SHAPE = "each its own"
"""What stands for the shapes of native arms, which are shown together whatever they are."""
UNKNOWN_START = "an unrecorded start"
FRESH = "fresh weights of this shape"


def arm_facts(plan: Plan, arm: str, record: Record | None, steps: int | None) -> dict[str, Any]:
    """FACTS, `summary` and `start_digest` of an arm, from the plan or else from a record; `steps` of its pretraining.

    `summary` is the variant in words and the arm's options, "" in plans of earlier versions. `start_digest` is that of
    the checkpoint's files, "" where it is unknown or there is none. Plans of earlier
    versions have no shape: fresh weights have that of the plan's `scratch`, and a checkpoint is told by its parameters.
    """
    facts = plan.arms.get(arm, ArmFacts())
    options = [(name, str(value)) for name, value in plan.configured(arm).options.items()]
    name, digest = _checkpoint(plan, arm, record)
    origins = {facts.origin, record.origin if record else ""}
    shape = facts.shape or (record.shape if record else None) or _scratch_shape(plan, facts, name)
    counted = None
    if record and shape:  # a record counts the head too, a linear layer on top of the pooler
        counted = record.parameters - (shape.hidden_size + 1) * TASKS[record.cell.task].num_labels
    start = FRESH if name == SCRATCH else name or UNKNOWN_START
    # Equal shapes have equal parameters with `add`, which stand for a shape that nothing tells.
    as_add = _as_add(facts)
    unrecorded = UNRECORDED if as_add is None else f"{UNRECORDED} of {as_add} parameters with add"
    return {
        "shape": ANY_SHAPE if AS_PUBLISHED in origins else shape_text(shape) if shape else unrecorded,
        "start": f"{start}, then {steps:,} steps of pretraining" if steps else start,
        "parameters": facts.parameters or counted,
        "start_digest": digest,
        "summary": "; ".join([facts.summary, *map(": ".join, options)] if facts.summary else []),
    }


def shape_text(shape: Shape) -> str:
    """A shape in words, equal for equal shapes."""
    layers, heads = shape.num_hidden_layers, shape.num_attention_heads
    narrow = shape.embedding_size < shape.hidden_size
    return ", ".join(
        [
            f"{layers} layer{'s' * (layers != 1)}",
            f"hidden size {shape.hidden_size}",
            f"{heads} head{'s' * (heads != 1)}",
            f"intermediate size {shape.intermediate_size}",
            *([f"embedding size {shape.embedding_size}"] if narrow else []),
            f"vocabulary {shape.vocab_size}",
        ]
    )


def blocks_of(frame: pd.DataFrame) -> list[tuple[BlockKey, pd.DataFrame]]:
    """The blocks of a frame with the columns of BLOCK, in its order."""
    return [((str(origin), str(shape)), block) for (origin, shape), block in frame.groupby(BLOCK, sort=False)]


def block_names(keys: Iterable[BlockKey]) -> dict[BlockKey, str]:
    """Blocks as tables call them: by their origin, and by their shape too where an origin has several."""
    keys = list(dict.fromkeys(keys))
    origins = [origin for origin, _ in keys]
    return {(origin, shape): origin if origins.count(origin) == 1 else f"{origin}, {shape}" for origin, shape in keys}


def named_blocks(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """As `blocks_of`, by the names of the blocks."""
    blocks = blocks_of(frame)
    names = block_names(key for key, _ in blocks)
    return [(names[key], block) for key, block in blocks]


def title(name: str) -> str:
    """A block's name as a heading."""
    return name[:1].upper() + name[1:]


def distinct_starts(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells, with its digest behind a checkpoint's name where other contents have the same name."""
    known = cells[cells["start_digest"] != ""]
    contents = known.groupby("start")["start_digest"].nunique()
    unclear = cells["start"].isin(contents.index[contents > 1]) & (cells["start_digest"] != "")
    return cells.assign(
        start=cells["start"].where(~unclear, cells["start"] + " (" + cells["start_digest"].str[:12] + ")")
    )


def _checkpoint(plan: Plan, arm: str, record: Record | None) -> tuple[str, str]:
    """Name (with its revision) and digest of what the arm started from; "" where nothing says."""
    configured, recorded = plan.configured(arm), record.checkpoint if record else Checkpoint()
    name = configured.checkpoint or recorded.name
    digest = plan.arms.get(arm, ArmFacts()).start or recorded.digest
    revision = configured.revision or recorded.revision
    # Of a native arm it says behind the digest, too, how texts are given to the model.
    digest = "" if name == SCRATCH or pretraining_of(digest) else digest.partition(" ")[0]
    # Where a person keeps a checkpoint is no one's business.
    shown = PurePath(name).name if name.startswith(("/", "~", ".")) else name
    return (f"{shown}@{revision}" if revision else shown), digest


def _as_add(facts: ArmFacts) -> int | None:
    """The parameters that `add` has at the arm's sizes, from a plan that says so."""
    if facts.parameters is None or facts.added_over_add is None:
        return None
    return facts.parameters - facts.added_over_add


def _scratch_shape(plan: Plan, facts: ArmFacts, name: str) -> Shape | None:
    """The shape of fresh weights, by the sizes of a plan that records no shape.

    The tokenizer may have found fewer words than were asked for; the vocabulary is what is left of the parameters that
    `add` has. None where they do not fit.
    """
    sizes, parameters = plan.scratch, _as_add(facts)
    if name != SCRATCH or sizes is None or parameters is None:
        return None
    hidden, inner = sizes.hidden_size, sizes.intermediate_size
    block = 4 * hidden * (hidden + 1) + 2 * hidden * inner + inner + hidden + 4 * hidden
    # Positions, two segments, and the weight and bias of the norm after them; the pooler.
    around = hidden * (sizes.max_position_embeddings + 4) + hidden * (hidden + 1)
    words, rest = divmod(parameters - sizes.num_hidden_layers * block - around, hidden)
    if rest or not 0 < words <= sizes.vocab_size:
        return None
    return Shape(**dict(sizes) | {"vocab_size": words, "embedding_size": hidden})
