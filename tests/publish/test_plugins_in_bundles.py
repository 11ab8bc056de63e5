"""Bundles have the text of plugins: its digest is checked, and nothing runs it."""

import hashlib
import shutil
import zipfile
from pathlib import Path

import pytest
from helpers import tiny_runs
from transformers import AutoModelForSequenceClassification

import glue_bench
from glue_bench import card, export, verify
from glue_bench.errors import UserError
from glue_bench.publish.card_output import write_card

CODE = """
from pathlib import Path

from glue_bench.model.variants.additive import Add

Path("{marker}").touch()


class Mine(Add):
    name = "mine"
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """The results of an arm of a plugin that is no longer loaded."""
    place = tmp_path_factory.mktemp("finished")
    plugin = place / "my variant.py"
    plugin.write_text(CODE.format(marker=place / "was-run"))
    values = tiny_runs.experiment(
        arms=["mine"], tasks=["cola"], plugins=[str(plugin)], finetuning={"keep": "all"}
    )
    folder = tiny_runs.run(values, place / "runs")
    tiny_runs.forget_plugins()
    return folder


@pytest.fixture
def marker(finished) -> Path:
    """A file that the code of the plugin writes, and that is not there."""
    path = finished.parents[1] / "was-run"
    path.unlink(missing_ok=True)
    return path


@pytest.fixture
def folder(finished, tmp_path) -> Path:
    """A copy of the results."""
    return shutil.copytree(finished, tmp_path / "runs" / finished.name)


def faults(path):
    return [fault for verified in verify(path) for fault in verified.faults]


def plugins_check(path):
    """The check of plugins, from all checks of the last experiment in a bundle or a folder."""
    return next(check for check in verify(path)[-1].checks if check.name == "plugins")


def test_a_bundle_has_the_text_of_the_plugin_by_its_digest(folder, tmp_path, marker):
    export(folder, tmp_path / "x.zip")
    text = CODE.format(marker=marker).encode()
    place = f"{folder.name}/plugins/{hashlib.sha256(text).hexdigest()}/my_variant.py"
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        assert archive.read(place) == text
    assert faults(tmp_path / "x.zip") == []
    assert plugins_check(tmp_path / "x.zip").result == "1 have the digests of their folders"
    assert not marker.exists()


def test_a_changed_text_is_a_fault_and_a_missing_one_is_unknown(folder):
    (path,) = folder.glob("plugins/*/my_variant.py")
    path.write_text("x = 1\n")
    expected = [
        f"{path.relative_to(folder)}: it has another SHA-256 than its folder; delete it and run "
        "the experiment again"
    ]
    assert faults(folder) == expected
    path.unlink()
    assert faults(folder) == []
    assert plugins_check(folder).result == "0 have the digests of their folders, 1 unknown"


def test_a_card_has_the_plugin_and_loads_it(finished, tmp_path):
    model_card = card(finished)
    write_card(model_card, tmp_path / "out")
    copy = tmp_path / "out" / "my_variant.py"
    assert copy.read_bytes() == (finished.parents[1] / "my variant.py").read_bytes()
    assert 'load_plugins(hf_hub_download("REPOSITORY", "my_variant.py"))' in model_card.text
    glue_bench.load_plugins(str(copy))
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert model.config.variant == "mine"
    tiny_runs.forget_plugins()


def test_a_card_of_models_whose_plugin_is_gone_is_refused(folder):
    shutil.rmtree(folder / "plugins")
    with pytest.raises(
        UserError, match=r"has not kept the plugin of .*; put it back into plugins/"
    ):
        card(folder)
