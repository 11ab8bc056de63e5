"""Same bits: in float32 on one kind of processor and one number of threads, every variant gives what it always gave.

`bits.json` holds the numbers of a small pretraining and fine-tuning of each variant: to the last bit for the kinds of
machine that it names, and for all others within 1e-6. `python tests/promises/test_bits.py` adds the kind of this one.
"""

import hashlib
import json
import random
import struct
import tempfile
from pathlib import Path

import numpy as np
import pytest
import tiny_runs
import torch

import glue_bench

GOLDEN = Path(__file__).with_name("bits.json")


def train_all(place: Path) -> Path:
    """Every variant, pretrained and fine-tuned for a few steps on text of our own."""
    values = tiny_runs.experiment(data=str(tiny_runs.glue()), limit=None, arms=list(glue_bench.VARIANTS))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return tiny_runs.run(values, place / "runs")
    finally:
        torch.set_num_threads(before)


def digest(numbers: list[float]) -> str:
    return hashlib.sha256(struct.pack(f"{len(numbers)}d", *numbers)).hexdigest()[:16]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The kind of this machine, and the numbers of each variant on it."""
    folder = train_all(tmp_path_factory.mktemp("bits"))
    return tiny_runs.machine(folder), tiny_runs.numbers(folder)


@pytest.mark.parametrize("variant", sorted(json.loads(GOLDEN.read_bytes())["numbers"]) if GOLDEN.exists() else [])
def test_a_variant_gives_the_numbers_that_it_gave(trained, variant):
    machine, numbers = trained
    golden = json.loads(GOLDEN.read_bytes())
    np.testing.assert_allclose(numbers[variant], golden["numbers"][variant], rtol=1e-6, atol=1e-6)
    if machine in golden["digests"]:
        assert digest(numbers[variant]) == golden["digests"][machine][variant]


def test_every_variant_has_such_numbers():
    assert json.loads(GOLDEN.read_bytes())["numbers"].keys() == glue_bench.VARIANTS.keys()


MORE = {"arms": ["add", "untied"], "tasks": ["stsb", "rte"], "seeds": [1, 2]}


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    return tiny_runs.bits(tiny_runs.run(tiny_runs.experiment(**MORE), tmp_path_factory.mktemp("usual")))


def test_other_orders_of_arms_tasks_and_seeds_give_the_same_bits(usual, tmp_path):
    values = tiny_runs.experiment(**{key: given[::-1] for key, given in MORE.items()})
    assert tiny_runs.unlike(usual, tiny_runs.bits(tiny_runs.run(values, tmp_path))) == []


def test_cells_in_pieces_and_after_other_work_in_the_process_are_the_same(usual, tmp_path):
    values = tiny_runs.experiment(**MORE)
    for only in (["task=rte", "seed=2"], ["arm=untied"], []):
        random.random(), np.random.random(3), torch.rand(3)  # noqa: NPY002
        tiny_runs.run(tiny_runs.experiment(seeds=[random.randrange(9)], tasks=["cola"]), tmp_path / "other")
        folder = tiny_runs.run(values, tmp_path / "pieces", only=only)
    assert tiny_runs.unlike(usual, tiny_runs.bits(folder)) == []


def test_a_kept_model_is_the_same_whether_its_tokens_were_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GLUE_BENCH_CACHE", str(tmp_path / "cache"))
    values = tiny_runs.experiment(pretraining=None, checkpoint="scratch", finetuning={"keep": "all"})
    folders = [tiny_runs.run(values, tmp_path / name) for name in ("one", "other")]
    assert tiny_runs.unlike(*map(tiny_runs.bits, folders)) == []


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        folder = train_all(Path(place))
        machine, numbers = tiny_runs.machine(folder), tiny_runs.numbers(folder)
    golden = json.loads(GOLDEN.read_bytes()) if GOLDEN.exists() else {"digests": {}, "numbers": numbers}
    golden["digests"][machine] = {variant: digest(of_one) for variant, of_one in numbers.items()}
    GOLDEN.write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")
