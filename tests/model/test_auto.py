"""`import glue_bench` is light, and transformers' Auto classes know it whichever is imported first."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from forked import Forked
from tiny_models import encoder_config, random_model, tokens

from glue_bench.model.transformers_api import EncoderModel

CODE = """
import sys
{first}
from transformers import AutoModel
import torch
model = AutoModel.from_pretrained(sys.argv[1]).eval()
print(type(model).__module__, type(model).__name__)
torch.save(model(torch.load(sys.argv[2])).pooler_output.detach(), sys.argv[3])
"""
ALONE = """
import glue_bench
heavy = {"torch", "transformers", "accelerate", "datasets", "evaluate", "pandas"} & set(sys.modules)
assert not heavy, heavy
"""
AFTER_TRANSFORMERS = """
import transformers
import transformers.models.auto.modeling_auto as auto

for mapping in (transformers.CONFIG_MAPPING, auto.MODEL_MAPPING):
    mapping._extra_content.clear()
for name in [name for name in sys.modules if name.startswith("glue_bench")]:
    del sys.modules[name]
import glue_bench
"""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """A checkpoint of ours, tokens, and where their pooled output is to be saved."""
    random_model(EncoderModel, encoder_config("untied")).save_pretrained(tmp_path)
    torch.save(tokens(), tmp_path / "tokens.pt")
    return [str(tmp_path), str(tmp_path / "tokens.pt"), str(tmp_path / "pooled.pt")]


def assert_it_is_ours(said: str, files: list[str]) -> None:
    assert said.split() == ["glue_bench.model.transformers_api", "EncoderModel"]
    with torch.no_grad():
        expected = random_model(EncoderModel, encoder_config("untied"))(tokens()).pooler_output
    torch.testing.assert_close(torch.load(files[2]), expected)


def test_auto_model_loads_our_checkpoint_where_glue_bench_is_imported_first(files: list[str]) -> None:
    """In a new interpreter; also, glue_bench alone imports nothing heavy."""
    code = CODE.format(first=ALONE)
    done = subprocess.run([sys.executable, "-c", code, *files], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert_it_is_ours(done.stdout, files)


def test_auto_model_loads_our_checkpoint_where_transformers_is_imported_first(files: list[str]) -> None:
    """In a process that has transformers, and has forgotten glue_bench."""
    process = Forked(CODE.format(first=AFTER_TRANSFORMERS), *files)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert_it_is_ours(out, files)
