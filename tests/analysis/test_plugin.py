"""An experiment whose arms are variants of a plugin: `analyse` says which file it needs."""

import shutil

import pytest
from helpers import tiny_runs

from glue_bench import analyse, load_plugins, run
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
        UserError, match=r"arm 'mine' of '.*': .* its file: --plugin .*/my_variant\.py"
    ):
        analyse(folder, sequences=8)


def test_without_the_kept_text_of_the_plugin_analyse_names_the_file_as_the_plan_does(folder):
    shutil.rmtree(folder / "plugins")
    with pytest.raises(UserError, match=r"its file: --plugin my_variant\.py"):
        analyse(folder, sequences=8)


def test_analyse_refuses_a_plugin_whose_content_is_not_that_of_the_plan(folder, tmp_path):
    edited = tmp_path / "my_variant.py"
    edited.write_text(edited.read_text() + "\n# edited\n")
    load_plugins(edited)
    with pytest.raises(UserError) as refused:
        analyse(folder, sequences=8)
    (kept,) = folder.glob("plugins/*/my_variant.py")
    assert "and the file that was loaded has other content; give the file as it was" in str(
        refused.value
    )
    assert str(refused.value).endswith(f": --plugin {kept}")


def test_analyse_takes_the_plugin_that_the_experiment_has_kept(folder):
    (kept,) = folder.glob("plugins/*/my_variant.py")
    load_plugins(kept)
    assert list(analyse(folder, sequences=8, only="dimensions").subjects["variant"]) == ["mine"]


def test_a_plan_tells_the_name_of_a_plugin_and_not_where_it_lies(folder, tmp_path):
    plan = (folder / "plan.json").read_text()
    assert "./my_variant.py" in plan
    assert str(tmp_path) not in plan
