"""What no native arm can compute is refused before the run, by a line that says the cause and a
remedy.
"""

import inspect
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from helpers.every_family import CLASSES, TAKE_SEGMENTS, random_classifier
from helpers.tiny_models import edit_settings, trained_tokenizer

from glue_bench.config import load_experiment
from glue_bench.data.demo import generate
from glue_bench.errors import UserError
from glue_bench.model.native import COUNT_ENDS, read_native
from glue_bench.sweep.plan import make_plan
from glue_bench.training.inputs import Inputs
from glue_bench.training.tokenizers import BERT_TOKENS, load_tokenizer

pytestmark = pytest.mark.usefixtures("small_demo")
WITH_OTHER_TABLES = ("mpnet", "esm", "opt", "biogpt", "distilbert", "bart", "mvp")
READ_THEIR_NEIGHBOURS = {
    "fnet": "it has no mask",
    "mobilebert": "its last token reads the embedding beside it, which may be padding's",
    "nystromformer": "it approximates attention over whole batches",
    "yoso": "it approximates attention by random hashes",
}
ENCODER_DECODERS = ("bart", "bigbird_pegasus", "mbart", "mt5", "mvp", "plbart", "t5", "umt5")


@pytest.fixture(scope="module")
def texts():
    return tuple(generate("rte")["train"]["text_a"])


def save_checkpoint(folder: Path, family: str, texts: tuple[str, ...], **tokens: str) -> Path:
    """Save a family's tiny model, with a tokenizer that has these special tokens, too."""
    random_classifier(family).base_model.save_pretrained(folder)
    return save_tokenizer(folder, texts, BERT_TOKENS | tokens)


def save_tokenizer(folder: Path, texts: tuple[str, ...], special: dict[str, str]) -> Path:
    """Save a tokenizer with these special tokens. It ends texts with [SEP]."""
    trained = trained_tokenizer(texts, 250).backend_tokenizer
    transformers.PreTrainedTokenizerFast(tokenizer_object=trained, **special).save_pretrained(
        folder
    )
    return folder


@pytest.fixture
def plan_of(tiny):
    """Return a function that plans an experiment with one native arm."""

    def of(folder, **changes):
        arms = [{"variant": "native", "checkpoint": str(folder)}]
        return make_plan(
            Inputs(load_experiment(tiny(arms=arms, checkpoint=None, **changes)), Path("none"))
        )

    return of


@pytest.mark.parametrize("family", [*TAKE_SEGMENTS, *WITH_OTHER_TABLES])
def test_a_text_of_as_many_tokens_as_an_arm_admits_is_computed(family, texts, tmp_path):
    folder = save_checkpoint(tmp_path, family, texts)
    start = read_native(str(folder), None, load_tokenizer(str(folder)))
    ids = torch.full((1, start.positions or 64), 7)
    ids[0, -1] = 3  # the end token of encoder-decoders
    model = start.classifier(("yes", "no"), seed=1).eval()
    with torch.no_grad():
        assert model(ids, None, torch.zeros_like(ids)).logits.isfinite().all()


def test_roberta_counts_positions_from_its_padding_token(texts, tmp_path):
    folder = save_checkpoint(tmp_path, "roberta", texts)
    assert read_native(str(folder), None, load_tokenizer(str(folder))).positions == 63


def test_the_remedy_for_a_long_text_is_one_that_works(texts, tmp_path, plan_of):
    folder = save_checkpoint(tmp_path, "roberta", texts)
    line = "exceeds the 63 positions of .*; give `--max-length 63`, or set finetuning.max_length in"
    with pytest.raises(UserError, match=line):
        plan_of(folder, tasks=["rte"], finetuning={"max_length": 64})
    assert plan_of(folder, tasks=["rte"], finetuning={"max_length": 63}).cells


@pytest.mark.parametrize("family", ENCODER_DECODERS)
def test_a_family_counts_end_tokens_if_it_is_known_to(family):
    model = random_classifier(family).eval()
    even = torch.tensor([[5, 6, 3], [7, 8, 3]])
    assert len(model(input_ids=even).logits) == 2
    with pytest.raises(ValueError, match="same number of <eos> tokens"):
        model(input_ids=torch.tensor([[5, 3, 3], [7, 8, 3]]))


