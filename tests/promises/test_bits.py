"""Same bits: in float32 on one kind of processor and one number of threads, every variant gives
what it always gave.

`bits.json` holds the numbers of a small pretraining and fine-tuning of each variant: to the last
bit for the kinds of machine that it names, and for all others within 1e-6. `PYTHONPATH=tests python
tests/promises/test_bits.py` adds the kind of this one, and the numbers of new variants.

And looking changes nothing: whatever only watches leaves every id, every digest and every bit of a
record as it was.
"""

import hashlib
import io
import json
import logging
import pickle
import random
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from helpers import tiny_runs
from helpers.folder import call_verb, stamps
from rich.console import Console

import glue_bench
from glue_bench.config import load_experiment
from glue_bench.records.store import Store
from glue_bench.sweep.slurm import JobBatch
from glue_bench.sweep.worker import make_worker

GOLDEN = Path(__file__).with_name("bits.json")


def train_all(place: Path) -> Path:
    """Every variant, pretrained and fine-tuned for a few steps on text of our own."""
    values = tiny_runs.experiment(
        data=str(tiny_runs.glue()), limit=None, arms=list(glue_bench.VARIANTS)
    )
    return tiny_runs.run(values, place / "runs")


def digest(numbers: list[float]) -> str:
    return hashlib.sha256(np.array(numbers).tobytes()).hexdigest()[:16]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The kind of this machine, and the numbers of each variant on it."""
    folder = train_all(tmp_path_factory.mktemp("bits"))
    return tiny_runs.machine(folder), tiny_runs.numbers(folder)


@pytest.mark.parametrize("variant", sorted(glue_bench.VARIANTS))
def test_a_variant_gives_the_numbers_that_it_gave(trained, variant):
    machine, numbers = trained
    golden = json.loads(GOLDEN.read_bytes())
    assert variant in golden["numbers"], "python tests/promises/test_bits.py writes its numbers"
    np.testing.assert_allclose(numbers[variant], golden["numbers"][variant], rtol=1e-6, atol=1e-6)
    known = golden["digests"].get(machine, {}).get(variant)
    if known is not None:
        assert digest(numbers[variant]) == known


def same(folder: Path, as_in: dict[str, Any], *without: str) -> bool:
    """Return whether a folder has all bits that another one has, but what is called so."""
    assert tiny_runs.differing_files(as_in, tiny_runs.bits(folder, *without)) == []
    return True


def test_cells_in_another_order_in_pieces_and_after_other_work_in_the_process_are_the_same(
    tmp_path,
):
    changes = {"arms": ["add", "untied"], "tasks": ["stsb", "rte"], "seeds": [1, 2]}
    bits = tiny_runs.bits(tiny_runs.run(tiny_runs.experiment(**changes), tmp_path))
    tiny_runs.run(
        tiny_runs.experiment(seeds=[random.randrange(9)], tasks=["cola"]), tmp_path / "other"
    )
    for only in (["task=rte", "seed=2"], []):
        random.random(), np.random.random(3), torch.rand(3)  # noqa: NPY002
        folder = tiny_runs.run(tiny_runs.experiment(**changes), tmp_path / "pieces", only=only)
    assert same(folder, bits)
    values = tiny_runs.experiment(**{key: given[::-1] for key, given in changes.items()})
    assert same(tiny_runs.run(values, tmp_path / "reversed"), bits)


def test_a_kept_model_is_the_same_whether_its_tokens_were_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GLUE_BENCH_CACHE", str(tmp_path / "cache"))
    values = tiny_runs.experiment(
        pretraining=None, checkpoint="scratch", finetuning={"keep": "all"}
    )
    first, second = (tiny_runs.run(values, tmp_path / name) for name in ("one", "other"))
    assert same(second, tiny_runs.bits(first))


# Who looks


@pytest.fixture(scope="module")
def usual(tmp_path_factory) -> Path:
    """The folder of a run that nobody watches."""
    return tiny_runs.run(tiny_runs.experiment(), tmp_path_factory.mktemp("usual"))


ASKED = {
    "pretraining": {"validations": 4, "checkpoints": [2]},
    "finetuning": {"predict": ["validation", "test"], "keep": "all"},
    "protocol": {"epoch": "best", "seeds": "median"},
    "resources": {"give_up_after": None},
}
SEEN = ("losses", "validations", "checkpoints", "weights", "tests", "model")
"""What may be asked for beside results, and where these hold what was seen."""


def test_what_is_asked_beside_changes_no_id_and_no_bit(usual, tmp_path):
    folder = tiny_runs.run(tiny_runs.experiment(**ASKED), tmp_path)
    assert tiny_runs.record_stamps(folder).keys() == tiny_runs.record_stamps(usual).keys()
    assert same(folder, tiny_runs.bits(usual, *SEEN), *SEEN)


def test_a_reader_a_live_table_logs_and_a_tracker_beside_a_run_change_nothing(
    usual, tmp_path, monkeypatch, caplog
):
    """The reader reads the results whenever something is written on the screen."""

    class Looking(io.StringIO):
        looks = 0

        def write(self, text: str) -> int:
            if (tmp_path / "runs" / "tiny" / "plan.json").exists():
                for look in (glue_bench.status, glue_bench.leaderboard, glue_bench.predictions):
                    look(tmp_path / "runs" / "tiny")
                self.looks += 1
            return super().write(text)

    wandb = MagicMock()
    wandb.__spec__ = wandb  # it is installed
    wandb.init.side_effect = lambda **_: (
        (random.random(), np.random.random(), torch.rand(1)) and wandb.started  # noqa: NPY002
    )
    wandb.started.finish.side_effect = lambda: torch.manual_seed(5)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    caplog.set_level(logging.DEBUG)
    console = Console(file=(screen := Looking()), force_terminal=True, width=120)
    folder = tiny_runs.run(
        tiny_runs.experiment(), tmp_path / "runs", track=["wandb"], console=console
    )
    assert wandb.started.log.call_count > 2
    assert screen.looks > 1
    assert same(folder, tiny_runs.bits(usual))


@pytest.mark.parametrize("engine", ["cloudpickle", pytest.param("ray", marks=pytest.mark.slow)])
def test_engines_are_alike(usual, tmp_path, engine):
    """Two workers of Ray; a batch as Slurm has it, which went to its process as submitit sends
    it.
    """
    module = pytest.importorskip(engine)
    values = tiny_runs.experiment()
    if engine == "cloudpickle":
        store = Store(tmp_path / "tiny")
        experiment = load_experiment(values)
        store.prepare()
        batch = JobBatch(
            partial(make_worker, experiment, store.folder, "cpu", "float32"), store.folder
        )
        jobs = [(job, "") for job in tiny_runs.plan(values).jobs]
        sent, given = pickle.loads(module.dumps((batch, jobs)))
        sent(given)
        assert store.recorded() == {job.id for job, _ in jobs}
    folder = tiny_runs.run(values, tmp_path, workers=2 if engine == "ray" else None)
    assert same(folder, tiny_runs.bits(usual))


def test_neither_a_verb_that_reads_nor_a_dry_run_nor_a_plan_changes_a_file(usual, tmp_path):
    """Of what else reads, `folder.read` finds the same."""
    before = stamps(usual)
    call_verb("verify", usual)
    call_verb("export", usual, "-o", tmp_path / "bundle.zip")
    call_verb("analyse", usual, "--only", "order", "--sequences", 8, "-o", tmp_path / "analysis")
    glue_bench.plan(tiny_runs.experiment(seeds=[1, 2]), results=usual.parent)
    summary = glue_bench.run(tiny_runs.experiment(seeds=[1, 2]), results=usual.parent, dry_run=True)
    assert len(summary.waiting) == 1
    assert stamps(usual) == before


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        folder = train_all(Path(place))
        machine = tiny_runs.machine(folder)
        numbers = tiny_runs.numbers(folder)
    golden = json.loads(GOLDEN.read_bytes()) if GOLDEN.exists() else {"digests": {}, "numbers": {}}
    golden["numbers"] = numbers | golden["numbers"]
    golden["digests"][machine] = {variant: digest(of_one) for variant, of_one in numbers.items()}
    GOLDEN.write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")
