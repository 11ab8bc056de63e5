"""`import glue_bench` is light, and transformers' Auto classes know it whichever is imported first."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiny_models import encoder_config, random_model, tokens

from glue_bench.model.transformers_api import EncoderModel

CODE = """
import sys
{imports}
heavy = {{"torch", "transformers", "accelerate", "datasets", "evaluate", "pandas"}} & set(sys.modules)
assert not heavy or {heavy_allowed}, heavy
from transformers import AutoModel
import torch
model = AutoModel.from_pretrained(sys.argv[1]).eval()
print(type(model).__module__, type(model).__name__)
torch.save(model(torch.load(sys.argv[2])).pooler_output.detach(), sys.argv[3])
"""


@pytest.mark.parametrize(
    ("imports", "heavy_allowed"),
    [
        ("import glue_bench", False),
        ("import transformers, transformers.models.auto.modeling_auto\nimport glue_bench", True),
    ],
    ids=["glue_bench first", "transformers first"],
)
def test_auto_model_loads_our_checkpoint(imports: str, heavy_allowed: bool, tmp_path: Path) -> None:
    """In a new interpreter; the first case also shows that glue_bench alone imports nothing heavy."""
    model = random_model(EncoderModel, encoder_config("untied"))
    model.save_pretrained(tmp_path)
    torch.save(tokens(), tmp_path / "tokens.pt")
    code = CODE.format(imports=imports, heavy_allowed=heavy_allowed)
    files = [str(tmp_path), str(tmp_path / "tokens.pt"), str(tmp_path / "pooled.pt")]
    done = subprocess.run([sys.executable, "-c", code, *files], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["glue_bench.model.transformers_api", "EncoderModel"]
    with torch.no_grad():
        torch.testing.assert_close(torch.load(tmp_path / "pooled.pt"), model(tokens()).pooler_output)
