"""How numbers are written in tables: decimals, large counts, p-values, and what stands for a missing one."""

import math

import pandas as pd

LEAST_P = 0.0001
"""Smaller p-values are shown as smaller than this."""
MISSING = "–"  # noqa: RUF001 (an en dash is what a table shows for nothing)


def number(value: float, decimals: int = 2) -> str:
    """Fixed decimals, no negative zero; empty for a missing value."""
    return "" if math.isnan(value) else f"{value:z.{decimals}f}"


def short(count: float, digits: int = 3) -> str:
    """A large number to so many digits: 4.39M, 131B, 16.5T; B is a billion (1e9), T a trillion (1e12)."""
    for unit, size in (("E", 1e18), ("P", 1e15), ("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        rounded = float(f"{count / size:.{digits}g}")
        if abs(rounded) >= 1:  # the rounded number has the unit: 999,500 is 1M
            return f"{rounded:g}{unit}"  # 380k, where .2g alone gives 3.8e+02k
    return f"{count:g}"


def p_text(p: float) -> str:
    """Four decimals, and never 0."""
    if pd.isna(p):
        return MISSING
    return f"< {LEAST_P:.4f}" if p < LEAST_P else f"{p:.4f}"
