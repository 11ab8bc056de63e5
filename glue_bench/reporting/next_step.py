"""The one command that matters next, by what is there."""

from collections.abc import Sequence

from glue_bench.data.tasks import TRAINABLE
from glue_bench.reporting.findings import Findings
from glue_bench.reporting.notes import is_demo, marked_tasks

SEEDS = 3
"""From so many seeds on an arm shows how far its own runs spread."""


def next_step(findings: Findings, folder: str, failed: Sequence[str] = ()) -> str:
    """A command, and why: what is unfinished comes first, then what would tell more, then what can be handed in."""
    board, contrasts = findings.board, findings.contrasts
    if failed:
        return f"`glue-bench status {folder}` (why runs have failed)"
    if len(board.missing):
        return "the same `glue-bench run`, which goes on with what is missing"
    if is_demo(findings.results):
        return "`glue-bench run --checkpoint NAME --task rte` (any encoder of the hub on a real task)"
    if board.table["arm"].nunique() == 1:
        return f"`glue-bench table NAME {folder}` (beside a paper's table; `glue-bench table` lists them)"
    fewest = min(count for counts in board.planned.values() for count in counts.values())
    if board.steps and board.cells["pretraining_seed"].nunique() == 1:
        return "`seeds: [1, 2, 3]` under `pretraining`, and the same `glue-bench run`"
    if fewest < SEEDS:
        return "`seeds: [1, 2, 3]` in the experiment, and the same `glue-bench run`"
    primary = contrasts[contrasts["column"] == findings.columns[0]]
    if not (primary["verdict"] != "").any():
        return f"`glue-bench power {folder} --difference 1` (how many seeds a point takes)"
    if {*TRAINABLE} <= {*board.cells["task"]} and not marked_tasks(board):
        best = board.table["arm"].iloc[0]
        return f"`glue-bench submit {folder} --arm {best} -o {best}.zip` (for GLUE's test server)"
    return f"`glue-bench statistics {folder}` (the intervals behind the marks)"
