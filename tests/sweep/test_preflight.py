"""What is known before anything is computed: a dry run refuses what a run refuses, and says what a run says."""

import io
import json
import sys
from pathlib import Path

import pytest
from rich.console import Console
from stored import read_records

from glue_bench.api import run
from glue_bench.errors import UserError
from glue_bench.records.disk import record_digest
from glue_bench.records.store import Store
from glue_bench.sweep import preflight
from glue_bench.training import pretrain as training

pytestmark = pytest.mark.usefixtures("small_demo", "no_tables")

PRETRAINED = {"arms": ["add"], "tasks": ["cola"]}
FROM_MNLI = {"arms": ["add"], "tasks": ["mnli", "rte"], "finetuning": {"from_mnli": ["rte"]}}


@pytest.fixture
def call(values, tiny, tmp_path):
    """Run an experiment into the same folder each time; what it printed is `call.said`."""

    def run_it(pretrains=True, **options):
        options = {"results": tmp_path / "runs", **options}
        console = Console(file=io.StringIO(), width=300)
        changes = {key: options.pop(key) for key in list(options) if key in {"arms", "tasks", "seeds", "finetuning"}}
        changes |= {key: options.pop(key) for key in ("resources", "checkpoint") if key in options}
        experiment = values(**changes) if pretrains else tiny(**changes)
        try:
            return run(experiment, console=console, **options)
        finally:
            run_it.said = console.file.getvalue()

    return run_it


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in sorted(folder.rglob("*"))}


# Each fault is put there and returns what to call; whatever was there is made by a run before.


def no_ray(_, patch, __):
    patch.setitem(sys.modules, "ray", None)
    patch.delitem(sys.modules, "glue_bench.sweep.ray_executor", raising=False)
    return {"pretrains": False, "workers": 2}, "need Ray; install it"


def no_cluster(*_):
    pytest.importorskip("ray")
    return {"pretrains": False, "address": "127.0.0.1:1"}, "cannot use the Ray cluster at '127.0.0.1:1'"


def results_are_a_file(_, __, folder):
    (folder / "runs").write_text("in the way")
    return {"pretrains": False}, "cannot write results to"


def cache_is_a_file(_, patch, folder):
    (folder / "cache").write_text("in the way")
    patch.setenv("GLUE_BENCH_CACHE", str(folder / "cache"))
    return {"pretrains": False}, "cannot write to"


def an_unknown_tracker(*_):
    return {"pretrains": False, "track": ["mlfow"]}, "unknown tracker 'mlfow'"


def a_damaged_pretrained_checkpoint(call, _, __):
    (weights,) = call(**PRETRAINED).folder.glob("checkpoints/*/step-10/model.safetensors")
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    return PRETRAINED | {"seeds": [2]}, f"'{weights}' is damaged"


def a_damaged_state(call, patch, _):
    (state,) = _stopped(call, patch).glob("checkpoints/*/resume.pt")
    state.write_bytes(b"half a state")
    return PRETRAINED, f"cannot read '{state}'"


def another_configuration(call, patch, _):
    (path,) = _stopped(call, patch).glob("checkpoints/*/identity.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"corpus": "another"}))
    return PRETRAINED, "holds a pretraining of another configuration (it differs in corpus)"


def a_damaged_mnli_start(call, *_):
    options = FROM_MNLI | {"pretrains": False}
    folder = call(**options, only=["task=mnli"]).folder
    (config,) = folder.glob("checkpoints/*/config.json")
    config.write_bytes(b"{}")
    return options, f"'{config}' is damaged"


def unreadable_weights(_, __, folder):
    place = folder / "bert"
    weights = place / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-30])
    options = {"pretrains": False, "checkpoint": str(place), "arms": ["add"], "tasks": ["cola"]}
    return options, f"cannot read weights from '{weights}'"


def _stopped(call, patch) -> Path:
    """The folder of a pretraining that was stopped in the middle."""
    batch = training.training_batch

    def interrupted(*arguments, **options):
        if options["step"] == 5:
            raise KeyboardInterrupt
        return batch(*arguments, **options)

    with patch.context() as inner:
        inner.setattr(training, "SAVE_SECONDS", 0)
        inner.setattr(training, "training_batch", interrupted)
        return call(**PRETRAINED).folder


