import json

import pandas as pd
import pytest

import measure

ROUNDS = [
    {"peer": {"speed": 10, "peak": None}, measure.OURS: {"speed": 30, "peak": 4}},
    {"peer": {"speed": 20, "peak": 2}, measure.OURS: {"speed": 40, "peak": 4}},
]


def test_runs_take_turns():
    order = []
    runs = {name: lambda name=name: order.append(name) or {"n": len(order)} for name in ("a", "b")}
    assert measure.in_turns(runs, 2) == [{"a": {"n": 1}, "b": {"n": 2}}, {"a": {"n": 3}, "b": {"n": 4}}]
    assert order == ["a", "b", "a", "b"]


def test_ratios_are_of_one_round_each():
    speed = measure.column(ROUNDS, "speed")
    assert measure.over_peers(speed)["peer"].tolist() == [3, 2]
    assert measure.over_peers(speed, inverse=True)["peer"].tolist() == pytest.approx([1 / 3, 1 / 2])
    assert measure.over_peers(speed)[measure.OURS].tolist() == [1, 1]


def test_a_figure_that_is_not_known_is_missing():
    assert measure.column(ROUNDS, "peak")["peer"].isna().tolist() == [True, False]


def test_median_and_quartiles():
    assert measure.with_quartiles(pd.DataFrame({"a": [1, 2, 3, 4, 1000]}), 1) == {"a": "3.0 (2.0 to 4.0)"}


def test_a_column_without_a_value_for_a_row_leaves_it_empty():
    lines = measure.table({"x": {"a": "1", "b": "2"}, "y": {"b": "3"}}).splitlines()
    assert [[cell.strip() for cell in line.split("|")[1:-1]] for line in (lines[0], *lines[2:])] == [
        ["contender", "x", "y"],
        ["a", "1", ""],
        ["b", "2", "3"],
    ]


def test_every_measurement_is_kept(tmp_path, capsys):
    measure.report(["one", "two"], ROUNDS, tmp_path / "all.json")
    assert capsys.readouterr().out == "one\n\ntwo\n"
    assert json.loads((tmp_path / "all.json").read_text())["rounds"] == ROUNDS
