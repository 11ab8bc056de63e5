"""What fine-tuned cells score without order: of which cells."""

from stored import Bench

from glue_bench.analysis.finetuned_order import finetuned_order, mean_by_task


def test_the_means_are_of_the_cells_that_the_leaderboard_takes(tmp_path):
    """A worse rate, an earlier checkpoint and a record outside the plan do not count; experiments stay apart."""
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder, value in zip(folders, (0.8, 0.6), strict=True):
        bench = Bench(folder)
        for rate, steps, score in ((2e-5, 200, value), (1e-5, 200, 0.3), (3e-5, 100, 0.9), (9e-5, 200, 0.99)):
            cell = bench.expect("rte", rate=rate)
            cell["steps"] = steps
            bench.record(cell, score, order={"validation": {"accuracy": score / 2}})
        bench.cells.pop()
        bench.plan()
    frame = finetuned_order(map(str, folders))
    assert frame["score"].tolist() == [0.8, 0.6]
    assert frame["shuffled"].tolist() == [0.4, 0.3]
    assert list(mean_by_task(frame)) == [f"{folder}/add" for folder in folders]
    assert finetuned_order([str(folders[0])])["checkpoint"].tolist() == ["add"]
