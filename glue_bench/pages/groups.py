"""Which groups of arms have a table, and what its heading is."""

from glue_bench.board.board import BLOCK_COLUMNS
from glue_bench.board.compare import CONVERSION_KIND, Comparison
from glue_bench.stats.verdicts import Group

CONVERSION_HEADING = "Converted from {source}: what the conversion costs, no ranking"


def groups_shown(comparison: Comparison) -> dict[str, Group]:
    """Give the groups that have a table, by the heading of the table.

    A block that is a part of a group of conversions has no table: the group shows it. A block is
    called by its origin, and by its shape too where an origin has several; the heading of a single
    table is empty.
    """
    largest_groups = comparison.largest_groups
    if len(largest_groups) == 1 and largest_groups[0].kind != CONVERSION_KIND:
        return {"": largest_groups[0]}
    blocks = comparison.board.table.set_index("arm")[BLOCK_COLUMNS]
    origins = []
    for group in largest_groups:
        if group.kind != CONVERSION_KIND:
            origins.append(blocks["origin"][group.reference])
    groups = {}
    for group in largest_groups:
        if group.kind == CONVERSION_KIND:
            heading = CONVERSION_HEADING.format(source=group.reference)
        else:
            origin, shape = blocks.loc[group.reference]
            name = f"{origin}, {shape}" if origins.count(origin) > 1 else str(origin)
            heading = name[:1].upper() + name[1:]
        groups[heading] = group
    return groups
