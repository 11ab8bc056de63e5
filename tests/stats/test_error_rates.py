"""Simulated experiments whose truth is known: how often a verdict is wrong, an interval right, a difference found.

The long form is `python benchmarks/verdicts.py`, which prints the tables of benchmarks/README.md; `-m slow` asserts it.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from verdicts import NULL, POWER, Setting, figures

FEW = 60


@pytest.mark.parametrize(
    "setting",
    [Setting(seeds=2), Setting(seeds=3, unstable="b"), Setting(seeds=2, pretrainings=3, block=0.05)],
    ids=lambda setting: setting.name,
)
def test_equal_arms_are_seldom_told_apart(setting):
    # 60 experiments at 5%: more than 8 wrong ones have a probability below 1%.
    assert figures(setting, FEW)["family errors"] <= 100 * 8 / FEW


def test_a_difference_of_ten_points_is_found():
    # Of 60 at 80%: fewer than 38 have a probability below 0.5%.
    assert figures(POWER[1], FEW)["power"] >= 100 * 38 / FEW


@pytest.mark.slow
@pytest.mark.parametrize("setting", [*NULL, *POWER], ids=lambda setting: setting.name)
def test_in_full(setting):
    found = figures(setting, 2000)
    assert found["coverage"] >= 94.0
    assert found["power"] >= 70.0 if setting in POWER else found["family errors"] <= 6.5
