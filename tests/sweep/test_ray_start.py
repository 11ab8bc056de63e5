"""A machine on which Ray does not start: one line, and nothing of ours stays as it was set for it."""

import io
import logging

import pytest
from rich.console import Console

from glue_bench.api import run
from glue_bench.errors import UserError

pytestmark = pytest.mark.usefixtures("small_demo", "no_tables")


def test_a_ray_that_does_not_start_is_one_line(tiny, tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")
    level = logging.getLogger("ray").level

    def too_late(**_):
        raise Exception("The current node timed out during startup. This could happen because ...")

    monkeypatch.setattr(ray, "init", too_late)
    with pytest.raises(UserError, match=r"^Ray did not start; try again .* \(The current node timed out"):
        run(tiny(), results=tmp_path, workers=2, console=Console(file=io.StringIO()))
    assert logging.getLogger("ray").level == level
    assert list((tmp_path / "tiny").glob("claims/*")) == []
