"""The verbs that print what is known of an experiment, of data and of variants."""

import json

import pytest

from glue_bench.data.tasks import TASKS
from glue_bench.model.variants import VARIANTS

pytestmark = pytest.mark.usefixtures("small_demo")


def test_the_leaderboard_is_recomputed_in_every_format(glue_bench, finished, tmp_path):
    assert glue_bench("leaderboard", finished).out == (finished / "leaderboard.md").read_text()
    assert glue_bench("leaderboard", finished, "--format", "csv").out == (finished / "leaderboard.csv").read_text()
    document = json.loads(glue_bench("leaderboard", finished, "--format", "json").out)
    assert [row["arm"] for row in document["rows"]][:2] == ["add", "none"]
    file = tmp_path / "board.csv"
    assert glue_bench("leaderboard", finished, "-o", file) == (0, "", "")
    assert file.read_text() == (finished / "leaderboard.csv").read_text()
    assert glue_bench("leaderboard", finished, "--format", "latex", "-o", file) == (0, "", "")
    assert file.read_text() == glue_bench("leaderboard", finished, "--format", "latex").out
    assert "\\toprule" in file.read_text()
    assert glue_bench("leaderboard", finished, "--format", "html").out.startswith("<!doctype html>")


def test_a_report_is_written_beside_the_tables_and_where_one_asks(glue_bench, finished, tmp_path):
    assert glue_bench("report", finished).out == f"page: {finished / 'report.html'}\n"
    said = glue_bench("report", finished, "-o", tmp_path / "a.html", "--figures", tmp_path / "figures")
    assert said.out == f"page: {tmp_path / 'a.html'}\nfigures: {tmp_path / 'figures'}\n"
    assert (tmp_path / "a.html").read_bytes() == (finished / "report.html").read_bytes()


def test_a_damaged_record_is_named_and_the_rest_is_printed(glue_bench, finished):
    first, *others = sorted((finished / "cells").glob("*/record.json"))
    first.write_text("{")
    said = glue_bench("leaderboard", finished)
    assert said.status == 0
    assert f"cells/{first.parent.name}/record.json: damaged or edited" in said.out
    assert f"{len(others)} of {len(others) + 1} planned" in said.out


def test_a_protocol_can_be_tried(glue_bench, finished):
    assert "which is optimistic" in glue_bench("leaderboard", finished, "--protocol", "epoch=best").out


def test_variants_and_tasks_are_listed(glue_bench):
    variants, tasks = glue_bench("variants"), glue_bench("data")
    assert [line.split()[0] for line in variants.out.splitlines()[1:]] == list(VARIANTS)
    assert [line.split()[0] for line in tasks.out.splitlines()[1:]] == list(TASKS)
    assert all(variant.summary in variants.out for variant in VARIANTS.values())
    assert "matthews_correlation" in tasks.out
    assert "392702" in tasks.out


def test_variants_of_plugins_are_listed(glue_bench, write_plugin):
    said = glue_bench("variants", "--plugin", write_plugin())
    assert said.out.splitlines()[-1].split() == ["mine", "Mine", "my_variant.py"]


def test_data_shows_every_split(glue_bench):
    said = glue_bench("data", "demo")
    assert said.status == 0
    assert [line.split()[:3] for line in said.out.splitlines() if line.startswith("rte")] == [
        ["rte", "train", "48"],
        ["rte", "validation", "24"],
        ["rte", "test", "12"],
    ]
    assert said.out.splitlines()[-1].startswith("demo: cola, sst2")
