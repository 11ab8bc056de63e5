"""What is done about a failing cell: less at once, full precision, or a failure that names its cause."""

import errno
import io
import json
import resource

import pytest
import torch
from rich.console import Console
from stored import documents

from glue_bench.api import run
from glue_bench.config import parse_experiment
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.sweep import attempts
from glue_bench.sweep.attempts import attempt_cell
from glue_bench.sweep.jobs import Failure
from glue_bench.sweep.plan import plan_cells
from glue_bench.training import runtime
from glue_bench.training.inputs import Inputs
from glue_bench.training.loop import NonFiniteLossError
from glue_bench.training.memory import is_out_of_memory
from glue_bench.training.runtime import accelerator

pytestmark = pytest.mark.usefixtures("small_demo", "no_tables")


@pytest.fixture
def sweep(tiny, tmp_path):
    def run_it(**changes):
        return run(tiny(**changes), results=tmp_path / "runs", console=Console(file=io.StringIO()))

    return run_it


@pytest.fixture
def planned(tiny):
    """One cell and its inputs."""
    inputs = Inputs(parse_experiment(tiny(arms=["add"], tasks=["cola"])))
    (cell,) = plan_cells(inputs.experiment, inputs)
    return cell, inputs


@pytest.fixture
def finetune(monkeypatch):
    """Put a function in front of finetune; `calls` has the rows at once of each attempt."""
    original, calls = attempts.finetune, []

    def install(before):
        def watched(cell, start, tokens, keep_in=None, rows_at_once=None):
            calls.append(rows_at_once)
            before(cell, rows_at_once)
            return original(cell, start, tokens, keep_in, rows_at_once)

        monkeypatch.setattr(attempts, "finetune", watched)
        return calls

    return install


HOST = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")
DEVICE = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of ...")


def fake_allocator(monkeypatch, room: int, error: Exception = HOST) -> None:
    """An encoder that has memory for `room` rows."""
    from glue_bench.model.heads import EncoderForSequenceClassification

    forward = EncoderForSequenceClassification.forward

    def limited(self, input_ids, *arguments, **options):
        if len(input_ids) > room:
            raise error
        return forward(self, input_ids, *arguments, **options)

    monkeypatch.setattr(EncoderForSequenceClassification, "forward", limited)


def losses(outcome) -> list[float]:
    return [epoch.train_loss for epoch in outcome.record.history]


STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.mark.parametrize("error", [HOST, DEVICE], ids=["host", "device"])
def test_where_memory_is_short_batches_go_through_in_parts(tiny, monkeypatch, finetune, error):
    values = tiny(arms=["add"], tasks=["cola"], scratch=STILL, finetuning={"epochs": 2})
    inputs = Inputs(parse_experiment(values))
    (planned,) = plan_cells(inputs.experiment, inputs)
    whole = attempt_cell(planned, inputs)
    assert whole.record.micro_batch_size is None
    calls = finetune(lambda *_: None)
    monkeypatch.setattr("glue_bench.training.loop.EVALUATION_TOKENS", 96)
    fake_allocator(monkeypatch, 4, error)
    parted = attempt_cell(planned, inputs)
    assert calls == [None, 8, 4]
    assert parted.record.micro_batch_size == 4
    assert losses(parted) == pytest.approx(losses(whole), rel=1e-4)
    assert parted.predictions["validation"] == pytest.approx(whole.predictions["validation"], abs=1e-4)


def test_a_row_that_does_not_fit_is_a_failure(planned, monkeypatch, finetune):
    calls = finetune(lambda *_: None)
    fake_allocator(monkeypatch, 0)
    failure = attempt_cell(*planned)
    assert calls == [None, 8, 4, 2, 1]
    assert failure.error.startswith("RuntimeError: [enforce fail] DefaultCPUAllocator")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("no room"),
        DEVICE,
        OSError(errno.ENOMEM, "x"),
        RuntimeError("bad_alloc"),
        RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
    ],
)
def test_kinds_of_short_memory(planned, finetune, error):
    def first_only(_, rows):
        if rows is None:
            raise error

    calls = finetune(first_only)
    assert attempt_cell(*planned).record.micro_batch_size == 8
    assert calls == [None, 8]


def test_cublas_that_fails_after_its_start_is_no_lack_of_memory():
    assert not is_out_of_memory(RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasSgemm(a)`"))


def diverging(_, __):
    raise NonFiniteLossError("loss is nan in epoch 1")


def test_a_loss_that_is_no_number_is_a_failure_in_float32(planned, finetune):
    calls = finetune(diverging)
    assert attempt_cell(*planned).error == "NonFiniteLossError: loss is nan in epoch 1"
    assert calls == [None]


def test_a_loss_that_is_no_number_is_tried_once_in_float32(planned, finetune, monkeypatch):
    monkeypatch.setattr(attempts, "is_float32", lambda: False)
    runtime, seen = accelerator(), []
    monkeypatch.setattr(runtime, "native_amp", True)

    def diverges_in_bfloat16(*_):
        seen.append(runtime.native_amp)
        if runtime.native_amp:
            diverging(*_)

    finetune(diverges_in_bfloat16)
    assert attempt_cell(*planned).record.precision == "float32"
    assert seen == [True, False]
    assert runtime.native_amp
    calls = finetune(diverging)
    calls.clear()
    assert isinstance(attempt_cell(*planned), Failure)
    assert len(calls) == 2


def test_a_process_without_a_setting_trains_in_float32():
    assert runtime.is_float32()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_full_disk_ends_the_sweep_whoever_meets_it(sweep, finetune, number):
    def full(cell, _):
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
    finetune = attempts.finetune

    def cut_short(cell, start, tokens, keep_in=None):
        outcome = finetune(cell, start, tokens, keep_in)
        if keep_in:
            (path,) = keep_in.glob("*.safetensors")
            path.write_bytes(path.read_bytes()[:-100])
        return outcome

    monkeypatch.setattr(attempts, "finetune", cut_short)
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
        # Finite in float32; in bf16 it rounds to infinity.
        one = torch.ones(1, 1, device=made.hidden.device)
        product = F.linear(one, 3.4e38 * one)
        return replace(made, hidden=made.hidden + (1e-38 * product.float()).to(made.hidden.dtype))
"""


def test_what_overflows_in_bf16_alone_is_scored_in_float32(tiny, write_plugin, tmp_path):
    raw = tiny(arms=["mine"], tasks=["cola"], plugins=[str(write_plugin(OVERFLOWING))])
    summary = run(raw, results=tmp_path / "runs", precision="bf16", device="cpu", console=Console(file=io.StringIO()))
    (record,) = documents(Store(tmp_path / "runs" / "tiny"))
    assert record["precision"] == "float32"
    assert record["environment"]["precision"] == "bf16"
    assert not summary.failed
