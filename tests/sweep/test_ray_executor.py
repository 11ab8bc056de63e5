"""Workers that are waited for, without Ray: a made-up cluster on which they start, hang, or find no place."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from glue_bench.config.sections import Resources
from glue_bench.errors import UserError
from glue_bench.sweep.executors import ClusterLostError
from glue_bench.sweep.patience import Patience
from glue_bench.sweep.schedule import Schedule

pytest.importorskip("ray")
from glue_bench.sweep import ray_executor as module

GOOD, STUCK, HANGS, PLACELESS = "good", "stuck in its job", "hangs before it is ready", "has no process yet"


@dataclass(frozen=True)
class Job:
    id: str
    kind: str = "cell"
    after: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return self.id


@dataclass(eq=False)
class Stream:
    """What a worker says if it comes so far."""

    says: list[str]
    worker: "Worker"
    permitted: tuple[str, ...]

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        return self.says.pop(0)


@dataclass(eq=False)
class Worker:
    """One that becomes ready, or does not."""

    _actor_id: int
    how: str

    @property
    def ready(self) -> SimpleNamespace:
        return SimpleNamespace(remote=lambda: Stream([f"here:{self._actor_id}"], self, (GOOD, STUCK)))

    @property
    def run(self) -> SimpleNamespace:
        return SimpleNamespace(remote=lambda job: Stream([f"result of {job.id}"], self, (GOOD,)))


@dataclass
class World:
    """A machine with room for one worker, on which each next one fares as `fates` says, and a clock that Ray moves."""

    fates: list[str]
    now: float = 0.0
    said: list[str] = field(default_factory=list)
    killed: list[int] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)

    def hire(self, *_) -> Worker:
        self.workers.append(Worker(len(self.workers), self.fates.pop(0) if self.fates else GOOD))
        return self.workers[-1]

    def wait(self, streams, num_returns, timeout):
        assert num_returns == 1
        heard = [stream for stream in streams if stream.worker.how in stream.permitted][:1]
        self.now += 0.1 if heard else timeout
        return heard, []

    def machines(self) -> list[dict[str, float]]:
        return [{"CPU": 1.0}]

    def processes(self) -> dict[int, str]:
        return {one._actor_id: f"there:{one._actor_id}" for one in self.workers if one.how != PLACELESS}

    def sweep(self, stop=None, give_up_after=20.0) -> list[str]:
        """What comes of two jobs."""
        executor = module.RayExecutor(SimpleNamespace(resources=SimpleNamespace(cpus=1, gpus=0)), None)
        executor._cluster = self
        schedule = Schedule(
            [Job("one"), Job("two")],
            claims=SimpleNamespace(take=lambda _: True, release=lambda _: None, denied=set()),
            stop=stop or SimpleNamespace(asked=False, check=lambda: None),
            ready=lambda job: job,
            say=self.said.append,
            patience=Patience({}, give_up_after, self.said.append, lambda: self.now),
        )
        results = []
        for job, said in executor.run(schedule, lambda *_: None):
            results.append(said)
            schedule.end(job)
        return results


@pytest.fixture
def world(monkeypatch):
    def make(*fates: str) -> World:
        made = World([*fates])
        ray = SimpleNamespace(wait=made.wait, kill=lambda worker: made.killed.append(worker._actor_id), get=str)
        monkeypatch.setattr(module, "ray", ray)
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: made.now, sleep=pytest.fail))
        monkeypatch.setattr(module, "_remote", lambda _: SimpleNamespace(remote=made.hire))
        return made

    return make


RESULTS = ["result of one", "result of two"]


def test_a_good_worker_runs_all(world):
    made = world()
    assert made.sweep() == RESULTS
    assert (made.said, made.killed, len(made.workers)) == ([], [], 1)


def test_a_worker_that_hangs_before_it_is_ready_is_given_up(world):
    made = world(HANGS)
    assert made.sweep() == RESULTS
    assert made.killed == [0]
    assert made.said == [
        "start of a worker on there:0: nothing heard for 3 min where 30 s were expected; it is given up after 10 min",
        "start of a worker on there:0: nothing heard for 10 min; it is given up there, and run again",
    ]


def test_where_each_one_hangs_the_sweep_ends(world):
    made = world(*[HANGS] * 100)
    with pytest.raises(UserError, match=r"^workers die before they are ready: nothing was heard of it on there:19$"):
        made.sweep()
    assert made.killed == [*range(module.LOST_AT_START)]


def test_with_patience_without_end_it_is_waited_for(world):
    made = world(HANGS)
    stop = SimpleNamespace(asked=False, check=lambda: made.now > 1e5 and pytest.fail("a day later"))
    with pytest.raises(pytest.fail.Exception, match="a day later"):
        made.sweep(stop, give_up_after=None)
    assert (made.said, made.killed) == ([], [])


def test_one_that_has_no_place_is_said_once_and_waited_for(world):
    made = world(PLACELESS)

    def check() -> None:
        if made.now > 5000:
            made.workers[0].how = GOOD

    assert made.sweep(SimpleNamespace(asked=False, check=check)) == RESULTS
    assert made.killed == []
    assert made.said == [
        "no machine of the cluster has started a worker for 60 s, perhaps because others use it; waiting for one"
    ]


def test_a_signal_that_was_not_heard_ends_the_sweep(world):
    made = world(STUCK)

    def check() -> None:
        if made.now > 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made.sweep(SimpleNamespace(asked=False, check=check))


class SlowHead:
    """The head of a cluster that answers at the third time, or never."""

    def __init__(self, *answers) -> None:
        self.answers = [*answers]

    def machines(self):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize(
    ("last", "said"),
    [
        ([{"CPU": 4.0}], None),
        ([{"CPU": 0.0}], "in all there are 0 CPUs"),
        (ClusterLostError("no answer"), "^no answer$"),
    ],
)
def test_a_head_that_is_only_slow_is_asked_again(monkeypatch, last, said):
    monkeypatch.setattr(module, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(module.ray, "is_initialized", lambda: True)
    monkeypatch.setattr(module, "Cluster", lambda: SlowHead(None, None, last))
    executor = module.RayExecutor(SimpleNamespace(resources=Resources()), None)
    with pytest.raises(UserError, match=said) if said else nullcontext(), executor:
        pass
