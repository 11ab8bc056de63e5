"""One small experiment, run once, whose folder tests may change; and a variant that raises when it is told to."""

import shutil
from pathlib import Path
from typing import ClassVar

import pytest

from glue_bench.model.variants import VARIANTS


class Moody(VARIANTS["add"]):
    """Raises `error` in the first training step after it was told to, or does what is told it."""

    does: ClassVar = None

    def forward(self, token_ids, segment_ids):
        if self.training and token_ids.device.type != "meta" and Moody.does:  # on meta operations are only counted
            Moody.does()
        return super().forward(token_ids, segment_ids)


@pytest.fixture
def moody(monkeypatch):
    """Arms may have the variant `moody`, which is told what to do in a training step."""
    monkeypatch.setitem(VARIANTS, "moody", Moody)

    def tell(does) -> None:
        monkeypatch.setattr(Moody, "does", staticmethod(does))

    return tell


@pytest.fixture
def config(tiny, write_yaml) -> Path:
    return write_yaml(tiny(tasks=["cola"]))


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Path:
    """Where the finished experiment stays, once a test has asked for it."""
    return tmp_path_factory.mktemp("kept")


@pytest.fixture
def finished(glue_bench, config, kept, tmp_path) -> Path:
    """The folder of a finished experiment, to be changed."""
    if not (kept / "tiny").exists():
        assert glue_bench("run", config, "--results", kept).status == 0
    return shutil.copytree(kept / "tiny", tmp_path / "runs" / "tiny")
