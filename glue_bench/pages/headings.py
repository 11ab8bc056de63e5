"""The heading of the table of a group of arms."""

from glue_bench.board.board import BLOCK_COLUMNS
from glue_bench.board.compare import CONVERSION_KIND, Comparison
from glue_bench.stats.verdicts import Group

CONVERSION_HEADING = "Converted from {source}: what the conversion costs, no ranking"


def heading_of(group: Group, comparison: Comparison) -> str:
    """Write the heading of a group's table.

    A block is called by its origin, and by its shape too where an origin has several. The heading
    is empty if the block is the only group that has a table.
    """
    if group.kind == CONVERSION_KIND:
        return CONVERSION_HEADING.format(source=group.reference)
    groups = comparison.largest_groups
    if len(groups) == 1:
        return ""
    blocks = comparison.board.table.set_index("arm")[BLOCK_COLUMNS]
    references = [other.reference for other in groups if other.kind != CONVERSION_KIND]
    origins = blocks["origin"].loc[references].tolist()
    origin, shape = blocks.loc[group.reference]
    name = f"{origin}, {shape}" if origins.count(origin) > 1 else str(origin)
    return name[:1].upper() + name[1:]