def source_of(family: str) -> str:
    """Return the source code of a family's classifier."""
    return inspect.getsource(getattr(transformers, CLASSES[family]))


def test_every_encoder_decoder_of_transformers_was_tried():
    families = {family for family in CLASSES if "same number of <eos> tokens" in source_of(family)}
    assert families == {*ENCODER_DECODERS} == COUNT_ENDS


@pytest.fixture
def glue_with(tmp_path):
    """Return a function that writes a small RTE, with a given text in one validation row."""

    def write(text):
        folder = tmp_path / "glue" / "RTE"
        folder.mkdir(parents=True)
        for split, name in (("train", "train"), ("validation", "dev")):
            frame = generate("rte")[split].head(12)
            columns = {
                "sentence1": frame["text_a"],
                "sentence2": frame["text_b"],
                "label": "entailment",
            }
            rows = pd.DataFrame(columns).reset_index(drop=True)
            if split == "validation":
                rows.loc[4, "sentence2"] = text
            rows.to_csv(folder / f"{name}.tsv", sep="\t", index_label="index")
        return str(folder.parent)

    return write


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_a_text_that_spells_the_end_token_is_named_before_the_run(
    family, texts, tmp_path, plan_of, glue_with
):
    folder = save_checkpoint(tmp_path / "model", family, texts, eos_token="[SEP]")
    line = r"arm 'native': row 5 of the validation split of task 'rte' has '\[SEP\]' in its text"
    with pytest.raises(UserError, match=line):
        plan_of(folder, tasks=["rte"], data=glue_with("The end [SEP] comes early ."))


def test_a_text_that_spells_the_end_token_is_no_matter_to_other_families(
    texts, tmp_path, plan_of, glue_with
):
    folder = save_checkpoint(tmp_path / "model", "bert", texts, eos_token="[SEP]")
    assert plan_of(folder, tasks=["rte"], data=glue_with("The end [SEP] comes early .")).cells


def test_an_error_says_that_code_of_a_checkpoint_never_runs(texts, tmp_path, plan_of):
    folder = save_checkpoint(tmp_path, "bert", texts)
    edit_settings(
        folder,
        model_type="neobert",
        auto_map={"AutoModelForSequenceClassification": "model.NeoBERT"},
    )
    cause = "transformers .* has no classifier of model_type 'neobert' by itself"
    line = f"comes with code of its own, and {cause}; code"
    with pytest.raises(UserError, match=line):
        plan_of(folder, tasks=["rte"])


def test_an_error_names_a_kind_of_model_that_classifies_no_texts(texts, tmp_path, plan_of):
    folder = save_checkpoint(tmp_path, "bert", texts)
    edit_settings(folder, model_type="vit")
    with pytest.raises(
        UserError, match=r"model_type 'vit', and transformers .* no classifier of te"
    ):
        plan_of(folder, tasks=["rte"])


