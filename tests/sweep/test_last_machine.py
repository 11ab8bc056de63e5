"""A Ray cluster whose last machine with room is lost in mid-sweep: the sweep waits for another, and loses nothing."""

import io
import os

import pytest
from rich.console import Console

from glue_bench.api import run

pytest.importorskip("ray")
from glue_bench.sweep import cluster as cluster_module

pytestmark = [pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL"), pytest.mark.slow]

WAITING = "no machine of the cluster has room for a job any more; waiting for one"
TABLES = ("leaderboard.md", "leaderboard.csv", "scores.csv")


@pytest.fixture
def cluster():
    """A head without room for a cell, and one machine that has it."""
    import ray
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "object_store_memory": 100 * 2**20, "include_dashboard": False}
    os.environ |= cluster_module.RAY_SETTINGS  # as in test_ray.py
    made = Cluster(initialize_head=True, head_node_args=head)
    cluster_module._connect(0, made.address)  # to the head: this process would share another machine's fate
    made.other = made.add_node(num_cpus=1, object_store_memory=100 * 2**20)
    yield made
    ray.shutdown()
    made.shutdown()


class Watcher(io.StringIO):
    """A console on which the machine is taken away after two cells, and another one given once it is missed."""

    def __init__(self, cluster) -> None:
        super().__init__()
        self.cluster = cluster
        self.steps = [
            ("[2/", lambda: cluster.remove_node(cluster.other, allow_graceful=False)),
            (WAITING, lambda: cluster.add_node(num_cpus=1, object_store_memory=100 * 2**20)),
        ]

    def write(self, text: str) -> int:
        written = super().write(text)
        if self.steps and self.steps[0][0] in text:
            self.steps.pop(0)[1]()
        return written


def test_the_last_machine_is_missed_once_and_another_goes_on(cluster, tiny, tmp_path):
    values = tiny(arms=["add"], tasks=["cola"], seeds=[*range(1, 25)])
    whole = run(values, results=tmp_path / "inline", console=Console(file=io.StringIO()))
    watcher = Watcher(cluster)
    summary = run(values, results=tmp_path / "ray", console=Console(file=watcher, width=200), address=cluster.address)
    assert (summary.finished, summary.failed) == (24, {})
    assert watcher.getvalue().count(WAITING) == 1
    assert not watcher.steps
    for name in TABLES:
        assert (summary.folder / name).read_bytes() == (whole.folder / name).read_bytes()
