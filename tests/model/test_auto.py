"""`import glue_bench` is light, and transformers' Auto classes know it whichever is imported first."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiny_models import encoder_config, random_model, tokens

from glue_bench.model.encoder import EncoderModel

CODE = """
import sys
import glue_bench
heavy = {"torch", "transformers", "accelerate", "datasets", "evaluate", "pandas"} & set(sys.modules)
assert not heavy, heavy

import torch
import transformers
import transformers.models.auto.modeling_auto as auto

def load():
    model = transformers.AutoModel.from_pretrained(sys.argv[1]).eval()
    print(type(model).__module__, type(model).__name__)
    return model(torch.load(sys.argv[2])).pooler_output.detach()

found = [load()]
# transformers is there, and glue_bench forgotten.
for mapping in (transformers.CONFIG_MAPPING, auto.MODEL_MAPPING):
    mapping._extra_content.clear()
for name in [name for name in sys.modules if name.startswith("glue_bench")]:
    del sys.modules[name]
try:
    load()
except ValueError:  # forgotten indeed
    import glue_bench
    found.append(load())
torch.save(found, sys.argv[3])
"""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """A checkpoint of ours, tokens, and where their pooled output is to be saved."""
    random_model(EncoderModel, encoder_config("untied")).save_pretrained(tmp_path)
    torch.save(tokens(), tmp_path / "tokens.pt")
    return [str(tmp_path), str(tmp_path / "tokens.pt"), str(tmp_path / "pooled.pt")]


def test_auto_model_loads_our_checkpoint_whichever_is_imported_first(files: list[str]) -> None:
    """In one new interpreter, because another takes seconds; also, glue_bench alone imports nothing heavy."""
    done = subprocess.run([sys.executable, "-c", CODE, *files], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["glue_bench.model.encoder", "EncoderModel"] * 2
    with torch.no_grad():
        expected = random_model(EncoderModel, encoder_config("untied"))(tokens()).pooler_output
    for found in torch.load(files[2]):
        torch.testing.assert_close(found, expected)
