"""What a call leaves behind in the process that made it: nothing, however the call ends."""

import faulthandler
import gc
import io
import locale
import logging
import multiprocessing
import os
import random
import signal
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from rich.console import Console

from glue_bench.api import explain, run
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.sweep import attempts, plan
from glue_bench.testing.plugins import load_plugins
from glue_bench.training import memory
from glue_bench.training import pretrain as pretraining
from glue_bench.training.convert import convert
from glue_bench.training.finetune import threads_for
from glue_bench.training.memory import IMMORTAL
from glue_bench.training.process import process_kept

pytestmark = pytest.mark.usefixtures("small_demo")

PRETRAINING = {"corpus": "demo", "steps": 2, "batch_tokens": 256, "length": 32, "validations": 1}


def snapshot() -> dict[str, Any]:
    """All that can be seen of the settings of this process, as values that can be compared."""
    return {**_of_python(), **_of_random_numbers(), **_of_torch(), **_of_libraries()}


def _of_python() -> dict[str, Any]:
    gc.collect()  # an exception may keep maps of files in a cycle until then, from Python 3.12 on
    files = Path("/proc/self/fd")
    return {
        "environment": dict(os.environ),
        "working directory": Path.cwd(),
        "umask": _umask(),
        "locale": locale.setlocale(locale.LC_ALL),
        "open files": sorted(_link(file) for file in files.iterdir()) if files.is_dir() else [],
        "collector": (gc.isenabled(), gc.get_threshold(), gc.get_debug(), list(gc.callbacks)),
        "has frozen objects": gc.get_freeze_count() > IMMORTAL,
        "signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "warnings": (list(warnings.filters), warnings.showwarning),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "processes": (multiprocessing.active_children(), multiprocessing.get_start_method(allow_none=True)),
        "hooks": (sys.excepthook, sys.unraisablehook, sys.displayhook, threading.excepthook, sys.gettrace()),
        "streams": (sys.stdin, sys.stdout, sys.stderr),
        "limits": (sys.getrecursionlimit(), sys.getswitchinterval(), faulthandler.is_enabled()),
        "path": list(sys.path),
        "plugins' modules": sorted(name for name in sys.modules if name.startswith("glue_bench_plugin")),
    }


def _umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now


def _link(file: Path) -> str:
    try:
        return str(file.readlink())
    except OSError:  # the listing's own
        return ""


def _of_random_numbers() -> dict[str, Any]:
    kind, *state = np.random.get_state()  # noqa: NPY002
    return {
        "random": random.getstate(),
        "NumPy's random": (kind, *(np.asarray(part).tolist() for part in state)),
        "torch's random": (torch.get_rng_state().tolist(), torch.initial_seed()),
    }


