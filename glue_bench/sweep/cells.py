"""The cells of a plan and their states as a frame."""

import pandas as pd

from glue_bench.board.columns import CELL_COLUMNS
from glue_bench.records.store import Store
from glue_bench.records.values import Plan
from glue_bench.sweep.progress import job_states


def cells_frame(store: Store, plan: Plan) -> pd.DataFrame:
    """Give one row per cell of a plan, in order: CELL_COLUMNS, and its `state` in the folder."""
    states = job_states(store, plan, store.finished(plan).done).state
    rows = []
    for cell in plan.cells:
        rows.append({"cell_id": cell.id, "origin": cell.origin, **cell.key})
    frame = pd.DataFrame(rows, columns=list(CELL_COLUMNS)).astype(
        {"pretraining_seed": "Int64", "steps": "Int64"}
    )
    return frame.assign(state=[states[cell.id] for cell in plan.cells])
