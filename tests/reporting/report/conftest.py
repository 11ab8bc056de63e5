"""One experiment whose report several modules look at."""

import pytest
from reported import fill
from stored import Bench, bench, new_bench

from glue_bench.reporting.report.build import build_report
from glue_bench.reporting.report.page import render_report

__all__ = ["bench", "new_bench"]


@pytest.fixture(scope="session")
def told(tmp_path_factory):
    return fill(Bench(tmp_path_factory.mktemp("told") / "toy"), source="tsv")


@pytest.fixture(scope="session")
def made(told):
    return build_report(told)


@pytest.fixture(scope="session")
def text(made):
    return render_report(made)
