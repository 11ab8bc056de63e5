"""What is done about a failing cell: it is a failure that names its cause, but a full disk ends the sweep."""

import errno
import io
import json
import resource

import pytest
from rich.console import Console
from stored import documents

from glue_bench.api import run
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.sweep import attempts

pytestmark = pytest.mark.usefixtures("small_demo", "no_tables")


@pytest.fixture
def sweep(tiny, tmp_path):
    def run_it(**changes):
        return run(tiny(**changes), results=tmp_path / "runs", console=Console(file=io.StringIO()))

    return run_it


@pytest.fixture
def finetune(monkeypatch):
    """Call a function with each cell before it is fine-tuned."""
    original = attempts.finetune

    def install(before):
        def watched(cell, *rest, **further):
            before(cell)
            return original(cell, *rest, **further)

        monkeypatch.setattr(attempts, "finetune", watched)

    return install


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_full_disk_ends_the_sweep_whoever_meets_it(sweep, finetune, number):
    def full(cell):
        if cell.task == "stsb":
            raise OSError(number, "full", "/somewhere/ids.npy")

    finetune(full)
    with pytest.raises(UserError, match=r"cannot write '/somewhere/ids.npy': .*the same command goes on from there"):
        sweep()
    finetune(lambda *_: None)
    assert sweep().skipped == 2


def test_a_disk_that_fills_up_in_earnest(sweep, finetune, tmp_path):
    """No file may grow beyond a limit: the first write of a record stops half-way."""
    sweep(arms=["add"], tasks=["cola"])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    finetune(lambda *_: resource.setrlimit(resource.RLIMIT_FSIZE, (700, before[1])))
    try:
        with pytest.raises(UserError, match=r"cannot write to .*: File too large; earlier cells are kept"):
            sweep(arms=["add"], tasks=["cola"], seeds=[1, 2])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    folder = tmp_path / "runs" / "tiny"
    assert len(documents(Store(folder))) == 1
    assert not list(folder.rglob(".*"))  # nothing half-written stays
    finetune(lambda *_: None)
    assert sweep(arms=["add"], tasks=["cola"], seeds=[1, 2]).finished == 1


def test_a_damaged_checkpoint_is_a_failure_that_names_the_file(sweep, monkeypatch):
    settings = {"learning_rates": [1e-3], "from_mnli": ["rte"]}
    keep = attempts.keep_encoder

    def cut_short(planned, inputs, model):
        keep(planned, inputs, model)
        (path,) = inputs.folder.glob("*/*.safetensors")
        path.write_bytes(path.read_bytes()[:-100])

    monkeypatch.setattr(attempts, "keep_encoder", cut_short)
    summary = sweep(arms=["add"], tasks=["mnli", "rte"], finetuning=settings)
    (error,) = summary.failed.values()
    assert error.startswith("UserError: '")
    assert "model.safetensors' is damaged: " in error
    assert error.endswith("; delete its folder, and the same command makes it again")
    failure = json.loads(next((summary.folder / "failures").iterdir()).read_text())
    assert failure["environment"]["threads"] >= 1


OVERFLOWING = """
from dataclasses import replace

import torch
import torch.nn.functional as F
from glue_bench.model.variants.additive import Add


class Mine(Add):
    name = "mine"

    def forward(self, token_ids, segment_ids):
        made = super().forward(token_ids, segment_ids)
        # Finite in float32, where nothing is added; in bf16 it rounds to infinity.
        one = torch.ones(1, 1, device=made.hidden.device)
        product = F.linear(one, 3.4e38 * one)
        return replace(made, hidden=made.hidden + (1e-38 * product.float() - 3.4).to(made.hidden.dtype))
"""


def test_what_overflows_in_bf16_alone_is_scored_in_float32(tiny, write_plugin, tmp_path):
    raw = tiny(arms=["mine"], tasks=["cola"], plugins=[str(write_plugin(OVERFLOWING))])
    summary = run(raw, results=tmp_path / "runs", precision="bf16", device="cpu", console=Console(file=io.StringIO()))
    (record,) = documents(Store(tmp_path / "runs" / "tiny"))
    assert record["precision"] == "float32"
    assert record["environment"]["precision"] == "bf16"
    assert not summary.failed
