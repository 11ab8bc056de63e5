"""What pretrained arms have learnt, as a table: one row per pretraining and measure."""

import pandas as pd

from glue_bench.records.store import Store
from glue_bench.results.budgets import newest

INTRINSIC = ("arm", "pretraining_seed", "step", "measure", "value", "standard_error", "n")


def intrinsic_frame(store: Store) -> pd.DataFrame:
    """The measures of the plan's pretrainings, in its order: INTRINSIC.

    `value` is a loss or its rise in nats, or of the swap test a share from 0 to 1; `standard_error` is over the `n`
    sequences, NaN where there are fewer than two.

    Raises:
        UserError: a file of measures cannot be read.
    """
    found = {record.pretraining_id: record for record in store.intrinsic.read()}
    planned = newest(store)
    records = [found[each.pretraining_id] for each in planned if each.pretraining_id in found]
    rows = [
        (record.arm, record.pretraining_seed, record.step, one.name, one.value, one.standard_error, one.n)
        for record in records
        for one in record.measures
    ]
    return pd.DataFrame(rows, columns=list(INTRINSIC)).astype({"value": float, "standard_error": float})