def _of_torch() -> dict[str, Any]:
    return {
        "threads of torch": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "defaults": (torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled()),
        "deterministic": (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
            torch.backends.cudnn.deterministic,
            torch.backends.cudnn.benchmark,
        ),
        "precision": (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32),
        "autocast": [(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda")],
        "attention": (
            torch.backends.cuda.cudnn_sdp_enabled(),
            torch.backends.cuda.flash_sdp_enabled(),
            torch.backends.cuda.mem_efficient_sdp_enabled(),
            torch.backends.cuda.math_sdp_enabled(),
        ),
        "NumPy's errors": np.geterr(),
    }


def _of_libraries() -> dict[str, Any]:
    import datasets
    import huggingface_hub.utils as hub
    import transformers

    from glue_bench.model.plugins import PLUGINS
    from glue_bench.model.variants import VARIANTS

    loggers = {
        name: (logger.level, logger.propagate, logger.disabled, list(logger.handlers), list(logger.filters))
        for name, logger in [("", logging.getLogger()), *sorted(logging.root.manager.loggerDict.items())]
        if isinstance(logger, logging.Logger)
    }
    return {
        "loggers": loggers,
        "progress bars": (
            transformers.utils.logging.is_progress_bar_enabled(),
            datasets.utils.are_progress_bars_disabled(),
            hub.are_progress_bars_disabled(),
        ),
        "accelerate": [dict(kind._shared_state) for kind in (PartialState, AcceleratorState, GradientState)],
        "variants": (dict(VARIANTS), dict(PLUGINS)),
    }


def changed(before: dict[str, Any], after: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What differs, each with what it was and what it is."""
    found = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
    for name in found.keys() & {"environment", "loggers"}:
        was, now = found[name]
        found[name] = {key: (was.get(key), now.get(key)) for key in was | now if was.get(key) != now.get(key)}
    for name in [name for name, (was, _) in found.get("loggers", {}).items() if was is None]:
        del found["loggers"][name]  # of a library that was imported meanwhile
    return {name: difference for name, difference in found.items() if difference}


def _interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def host(monkeypatch):
    """A process that has settings of its own, and whose accelerate is in use."""
    import datasets
    import huggingface_hub.utils as hub
    import transformers

    monkeypatch.delenv("ACCELERATE_MIXED_PRECISION")
    monkeypatch.setenv("HOST", "its own")
    were_frozen = gc.get_freeze_count() > IMMORTAL
    gc.unfreeze()
    monkeypatch.setattr("glue_bench.training.memory._frozen_by", set())
    with process_kept():
        own = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2, cpu=True)
        signal.signal(signal.SIGINT, _interrupted)
        signal.signal(signal.SIGTERM, lambda *_: None)
        torch.set_num_threads(3)
        random.seed(77)
        np.random.seed(77)  # noqa: NPY002
        torch.manual_seed(77)
        for name in ("datasets", "transformers", "torch._dynamo", "huggingface_hub", "ray"):
            logging.getLogger(name).setLevel(logging.INFO)
        datasets.enable_progress_bars()
        transformers.logging.disable_progress_bar()
        hub.enable_progress_bars()
        hub.disable_progress_bars("a.part")
        yield
        assert (own.mixed_precision, own.gradient_accumulation_steps) == ("bf16", 2)
    if were_frozen:
        gc.freeze()


@pytest.fixture
def call(tiny, tmp_path):
    """`run` on one cell, with a choice of precision; `changes` are the experiment's."""

    def run_it(changes=(), **options):
        values = tiny(**{"arms": ["add"], "tasks": ["cola"]} | dict(changes))
        usual = {"precision": "float32", "console": Console(file=io.StringIO())}
        return run(values, results=tmp_path / "runs", **usual | options)

    return run_it


def finishes_with_a_plugin(call, _, plugin):
    assert call({"arms": ["mine"], "plugins": [plugin]}).finished == 1


def chooses_bf16_and_pretrains(call, *_):
    assert call({"pretraining": PRETRAINING}, precision="bf16", device="cpu").finished == 1


def runs_dry(call, *_):
    assert len(call(dry_run=True).waiting) == 1


def is_refused(call, *_):
    with pytest.raises(UserError, match="unknown task 'rte'"):
        call(only=["task=rte"])


def lacks_a_device(call, *_):
    with pytest.raises(UserError, match="device 'mps' is not there"):
        call(device="mps")


def meets_a_failing_cell(call, patch, _):
    patch.setattr(attempts, "finetune", _raising(RuntimeError))
    assert len(call().failed) == 1


def meets_a_full_disk(call, patch, _):
    patch.setattr(Store, "write_record", _raising(OSError, 28, "No space left on device"))
    with pytest.raises(UserError, match="No space left"):
        call()


def cannot_write_its_plan(call, patch, _):
    patch.setattr(Store, "write_plan", _raising(OSError, 28, "No space left on device"))
    with pytest.raises(UserError, match="No space left"):
        call()


def is_interrupted_while_it_plans(call, patch, _):
    patch.setattr(plan, "check_experiment", _interrupted)
    with pytest.raises(KeyboardInterrupt):
        call()


def is_interrupted_in_pretraining(call, patch, _):
    patch.setattr(pretraining, "training_batch", _interrupted)
    assert call({"pretraining": PRETRAINING}).interrupted


def is_interrupted_in_a_cell(call, patch, _):
    patch.setattr(attempts, "finetune", lambda *_: [signal.raise_signal(signal.SIGINT) for _ in range(2)])
    assert call().interrupted


def _raising(kind: type[Exception], *arguments: object) -> Any:
    def fail(*_: object) -> None:
        raise kind(*arguments)

    return fail


RUNS = (
    finishes_with_a_plugin,
    chooses_bf16_and_pretrains,
    runs_dry,
    is_refused,
    lacks_a_device,
    meets_a_failing_cell,
    meets_a_full_disk,
    cannot_write_its_plan,
    is_interrupted_while_it_plans,
    is_interrupted_in_pretraining,
    is_interrupted_in_a_cell,
)


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("ends", RUNS, ids=lambda ends: ends.__name__)
def test_a_run_leaves_the_process_as_it_was_however_it_ends(call, monkeypatch, write_plugin, ends):
    plugin = str(write_plugin())
    with monkeypatch.context() as patch:
        before = snapshot()
        ends(call, patch, plugin)
        assert changed(before, snapshot()) == {}


@pytest.mark.usefixtures("host")
def test_loading_a_plugin_adds_its_variants_and_nothing_else(write_plugin):
    plugin, before = write_plugin(), snapshot()
    load_plugins([plugin])
    found = changed(before, snapshot()).keys() - {"random"}  # beartype draws from it, which the tests check shapes by
    assert found == {"variants", "plugins' modules"}


@pytest.mark.usefixtures("host")
def test_so_does_what_explains_and_what_converts(tiny, make_bert, tmp_path):
    folder = make_bert(texts=("the old cat chased a dog", "anna helped tom"))
    before = snapshot()
    cell = run(tiny(arms=["add"], tasks=["cola"]), results=tmp_path, dry_run=True).waiting[0]
    explain(cell, tiny(arms=["add"], tasks=["cola"]), results=tmp_path)
    convert(str(folder), tmp_path / "out", "shaw")
    with pytest.raises(UserError, match="is not empty"):
        convert(str(folder), tmp_path / "out", "untied")
    assert changed(before, snapshot()) == {}


def test_objects_that_the_caller_has_frozen_stay_frozen(call, monkeypatch):
    monkeypatch.setattr("glue_bench.training.memory._frozen_by", set())
    with process_kept():
        gc.freeze()
        call()
        assert gc.get_freeze_count() > IMMORTAL


def test_immortal_objects_which_python_counts_as_frozen_are_not_the_callers(monkeypatch):
    monkeypatch.setattr(memory, "_frozen_by", set())
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 375)  # as Python 3.12 says after a collection
    frozen = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(True))
    memory.freeze_imports()
    memory.freeze_imports()
    assert (frozen, memory._frozen_by) == ([True, True], {"us"})


def test_a_run_computes_with_the_threads_that_the_caller_has_when_it_begins():
    """Not with those that there were when the package was imported."""
    with process_kept():
        torch.set_num_threads(3)
        with process_kept():
            torch.set_num_threads(threads_for(64))
            assert threads_for(768) == 3


def test_each_run_has_the_variants_of_its_own_plugins(tiny, write_plugin, tmp_path):
    """Two files may call a variant by the same name, and an edited one is another."""
    names = ("one.py", "other.py")
    plugins = [write_plugin(write_plugin().read_text() + f"# {name}\n", name) for name in names]
    found = [
        run(tiny(arms=["mine"], tasks=["cola"], plugins=[str(plugin)]), results=tmp_path, dry_run=True).waiting
        for plugin in plugins
    ]
    assert found[0] != found[1]
