"""An experiment whose arms are variants of a plugin: `analyse` finds the file, or names it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import tiny_runs

from glue_bench import analyse, load_plugins, run
from glue_bench.errors import UserError


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A folder with a plugin, and the results of an arm of it in `runs/tiny`."""
    place = tmp_path_factory.mktemp("finished")
    plugin = place / "my_variant.py"
    plugin.write_text(tiny_runs.PLUGIN)
    values = tiny_runs.experiment(arms=["mine"], plugins=[str(plugin)])
    run(values, results=place / "runs")
    tiny_runs.forget_plugins()
    return place


@pytest.fixture
def folder(finished, tmp_path) -> Iterator[Path]:
    """A copy of the results; the plugin, which lies two folders above them, is not loaded."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    yield tmp_path / "runs" / "tiny"
    tiny_runs.forget_plugins()


def analysed_variants(folder: Path) -> list[str]:
    """Return the variants of the encoders that are measured of an experiment."""
    return list(analyse(folder, sequences=8, only="dimensions").subjects["variant"])


@pytest.mark.parametrize("place", [".", "variants"])
def test_analyse_finds_the_users_own_file_by_its_content(folder, tmp_path, monkeypatch, place):
    (tmp_path / place).mkdir(exist_ok=True)
    (tmp_path / "my_variant.py").replace(tmp_path / place / "my_variant.py")
    monkeypatch.chdir(tmp_path)
    assert analysed_variants(folder) == ["mine"]


def test_analyse_runs_no_file_of_a_folder_of_results(folder, monkeypatch):
    (kept,) = folder.glob("plugins/*/my_variant.py")
    for place in (folder, folder / "plugins", kept.parent):
        monkeypatch.chdir(place)
        with pytest.raises(UserError, match=r"there is no my_variant\.py in"):
            analyse(folder, sequences=8)


def test_analyse_runs_no_file_of_results_that_a_link_leads_to(folder, tmp_path, monkeypatch):
    (kept,) = folder.glob("plugins/*/my_variant.py")
    (tmp_path / "my_variant.py").unlink()
    (tmp_path / "my_variant.py").symlink_to(kept)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"there is no my_variant\.py in"):
        analyse(folder, sequences=8)


def test_analyse_says_that_the_users_file_has_changed_since(folder, tmp_path, monkeypatch):
    edited = tmp_path / "my_variant.py"
    edited.write_text(edited.read_text() + "\n# edited\n")
    (kept,) = folder.glob("plugins/*/my_variant.py")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as refused:
        analyse(folder, sequences=8)
    message = str(refused.value)
    assert "and the file my_variant.py has other content; read the text" in message
    assert message.endswith(f": --plugin {kept}")


def test_without_the_kept_text_analyse_names_the_file_as_the_plan_does(
    folder, tmp_path, monkeypatch
):
    shutil.rmtree(folder / "plugins")
    (tmp_path / "my_variant.py").unlink()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"the file as it was: --plugin my_variant\.py"):
        analyse(folder, sequences=8)


def test_analyse_refuses_a_plugin_with_other_content_than_the_plans(folder, tmp_path):
    edited = tmp_path / "my_variant.py"
    edited.write_text(edited.read_text() + "\n# edited\n")
    load_plugins(edited)
    with pytest.raises(UserError) as refused:
        analyse(folder, sequences=8)
    message = str(refused.value)
    (kept,) = folder.glob("plugins/*/my_variant.py")
    assert "and the file that was loaded has other content; read the text" in message
    assert message.endswith(f": --plugin {kept}")


def test_analyse_takes_the_plugin_that_the_experiment_has_kept(folder):
    (kept,) = folder.glob("plugins/*/my_variant.py")
    load_plugins(kept)
    assert analysed_variants(folder) == ["mine"]


def test_a_plan_tells_the_name_of_a_plugin_and_not_where_it_lies(finished):
    plan = (finished / "runs" / "tiny" / "plan.json").read_text()
    assert "./my_variant.py" in plan
    assert str(finished) not in plan
