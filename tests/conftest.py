"""Tiny experiments, checkpoints and data that every room's tests share.

Heavy imports happen inside fixtures.
"""

import gc
import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock

import pytest

# Before torch is imported: the suite's processes share the cores, and each of them does little at a
# time.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# No test asks the hub: nobody answers at this address.
os.environ["HF_ENDPOINT"] = "http://127.0.0.1:9"
# A shell ignores Ctrl-C for what it starts in the background, and every process below inherits
# that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

MAX_ID = 80
"""The most characters of a value in the name of a test's case."""
Made = Callable[..., Any]
LIBRARIES_OF_MODELS = (
    "beartype.door",
    "beartype.vale",
    "einops",
    "pydantic",
    "torch.utils.flop_counter",
    "transformers.integrations.sdpa_attention",
    "transformers.masking_utils",
    "transformers.modeling_utils",
    "transformers.models.auto.modeling_auto",
)
"""The libraries that glue_bench.model imports."""


class LibrariesFirst(MetaPathFinder):
    """Imports the libraries that glue_bench.model needs just before that package is imported.

    jaxtyping checks the shapes of that package. While it imports one of its modules it looks for
    bytecode under a name of its own, also for the libraries that this module imports: 1,700 files
    would be compiled again.
    """

    def find_spec(self, fullname: str, *_: object) -> None:
        """Import the libraries at the right moment.

        Find nothing, so that the usual finders go on.
        """
        if fullname == "glue_bench.model":
            sys.meta_path.remove(self)
            for library in LIBRARIES_OF_MODELS:
                importlib.import_module(library)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a case by its content: pytest would number what is no text, number or function."""
    if isinstance(val, dict | list | tuple | bytes | BaseException):
        text = repr(val)
        if " at 0x" not in text:  # an address differs from process to process
            return text if len(text) <= MAX_ID else f"{text[:MAX_ID]}..."
    return None


def pytest_configure(config: pytest.Config) -> None:
    """Try properties on few examples, or with `--hypothesis-profile many` on many; a busy machine
    is no failure.

    Each worker has a stretch of the suite and takes from another's when it is through, so that what
    a module shares is made once.
    """
    from hypothesis import settings

    settings.register_profile("few", max_examples=25, deadline=None)
    settings.register_profile("many", max_examples=2000, deadline=None)
    if not config.getoption("hypothesis_profile", None):
        settings.load_profile("few")
    if config.getoption("dist", "no") == "load":
        config.option.dist = "worksteal"
    sys.meta_path.insert(0, LibrariesFirst())
    # Modules are imported while tests are collected, and stay: there is no garbage to look for.
    gc.disable()


def pytest_collection_finish() -> None:
    """Collect garbage again, more rarely than usual, and not among the modules that are imported
    by now.
    """
    gc.freeze()
    gc.set_threshold(10_000)
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def _as_on_every_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep tests from the user's own cache, and compute in float32 whatever a CPU would choose.

    Nothing waits for the disk, runs end without a report, and verbs are made once: these take
    longer than a tiny run.
    """
    import typer.main

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLUE_BENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("GLUE_BENCH_PRECISION", "float32")
        # When it is called is tested in tests/records/test_store.py.
        patch.setattr(os, "fsync", lambda _: None)
        patch.setattr("glue_bench.api.experiments.write_page", lambda *_: None)
        patch.setattr("typer.main.get_command", cache(typer.main.get_command))
        yield