FAULTS = (
    no_ray,
    no_cluster,
    results_are_a_file,
    cache_is_a_file,
    an_unknown_tracker,
    a_damaged_pretrained_checkpoint,
    a_damaged_state,
    another_configuration,
    a_damaged_mnli_start,
    unreadable_weights,
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_dry_run_and_a_run_refuse_alike_and_leave_no_trace(call, make_bert, monkeypatch, tmp_path, fault):
    make_bert(texts=("the old cat chased a dog", "anna helped tom"))
    options, expected = fault(call, monkeypatch, tmp_path)
    before, said = contents(tmp_path), []
    for dry_run in (True, False):
        with pytest.raises(UserError) as caught:
            call(dry_run=dry_run, **options)
        said.append(str(caught.value))
        if dry_run:
            assert contents(tmp_path) == before
    assert expected in said[0]
    assert said[0] == said[1]


def test_a_dry_run_starts_no_worker_and_knows_what_this_machine_has(call):
    ray = pytest.importorskip("ray")
    options = {"pretrains": False, "workers": 2, "dry_run": True}
    assert call(**options).waiting
    with pytest.raises(UserError, match=r"no machine has room for a cell, which takes 1 CPUs and 64 GPUs .* 2 CPUs"):
        call(**options, resources={"gpus": 64})
    assert not ray.is_initialized()


def test_a_dry_run_meets_a_full_disk(call, monkeypatch):
    from glue_bench.records import store

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "prove_writable", full)
    with pytest.raises(UserError, match=r"cannot write results to .*: No space left on device"):
        call(pretrains=False, dry_run=True)


def test_a_plugin_that_no_arm_uses_is_said(tiny, write_plugin, tmp_path):
    used, unused = write_plugin(), write_plugin(write_plugin().read_text().replace("mine", "yours"), "yours.py")
    console = Console(file=io.StringIO(), width=300)
    options = {"results": tmp_path, "dry_run": True, "console": console}
    run(tiny(arms=["mine"], tasks=["cola"]), plugins=[used, unused], **options)
    lines = [line for line in console.file.getvalue().splitlines() if "plugin" in line]
    assert lines == [f"plugin '{unused}' is not used: no arm has the variant 'yours'"]


def edit(folder: Path, **environment: object) -> None:
    """Let one of the records have been made elsewhere."""
    path = min(folder.glob("records/*.json"))
    record = json.loads(path.read_text())
    record["environment"] |= environment
    path.write_text(json.dumps({**record, "digest": record_digest(record)}))


def test_stored_results_of_another_precision_or_device_are_said(call):
    folder = call(arms=["add"], seeds=[1, 2], precision="float32").folder
    dry = {"arms": ["add"], "seeds": [1, 2, 3], "dry_run": True}
    anew = "another folder (--results) runs all of them anew"

    def said(**options) -> list[str]:
        call(**dry, **options)
        return [line for line in call.said.splitlines() if "computing on" not in line]

    assert said() == said(precision="float32") == said(device="cpu") == []
    assert said(precision="bf16") == [
        f"2 of 3 cells were run in float32, not in bf16 (--precision), and count as done; {anew}",
        f"add: pretrained in float32, not in bf16 (--precision), which counts as done; {anew}",
    ]
    edit(folder, device="NVIDIA H100", precision="bf16")
    assert said(precision="float32", device="cpu") == [
        f"1 of 3 cells were run on cuda, not on cpu (--device), and count as done; {anew}",
        f"1 of 3 cells were run in bf16, not in float32 (--precision), and count as done; {anew}",
    ]
    assert len(read_records(Store(folder))) == 2


def test_a_cell_that_fell_back_to_float32_is_what_bf16_would_give_again(call):
    folder = call(pretrains=False, arms=["add"], tasks=["cola"], precision="float32").folder
    path = min(folder.glob("records/*.json"))
    record = json.loads(path.read_text()) | {"precision": "float32"}
    record["environment"]["precision"] = "bf16"
    path.write_text(json.dumps({**record, "digest": record_digest(record)}))
    for precision in ("bf16", "float32"):
        call(pretrains=False, arms=["add"], tasks=["cola"], precision=precision, dry_run=True)
        assert "were run in" not in call.said


@pytest.mark.parametrize("dry_run", [True, False])
def test_an_encoder_larger_than_memory_is_refused_before_it_is_made(call, monkeypatch, dry_run):
    monkeypatch.setattr(preflight, "most_bytes", lambda: 2**10)
    monkeypatch.setattr(preflight, "check_order", lambda *_: pytest.fail("it was made"))
    with pytest.raises(
        UserError, match=r"^arm 'add': to train an encoder of [\d,]+ parameters takes .*; lower the sizes"
    ):
        call(pretrains=False, dry_run=dry_run)


def test_no_encoder_is_refused_where_memory_is_enough_or_not_known(call, monkeypatch):
    for most in (None, 2**30):
        monkeypatch.setattr(preflight, "most_bytes", lambda most=most: most)
        call(pretrains=False, dry_run=True)
