"""What a dry run says of the time that the run will take."""

import pytest
import torch

from glue_bench.api import run
from glue_bench.sweep import estimate
from glue_bench.training.runtime import all_threads

pytestmark = pytest.mark.usefixtures("small_demo")
PRETRAINING = {"corpus": "demo", "steps": 10, "batch_tokens": 256, "length": 32, "learning_rate": 1e-3}


@pytest.fixture
def asked(monkeypatch):
    """The jobs whose steps were measured; each token takes a millisecond."""
    cells = []

    def measured(job, _inputs, _tokens):
        cells.append(job)
        return 1e-3

    monkeypatch.setattr(estimate, "_seconds_per_token", measured)
    return cells


def seconds(experiment, folder, **options):
    return run(experiment, results=folder, dry_run=True, **options).seconds


def test_the_time_follows_tokens_and_seeds_and_is_shared_by_workers(tiny, tmp_path, asked):
    one = seconds(tiny(tasks=["cola"]), tmp_path)
    assert [planned.arm for planned in asked] == ["add", "none"]
    assert one > 0
    assert seconds(tiny(tasks=["cola"], seeds=[1, 2, 3]), tmp_path) == pytest.approx(3 * one)
    assert seconds(tiny(tasks=["cola"], finetuning={"epochs": 2}), tmp_path) == pytest.approx(2 * one)
    assert seconds(tiny(tasks=["cola"], finetuning={"max_steps": 1}), tmp_path) == pytest.approx(one / 3)
    assert seconds(tiny(tasks=["cola"]), tmp_path, workers=2) == pytest.approx(one / 2)


@pytest.mark.parametrize(("workers", "threads"), [(None, 3), (2, 1)])
def test_what_is_measured_has_the_threads_of_a_worker(tiny, tmp_path, monkeypatch, workers, threads):
    seen = set()

    def measured(*_):
        seen.add(all_threads())
        return 1e-3

    monkeypatch.setattr(estimate, "_seconds_per_token", measured)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        seconds(tiny(tasks=["cola"]), tmp_path, workers=workers)
        assert (seen, torch.get_num_threads()) == ({threads}, 3)
    finally:
        torch.set_num_threads(before)


def test_pretraining_counts_by_its_tokens(tiny, tmp_path, asked):
    plain = seconds(tiny(tasks=["cola"]), tmp_path)
    asked.clear()
    more = seconds(tiny(tasks=["cola"], pretraining=PRETRAINING), tmp_path)
    assert more - plain == pytest.approx(2 * 10 * 256 * 1e-3)
    assert [(job.kind, job.arm) for job in asked] == [
        ("pretraining", "add"),
        ("cell", "add"),
        ("pretraining", "none"),
        ("cell", "none"),
    ]


def test_after_a_while_arms_that_are_left_are_as_fast_as_the_others(tiny, tmp_path, asked, monkeypatch):
    whole = seconds(tiny(tasks=["cola"]), tmp_path)
    asked.clear()
    monkeypatch.setattr(estimate, "MEASURING", 0.0)
    assert seconds(tiny(tasks=["cola"]), tmp_path) is None
    assert whole is not None
    assert not asked


def test_a_few_steps_are_really_taken_and_one_that_fails_is_no_fault(tiny, tmp_path, monkeypatch):
    assert seconds(tiny(arms=["add"], tasks=["cola"]), tmp_path) > 0
    monkeypatch.setattr(estimate, "build_classifier", lambda *_: 1 / 0)
    assert seconds(tiny(arms=["add"], tasks=["cola"]), tmp_path) is None


def test_pretraining_takes_steps_of_its_own(tiny, tmp_path, monkeypatch):
    """Of half an hour it once said five minutes: the projection to the vocabulary is none of the encoder's cost."""
    taken = []
    monkeypatch.setattr(estimate, "_fine_tuned", lambda _job, _inputs, steps, _tokens: (steps * 1e-6, steps))
    original = estimate.pretrain

    def counted(start, task, folder):
        taken.append(task.settings.steps)
        return original(start, task, folder)

    monkeypatch.setattr(estimate, "pretrain", counted)
    searched = PRETRAINING | {"learning_rates": [1e-3, 2e-3], "rate_search": {"steps": 5, "seed": 7}}
    del searched["learning_rate"]
    assert seconds(tiny(arms=["add"], tasks=["cola"], pretraining=searched), tmp_path) > 0
    assert taken == [1, 1 + estimate.STEPS]
    assert not any(tmp_path.iterdir())


def test_a_step_that_is_measured_is_small_whatever_batch_is_asked_for(tiny, tmp_path, monkeypatch):
    pretrain, training, sizes = estimate.pretrain, estimate.HostTraining, []

    def pretrained(start, task, folder):
        sizes.append(task.settings.batch_tokens)
        return pretrain(start, task, folder)

    def fine_tuned(model, cell, *more):
        sizes.append(cell.hyperparameters.batch_size * cell.hyperparameters.max_length)
        return training(model, cell, *more)

    monkeypatch.setattr(estimate, "MOST_TOKENS", 64)
    monkeypatch.setattr(estimate, "pretrain", pretrained)
    monkeypatch.setattr(estimate, "HostTraining", fine_tuned)
    finetuning = {"batch_size": 2**16, "max_length": 32}
    pretraining = PRETRAINING | {"batch_tokens": 2**28}
    values = tiny(arms=["add"], tasks=["cola"], pretraining=pretraining, finetuning=finetuning)
    assert seconds(values, tmp_path) > 0
    assert sizes == [64] * 4
    monkeypatch.setattr(estimate, "MOST_TOKENS", 16)
    assert seconds(values, tmp_path) is None  # not even one row
