"""An experiment whose arms are variants of a plugin: `analyse` says which file it needs."""

import pytest
from helpers import tiny_runs

from glue_bench import analyse, run
from glue_bench.errors import UserError
from glue_bench.model.plugins import remove_plugins


@pytest.fixture
def folder(write_plugin, tmp_path):
    """The results of an arm of a plugin that is no longer loaded."""
    plugin = write_plugin()
    values = tiny_runs.experiment(arms=["mine"], plugins=[str(plugin)])
    summary = run(values, results=tmp_path / "runs")
    remove_plugins(["mine"])
    return summary.folder


def test_analyse_names_the_file_of_the_plugin_that_an_experiment_needs(folder):
    with pytest.raises(
        UserError, match=r"arm 'mine' of '.*': .* its file: --plugin my_variant\.py"
    ):
        analyse(folder, sequences=8)


def test_a_plan_tells_the_name_of_a_plugin_and_not_where_it_lies(folder, tmp_path):
    plan = (folder / "plan.json").read_text()
    assert "./my_variant.py" in plan
    assert str(tmp_path) not in plan
