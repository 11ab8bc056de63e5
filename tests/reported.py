"""Experiments whose arms can be told apart, for reports."""

from pathlib import Path

LONG = "concat-with-a-projection-and-a-rather-long-name"
ARMS = {"add": 0.8, "none": 0.5, LONG: 0.805}


def fill(bench, arms=None, tasks=("rte", "sst2"), source="demo") -> Path:
    """Three runs of each arm (name -> accuracy) on each task, with predictions; the experiment's folder.

    Beside the demo data, which `source` names, no published table is shown, so that reports are made sooner.
    """
    for arm, accuracy in (arms or ARMS).items():
        for task in tasks:
            bench.finish_predicted(task, arm, accuracy, source=source)
    return bench.plan(config={"name": "toy", "arms": [{"name": arm} for arm in arms or ARMS]}, data_source=source)
