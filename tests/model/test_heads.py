"""As transformers models: every argument does what it does there, or raises, and the Auto classes know them."""

import subprocess
import sys

import pytest
import torch
from tiny_models import ARMS, encoder_config, pad, random_model, segments, tokens

from glue_bench.model.encoder import EncoderModel
from glue_bench.model.heads import EncoderForMaskedLM, classification_loss


@pytest.mark.parametrize("enters", ["input", "scores"])
@pytest.mark.parametrize(("variant", "options"), [arm for arm in ARMS if "segments" not in arm[1]])
def test_to_compute_only_what_the_pooler_reads_changes_nothing_that_it_reads(variant, options, enters):
    options = options | {"segments": enters}
    config = encoder_config(variant, variant_options=options, attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0)
    model = random_model(EncoderModel, config).double().train()
    ids, mask = pad(tokens(), [11, 7, 4], 0)
    kinds = segments(ids)
    results = []
    alone = model.pooler(model.hidden_states(ids, mask, kinds, last_rows=1)[-1])
    for pooled in (alone, model(ids, mask, kinds).pooler_output):
        model.zero_grad()
        pooled.square().sum().backward()
        gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        results.append((pooled.detach(), gradients))
    (first, mine), (second, theirs) = results
    torch.testing.assert_close(first, second)
    assert set(mine) == set(theirs)
    for name, gradient in mine.items():
        torch.testing.assert_close(gradient, theirs[name], rtol=1e-7, atol=1e-10, msg=name)


def test_the_masked_lm_head_at_some_places_predicts_what_it_does_at_all_and_its_loss_is_their_mean():
    model, ids = random_model(EncoderForMaskedLM, encoder_config()), tokens()
    places = torch.tensor([0, 5, 17])
    labels = torch.full_like(ids, -100)
    labels.view(-1)[places] = ids.view(-1)[places]
    whole, some = model(ids, labels=labels), model(ids, places=places).logits
    torch.testing.assert_close(some, whole.logits.flatten(0, 1)[places])
    torch.testing.assert_close(whole.loss, -some.log_softmax(-1)[range(3), ids.view(-1)[places]].mean())


def test_the_loss_of_one_output_is_the_mean_squared_error():
    logits, scores = torch.tensor([[1.0], [2.5]]), torch.tensor([0.0, 2.0])
    assert float(classification_loss(logits, scores)) == pytest.approx((1 + 0.25) / 2)


CODE = """
import sys
import torch
import transformers
import transformers.models.auto.modeling_auto as auto

def load():
    model = transformers.AutoModel.from_pretrained(sys.argv[1]).eval()
    print(type(model).__module__, type(model).__name__)
    return model(torch.load(sys.argv[2])).pooler_output.detach()

import glue_bench
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


def test_auto_model_loads_our_checkpoint_whichever_is_imported_first(tmp_path):
    """In one new interpreter, because another takes seconds."""
    model = random_model(EncoderModel, encoder_config("untied"))
    model.save_pretrained(tmp_path)
    torch.save(tokens(), tmp_path / "tokens.pt")
    files = [str(tmp_path), str(tmp_path / "tokens.pt"), str(tmp_path / "pooled.pt")]
    done = subprocess.run([sys.executable, "-c", CODE, *files], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["glue_bench.model.encoder", "EncoderModel"] * 2
    for found in torch.load(files[2]):
        torch.testing.assert_close(found, model(tokens()).pooler_output.detach())