@pytest.fixture(autouse=True, scope="module")
def frozen_imports() -> None:
    """Freeze what is imported: each cell and pretraining ends with a garbage collection, which
    would look through it for 0.3 s.

    This happens once a module, since much is imported late.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def unchecked_shapes() -> None:
    """Do not check the shapes of arrays: to check each one takes as long as to compute it.

    Some tests of `glue_bench.model` check them: see tests/model/conftest.py.
    """
    from jaxtyping import config

    config.update("jaxtyping_disable", True)


@pytest.fixture(scope="session")
def tiny() -> Made:
    """The tiny experiment as plain values, with changes merged into it; None takes a key away."""
    from helpers.tiny_runs import TINY, merged

    return lambda **changes: merged(TINY, changes)


@pytest.fixture
def store(tmp_path: Path) -> Any:
    """An empty results folder."""
    from glue_bench.records.store import Store

    results = Store(tmp_path / "toy")
    results.prepare()
    return results


@pytest.fixture
def new_bench(tmp_path: Path) -> Made:
    """Experiments whose records are made by hand, by name."""
    from helpers.stored import Bench

    return lambda name: Bench(tmp_path / name)


@pytest.fixture
def bench(new_bench: Made) -> Any:
    """An experiment whose records are made by hand."""
    return new_bench("toy")


@pytest.fixture
def small_demo(monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    """The demo with few rows. Calling the fixture changes their number."""
    from helpers.small_data import FEW_ROWS

    from glue_bench.data import demo

    def resize(**rows: int) -> None:
        monkeypatch.setattr(demo, "ROWS", FEW_ROWS | rows)
        demo.generate.cache_clear()

    resize()
    yield resize
    demo.generate.cache_clear()


@pytest.fixture
def make_bert(tmp_path: Path) -> Made:
    """Save a tiny random BertModel, with a tokenizer trained on `texts` beside it, and return
    its folder.
    """

    def make(name: str = "bert", **options: Any) -> Path:
        from helpers.tiny_models import save_bert

        return save_bert(tmp_path / name, **options)

    return make


@pytest.fixture
def write_plugin(tmp_path: Path) -> Iterator[Made]:
    """Write a plugin, `mine` unless told otherwise, and return its path; what is loaded is
    forgotten afterwards.
    """
    from helpers import tiny_runs

    def write(code: str = tiny_runs.PLUGIN, name: str = "my_variant.py") -> Path:
        path = tmp_path / name
        path.write_text(code, encoding="utf-8")
        return path

    yield write
    tiny_runs.forget_plugins()


@pytest.fixture
def moody(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """What the variant `moody` calls in each step of training."""
    from glue_bench.model.variants import VARIANTS

    does = Mock()

    class Moody(VARIANTS["add"]):
        def forward(self, token_ids, segment_ids):
            if (
                self.training and token_ids.device.type != "meta"
            ):  # on which operations are only counted
                does()
            return super().forward(token_ids, segment_ids)

    monkeypatch.setitem(VARIANTS, "moody", Moody)
    return does


@pytest.fixture
def write(tmp_path: Path) -> Made:
    """Write files, which are named by their paths below a new folder, and return that folder."""

    def write_files(files: dict[str, str | bytes]) -> Path:
        for name, content in files.items():
            path = tmp_path / "written" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return tmp_path / "written"

    return write_files


@pytest.fixture
def write_yaml(tmp_path: Path) -> Made:
    """Write an experiment file and return its path."""
    import yaml

    def write(content: Any, name: str = "experiment.yaml") -> Path:
        path = tmp_path / name
        path.write_text(
            content if isinstance(content, str) else yaml.safe_dump(content), encoding="utf-8"
        )
        return path

    return write


@pytest.fixture
def make_tupe(tmp_path: Path) -> Made:
    """Save a random checkpoint in the layout of the official TUPE release, with the options of
    `save_tupe`.
    """
    from helpers.tiny_models import save_tupe

    return lambda name="tupe.pt", spoil=lambda _: None, **changes: save_tupe(
        tmp_path / name, spoil, **changes
    )


class Output(NamedTuple):
    """The output of a command and its exit status."""

    status: int
    out: str
    err: str


@pytest.fixture
def glue_bench(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Made:
    """Calls `glue-bench` with these words after it."""
    from glue_bench import cli

    def call(*words: object) -> Output:
        monkeypatch.setattr(sys, "argv", ["glue-bench", *map(str, words)])
        capsys.readouterr()
        try:
            cli.main()
            status = 0
        except SystemExit as end:
            status = int(end.code or 0)
        return Output(status, *capsys.readouterr())

    return call


@pytest.fixture
def refused(glue_bench: Made) -> Made:
    """Calls `glue-bench` with bad input, and gives the message: one, with exit status 2 and no
    traceback.
    """

    def call(*words: object) -> str:
        output = glue_bench(*words)
        assert output.status == 2, output
        assert output.err.count("error: ") == 1
        assert "Traceback" not in output.err
        assert output.out == ""
        return str(output.err.partition("error: ")[2])

    return call
