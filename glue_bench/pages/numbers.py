"""How numbers are written in tables: decimals, large counts, p-values, and missing ones."""

import math

import pandas as pd

LEAST_P = 0.0001
"""Smaller p-values are shown as smaller than this."""
MISSING = "–"  # noqa: RUF001 (a table shows an en dash for a missing value)
NUMBER_SUFFIXES = (("E", 1e18), ("P", 1e15), ("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3))
"""The letters behind large numbers, the largest first; B is a billion, T a trillion."""


def format_number(value: float, decimals: int = 2) -> str:
    """Write a number with fixed decimals and no negative zero; a missing one is empty."""
    if math.isnan(value):
        return ""
    return f"{value:z.{decimals}f}"


def format_difference(value: float, decimals: int = 2) -> str:
    """Write a difference with its sign and no negative zero; a missing one is empty."""
    if math.isnan(value):
        return ""
    return f"{value:+z.{decimals}f}"


def abbreviate_number(count: float, digits: int = 3) -> str:
    """Write a large number with a few significant digits and a letter: 4.39M, 131B, 16.5T."""
    for unit, size in NUMBER_SUFFIXES:
        rounded = float(f"{count / size:.{digits}g}")
        if abs(rounded) >= 1:  # the rounded number has the unit: 999,500 is 1M
            return f"{rounded:g}{unit}"  # 380k, where .2g alone gives 3.8e+02k
    return f"{count:g}"


def format_p(p: float) -> str:
    """Write a p-value with four decimals, and never as 0."""
    if pd.isna(p):
        return MISSING
    if p < LEAST_P:
        return f"< {LEAST_P:.4f}"
    return f"{p:.4f}"
