"""Records in, tables out: pure functions on DataFrames. No torch; nothing here runs or changes a cell.

The room is also the library's function: `glue_bench.leaderboard(path)` is `leaderboard.table.leaderboard(path)`.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


class _CallableRoom(ModuleType):
    """Importing a subpackage binds its name in the package, so a function of that name must be the subpackage."""

    def __call__(self, path: "str | Path | Sequence[str | Path]") -> "pd.DataFrame":
        from glue_bench.leaderboard.table import leaderboard

        return leaderboard(path)


sys.modules[__name__].__class__ = _CallableRoom
