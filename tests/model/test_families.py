"""Whatever a config.json of another library sets is computed as transformers does, or refused in
one line.
"""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.tiny_models import edit_settings, edit_weights
from transformers import AutoConfig, AutoModelForMaskedLM, PreTrainedModel
from transformers.activations import ACT2CLS

from glue_bench.errors import UserError
from glue_bench.model.checkpoints import read_checkpoint
from glue_bench.model.families import FAMILIES
from glue_bench.testing import random_model

ROBERTA = ("roberta", "xlm-roberta", "camembert")
LIKE_BERT = ("bert", "electra", *ROBERTA)
EVERY = tuple(FAMILIES)
SUMMARY = {"type": "last", "use_proj": False, "activation": "relu", "last_dropout": 0.0}
SIZES = {"vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 3}
SIZES["max_position_embeddings"] = 16
ACTS = [act for act in ACT2CLS if act not in ("prelu", "xielu")]
# What a config.json may set: the families whose transformers have it, what must be read, and what
# is refused.
SETTINGS: dict[str, tuple[tuple[str, ...], list[Any], list[Any]]] = {
    "vocab_size": (EVERY, [50, 77], [0]),
    "hidden_size": (LIKE_BERT, [12, 24], [0, 25]),
    "dim": (("distilbert",), [12, 24], [0, 25]),
    "num_hidden_layers": (LIKE_BERT, [3], [0]),
    "n_layers": (("distilbert",), [3], [0]),
    "num_attention_heads": (LIKE_BERT, [1, 24], [0, 5]),
    "n_heads": (("distilbert",), [1, 24], [0, 5]),
    "intermediate_size": (LIKE_BERT, [7], [0]),
    "hidden_dim": (("distilbert",), [7], [0]),
    "embedding_size": (("electra",), [12, 24, 40], [0]),
    "hidden_act": (LIKE_BERT, ACTS, ["prelu", "xielu", "gelou"]),
    "activation": (("distilbert",), ACTS, ["prelu", "xielu", "gelou"]),
    "hidden_dropout_prob": (LIKE_BERT, [0.0, 0.5], [1.0, -0.1]),
    "attention_probs_dropout_prob": (LIKE_BERT, [0.0, 0.5], [1.0]),
    "classifier_dropout": (LIKE_BERT, [0.3], [1.0]),
    **{
        name: (("distilbert",), [0.3], [1.0])
        for name in ("dropout", "attention_dropout", "seq_classif_dropout")
    },
    "max_position_embeddings": (EVERY, [2 + 1, 16], [0]),
    "type_vocab_size": (LIKE_BERT, [1, 2, 3], [0, -1]),
    "initializer_range": (EVERY, [1.0], []),
    "layer_norm_eps": (LIKE_BERT, [1e-12, 1e-5, 0.3], []),
    "pad_token_id": (EVERY, [0, 1, 3], [-1, 50]),  # and None
    "tie_word_embeddings": (EVERY, [True], [False]),
    "is_decoder": (LIKE_BERT, [False], [True]),
    "add_cross_attention": (LIKE_BERT, [False], [True]),
    "position_embedding_type": (EVERY, ["absolute"], ["relative_key", "relative_key_query"]),
    "quantization_config": (EVERY, [], [{"quant_method": "bitsandbytes", "load_in_8bit": True}]),
    "chunk_size_feed_forward": (EVERY, [1, 4], []),
    "dtype": (EVERY, ["float16", "bfloat16"], []),
    # These settings change nothing in transformers' encoder either.
    **{name: (EVERY, [True], []) for name in ("is_encoder_decoder", "output_hidden_states")},
    "return_dict": (EVERY, [False], []),
    "use_cache": (LIKE_BERT, [False], []),
    "sinusoidal_pos_embds": (("distilbert",), [True], []),
    "qa_dropout": (("distilbert",), [0.4], []),
    **{name: (EVERY, [3], []) for name in ("bos_token_id", "eos_token_id")},
    **{f"summary_{name}": (("electra",), [value], []) for name, value in SUMMARY.items()},
}

LABELS = {"transformers_version", "architectures", "id2label", "label2id", "problem_type"}
"""The fields that do not concern the encoder."""
# Of these every family shows every value by default; of the others the first family that has it the
# last one.
TELLING = ("pad_token_id", "is_decoder")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_setting_of_the_family_is_among_them(family):
    """This test fails if transformers adds a setting."""
    fields = {field.name for field in dataclasses.fields(type(AutoConfig.for_model(family)))}
    assert fields - LABELS <= {
        name for name, (families, *_) in SETTINGS.items() if family in families
    }


def cases(*, read: bool) -> list[Any]:
    """(family, setting, value) of SETTINGS, and a padding of None, which RoBERTa does not take."""
    settings_of_cases = [
        (
            family,
            setting,
            value,
            setting in TELLING or (family == families[0] and value == values[-1]),
        )
        for setting, (families, *values_of_cases) in SETTINGS.items()
        for values in [values_of_cases[0 if read else 1]]
        for family in families
        for value in values
    ]

    settings_of_cases += [
        (family, "pad_token_id", None, True) for family in FAMILIES if (family in ROBERTA) != read
    ]

    return [
        pytest.param(
            *case, id=f"{case[0]}-{case[1]}={case[2]}", marks=() if quick else pytest.mark.slow
        )
        for *case, quick in settings_of_cases
    ]


def built(family: str, changes: dict[str, Any]) -> PreTrainedModel:
    """transformers' random model with these settings and a masked-LM head, in the precision that
    they say.
    """
    sizes = SIZES | {"hidden_dim" if family == "distilbert" else "intermediate_size": 40}
    config = AutoConfig.for_model(family, **sizes | changes)
    return random_model(AutoModelForMaskedLM.from_config, config).to(
        getattr(torch, changes.get("dtype", "float32"))
    )


@pytest.mark.parametrize(("family", "setting", "value"), cases(read=True))
def test_a_checkpoint_that_is_read_computes_the_same_as_transformers(
    family, setting, value, tmp_path
):
    """As `read_checkpoint` itself compares them, at every block and in the logits; what it refuses
    is below.
    """
    built(family, {setting: value}).save_pretrained(tmp_path)
    checkpoint = read_checkpoint(str(tmp_path))
    assert checkpoint.head
    if family in ROBERTA and setting == "pad_token_id":  # RoBERTa counts positions from this id
        assert checkpoint.config.max_position_embeddings == 15 - value


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of each family with the usual settings."""
    folders = {family: tmp_path_factory.mktemp(family) for family in FAMILIES}
    for family, folder in folders.items():
        built(family, {}).save_pretrained(folder)
    return folders


@pytest.mark.parametrize(("family", "setting", "value"), cases(read=False))
def test_what_is_not_read_is_refused_in_one_line(family, setting, value, plain, tmp_path):
    shutil.copytree(plain[family], tmp_path, dirs_exist_ok=True)
    edit_settings(tmp_path, **{setting: value})
    with pytest.raises(UserError, match=rf"^checkpoint '{tmp_path}'.*") as refused:
        read_checkpoint(str(tmp_path))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_decoder_that_differs_from_the_words_is_refused_and_the_encoder_alone_is_read(
    family, tmp_path
):
    model = built(family, {"tie_word_embeddings": False})
    model.save_pretrained(tmp_path)
    with pytest.raises(
        UserError,
        match=r"the masked-LM head does not compute .* Save its encoder alone, or use it as",
    ):
        read_checkpoint(str(tmp_path))
    model.base_model.save_pretrained(tmp_path)
    assert not read_checkpoint(str(tmp_path)).head


def test_a_checkpoint_that_computes_something_else_is_refused_with_its_block(plain, tmp_path):
    shutil.copytree(plain["bert"], tmp_path, dirs_exist_ok=True)
    edit_settings(tmp_path, is_decoder=True)
    cause = r"block 1 does not compute what transformers \S+ computes \(off by [\d.]+\)"
    remedy = r"Use it as a `native` arm\."
    with pytest.raises(UserError, match=rf"^checkpoint '{tmp_path}': {cause}\. {remedy}$"):
        read_checkpoint(str(tmp_path))


def test_a_checkpoint_with_nan_is_refused_as_damaged(plain, tmp_path):
    shutil.copytree(plain["bert"], tmp_path, dirs_exist_ok=True)
    edit_weights(tmp_path, lambda weights: [tensor.fill_(torch.nan) for tensor in weights.values()])
    with pytest.raises(UserError, match=r"hidden states are not finite; its weights are damaged$"):
        read_checkpoint(str(tmp_path))
