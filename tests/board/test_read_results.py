"""Frames of a plan: the facts of data, of the runs behind a cell's weights, and of losses."""

import pytest

from glue_bench.board.results import BANNER, read_results


def test_a_task_with_as_many_rows_as_the_official_one_but_others_is_altered(bench):
    """RTE has other rows, and CoLA a part of its rows: both are partial, and RTE is altered."""
    bench.finish("rte")
    bench.finish("cola")
    bench.finish("sst2")
    bench.tasks["rte"] |= {"partial": True, "differences": {"validation": "other texts"}}
    bench.tasks["cola"] |= {"partial": True, "rows": {"validation": 7}}
    results = read_results(bench.plan())
    assert results.partial_tasks == ("cola", "rte")
    assert results.altered_tasks == ("rte",)
    assert results.tasks["differences"]["rte"] == {"validation": "other texts"}
    assert results.tasks["rows"]["cola"] == {"validation": 7}


@pytest.mark.parametrize(
    ("source", "banner"),
    [
        ("tsv", ""),
        ("demo", BANNER),
        (
            "tsv, limited to 9",
            "Made from a part of each split (tsv, limited to 9): not a benchmark.",
        ),
    ],
)
def test_the_banner_stands_above_numbers_that_are_no_benchmark(bench, source, banner):
    bench.finish("rte", source=source)
    assert read_results(bench.plan()).banner == banner


def test_the_machines_of_a_cell_cover_all_runs_behind_its_weights(bench):
    """The pretraining ran on a GPU, and the fine-tuning on a CPU."""
    gpu = {"device": "NVIDIA H100", "processor": "Intel Xeon", "precision": "bf16"}
    cpu = {"device": "cpu", "processor": "AMD EPYC", "precision": "float32"}
    bench.pretrain("add", environment=gpu)
    (pretraining_id,) = bench.pretrained
    cell = bench.expect("rte")
    cell["pretraining"] = pretraining_id
    bench.record(cell, environment=cpu)
    row = read_results(bench.plan()).cells.iloc[0]
    assert row["processor"] == "NVIDIA H100, then AMD EPYC"
    assert row["precision"] == "bf16, then float32"


def test_the_precision_of_a_record_goes_before_that_of_its_environment(bench):
    bench.record(bench.expect("rte"), precision="float16", environment={"precision": "bf16"})
    (precision,) = read_results(bench.plan()).cells["precision"]
    assert precision == "float16"


def test_the_machines_of_a_cell_are_unknown_if_one_run_has_not_recorded_its_own(bench):
    """The pretraining has recorded no machine."""
    bench.pretrain("add")
    (pretraining_id,) = bench.pretrained
    cell = bench.expect("rte")
    cell["pretraining"] = pretraining_id
    bench.record(cell, environment={"device": "cpu", "processor": "AMD EPYC"})
    (processor,) = read_results(bench.plan()).cells["processor"]
    assert processor == ""


def test_losses_come_from_finished_pretrainings_without_rate_searches(bench):
    points = [
        {"step": 1, "tokens": 10, "train_loss": 3.0, "validation_loss": 4.0, "seconds": 1.0},
        {"step": 2, "tokens": 20, "train_loss": 2.0, "validation_loss": 3.5, "seconds": 2.0},
    ]
    bench.finish("rte")
    bench.pretrain("add", seed=1, losses=points)
    bench.pretrain("add", seed=2, losses=points, is_search=True)
    bench.pretrain("add", seed=3, finished=False)
    losses = read_results(bench.plan()).losses
    assert losses["pretraining_seed"].tolist() == [1, 1]
    assert losses["step"].tolist() == [1, 2]
    assert losses["validation_loss"].tolist() == [4.0, 3.5]


def test_pretrainings_of_rate_searches_stand_last(bench):
    bench.finish("rte")
    bench.pretrain("add", seed=2, is_search=True, rate=1e-3)
    bench.pretrain("add", seed=1, rate=2e-3)
    frame = read_results(bench.plan()).pretrainings
    assert frame["seed"].tolist() == [1, 2]
    assert frame["learning_rate"].tolist() == [2e-3, 1e-3]