def test_an_error_says_that_code_of_a_tokenizer_never_runs(texts, tmp_path):
    folder = save_checkpoint(tmp_path, "bert", texts)
    (folder / "tokenizer.json").unlink()
    settings = {"tokenizer_class": "Mine", "auto_map": {"AutoTokenizer": ["mine.Mine", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(
        UserError, match="has code of its own, which is never run; name one with `tokenizer`"
    ):
        load_tokenizer(str(folder))


def test_a_head_for_another_number_of_labels_is_left(texts, tmp_path, plan_of):
    folder = save_checkpoint(tmp_path, "bert", texts)
    random_classifier("bert", num_labels=3).save_pretrained(folder)
    edit_settings(folder, id2label={"0": "no", "1": "yes"}, label2id={"no": 0, "yes": 1})
    assert plan_of(folder, tasks=["rte"]).cells


def test_weights_of_other_shapes_than_the_settings_say_are_named(texts, tmp_path, plan_of):
    folder = save_checkpoint(tmp_path, "bert", texts)
    edit_settings(folder, vocab_size=255)
    shapes = r"has shape \(260, 16\), its settings say \(255, 16\)"
    line = rf"word_embeddings\.weight {shapes}; config\.json and weights"
    with pytest.raises(UserError, match=line):
        plan_of(folder, tasks=["rte"])


@pytest.mark.parametrize("changes", [{"vocab_size": 40}, {"model_type": "dpr"}])
def test_an_error_names_a_cut_file_only_if_a_file_may_be_cut(changes, texts, tmp_path, plan_of):
    folder = save_checkpoint(tmp_path, "bert", texts)
    edit_settings(folder, **changes)
    with pytest.raises(UserError) as caught:
        plan_of(folder, tasks=["rte"])
    assert "cut short" not in str(caught.value)


@pytest.mark.parametrize("form", ["model.safetensors", "pytorch_model.bin"])
def test_an_error_says_that_a_file_is_cut_short(form, texts, tmp_path, plan_of):
    folder = save_checkpoint(tmp_path, "bert", texts)
    path = folder / form
    if form == "pytorch_model.bin":
        torch.save(random_classifier("bert").base_model.state_dict(), path)
        (folder / "model.safetensors").unlink()
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(UserError, match="a file may be cut short, copy it again"):
        plan_of(folder, tasks=["rte"])


def test_an_adapter_is_to_be_merged(texts, tmp_path, plan_of):
    folder = save_checkpoint(tmp_path, "bert", texts)
    for name in ("config.json", "model.safetensors"):
        (folder / name).unlink()
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(
        UserError, match=r"is an adapter \(adapter_config.json\).*; merge it into its base first"
    ):
        plan_of(folder, tasks=["rte"])


def test_of_a_trainers_folder_its_last_checkpoint_is_named(texts, tmp_path, plan_of):
    model = save_checkpoint(tmp_path / "model", "bert", texts)
    for steps in (10, 5):
        shutil.copytree(model, tmp_path / "output" / f"checkpoint-{steps}")
    with pytest.raises(UserError, match=r"give one of them, such as '.*output/checkpoint-10'$"):
        plan_of(tmp_path / "output", tasks=["rte"])


@pytest.mark.parametrize("family", ["gpt2", "llama", "openai-gpt"])
def test_a_tokenizer_without_padding_pads_with_its_end_token(family, texts, tmp_path, plan_of):
    save_checkpoint(tmp_path, family, texts)
    save_tokenizer(tmp_path, texts, {"unk_token": "[UNK]", "eos_token": "[SEP]"})
    edit_settings(tmp_path, pad_token_id=None)
    assert plan_of(tmp_path, tasks=["rte"]).cells


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(
    "family", [*TAKE_SEGMENTS, *WITH_OTHER_TABLES, "bloom", "llama", "modernbert"]
)
@torch.no_grad()
def test_a_text_has_the_logits_that_it_has_alone_whatever_side_its_tokenizer_names(
    family, side, texts, tmp_path
):
    if family in READ_THEIR_NEIGHBOURS:
        pytest.skip(READ_THEIR_NEIGHBOURS[family])
    folder = save_checkpoint(tmp_path, family, texts)
    tokenizer = load_tokenizer(str(folder))
    tokenizer.padding_side = side
    start = read_native(str(folder), None, tokenizer)
    model = start.classifier(("yes", "no"), seed=1).eval()
    alone = torch.tensor([[7, 8, 9, 10, 3]])
    padded = torch.tensor([[7, 8, 9, 10, 3, 0, 0, 0]])
    mask = padded != 0
    expected = model(alone, None, torch.zeros_like(alone)).logits
    actual = model(padded, mask, torch.zeros_like(padded)).logits
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-4)


@torch.no_grad()
def test_what_pads_changes_no_logits(texts, tmp_path):
    folder = save_checkpoint(tmp_path, "gpt2", texts)
    save_tokenizer(folder, texts, {"unk_token": "[UNK]", "eos_token": "[SEP]"})
    edit_settings(folder, pad_token_id=None)
    tokenizer = load_tokenizer(str(folder))
    model = read_native(str(folder), None, tokenizer).classifier(("yes", "no"), seed=1).eval()
    alone = torch.tensor([[7, 8, 9]])
    padded = torch.tensor([[7, 8, 9, tokenizer.pad_token_id, tokenizer.pad_token_id]])
    mask = torch.tensor([[True, True, True, False, False]])
    expected = model(alone, None, torch.zeros_like(alone)).logits
    actual = model(padded, mask, torch.zeros_like(padded)).logits
    np.testing.assert_allclose(actual, expected, atol=1e-6)
