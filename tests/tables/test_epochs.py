"""Which epoch is reported, which rate wins, and what the tables say about it."""

import numpy as np
import pytest

from glue_bench.config import Protocol
from glue_bench.errors import UserError
from glue_bench.tables.board import make_board, open_board
from glue_bench.tables.results import read_results

LAST, BEST = Protocol(), Protocol(epoch="best")
CLEAN, CLEAN_BEST = Protocol(choose_on="held_out"), Protocol(choose_on="held_out", epoch="best")


def rte(bench, *epochs):
    """A run whose epochs scored (validation, held-out)."""
    history = [
        {"epoch": i, "train_loss": 1.0, "scores": {"validation": {"accuracy": v}, "held_out": {"accuracy": h}}}
        for i, (v, h) in enumerate(epochs, start=1)
    ]
    bench.record(bench.expect(), epochs[-1][0], history=history)
    return read_results(bench.plan())


def shown_and_chosen(results, protocol):
    """The score that is shown, and the value by which the run's rate competes."""
    board = make_board(results, protocol)
    return board.scores["value"].item(), board.choosing["value"].item()


@pytest.mark.parametrize(
    ("protocol", "score", "value"),
    [(LAST, 60, 60), (BEST, 70, 70), (CLEAN, 60, 55), (CLEAN_BEST, 50, 65)],
    ids=["last", "best", "clean", "clean best"],
)
def test_the_epoch_and_the_value_that_chooses(bench, protocol, score, value):
    results = rte(bench, (0.5, 0.65), (0.7, 0.5), (0.6, 0.55))
    assert shown_and_chosen(results, protocol) == pytest.approx((score, value))


def test_the_first_of_equal_epochs_is_the_best_and_an_undefined_one_never(bench):
    results = rte(bench, (None, 0.5), (0.7, 0.6), (0.7, 0.6), (None, 0.5))
    assert make_board(results, BEST).scores["epoch"].tolist() == [2]
    assert np.isnan(shown_and_chosen(results, LAST)).all()
    bench.finish()  # a run without a held-out slice has no value to compete by
    assert make_board(read_results(bench.plan()), CLEAN).choosing["value"].isna().any()


def outlier(bench):
    """Two rates: the lower has the better mean, the higher the better median."""
    for seed, (low, high) in enumerate([(0.6, 0.65), (0.6, 0.65), (0.6, 0.3)], start=1):
        bench.finish("rte", seed, low, rate=2e-5)
        bench.finish("rte", seed, high, rate=3e-5)


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [({}, 60), ({"rate": "best-median"}, 160 / 3), ({"rate": "best-median", "seeds": "median"}, 65)],
    ids=["means", "median chooses", "medians"],
)
def test_the_declared_protocol_decides_the_score(bench, protocol, expected):
    outlier(bench)
    bench.plan(config={"protocol": protocol})
    assert open_board(bench.path).table.iloc[0]["rte"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("reference=ad", "unknown arm 'ad' in protocol.reference"),
        ("choose_on=held_out", "protocol.choose_on: held_out needs finetuning.held_out_share"),
        ("rate=fixed", "protocol.rate: fixed needs one learning rate a task; rte, mrpc has several"),
        ("primary=validation_loss", "protocol.primary: validation_loss needs `pretraining`"),
    ],
)
def test_a_change_that_is_wrong_or_that_the_experiment_cannot_give_is_refused(bench, change, message):
    outlier(bench)
    bench.finish("mrpc")
    with pytest.raises(UserError, match=message):
        open_board(bench.plan(), [change])
