"""Checkpoints: where they lie, in which forms their weights are read, and what is refused."""

import errno
import os
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import huggingface_hub
import pytest
import torch
import transformers
from helpers.hubs import slow_hub
from helpers.tiny_models import (
    edit_settings,
    edit_weights,
    encoder,
    encoder_config,
    max_error,
    pad,
    random_model,
    saved,
    segments,
    states,
    tokens,
)
from huggingface_hub.errors import (
    HFValidationError,
    HTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from safetensors.torch import load_file
from torch import Tensor

from glue_bench.errors import DiskError, UserError
from glue_bench.model.checkpoints import read_checkpoint
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.model.locate import locate
from glue_bench.model.start import Start

Change = Callable[[Path], Any]


def test_the_pooler_is_berts_and_one_that_nothing_trained_is_left_out(tmp_path):
    bert, folder = saved(tmp_path / "bert", transformers.BertForSequenceClassification, "bert")
    start = read_checkpoint(folder)
    ids, mask = pad(tokens(), [11, 7, 2], 0)
    with torch.no_grad():
        expected = bert.bert(ids, mask, segments(ids)).pooler_output
        pooled = encoder(start.config, start.weights)(ids, mask, segments(ids)).pooler_output
    torch.testing.assert_close(pooled, expected, atol=1e-5, rtol=0)
    _, folder = saved(tmp_path / "roberta", transformers.RobertaModel, "roberta")
    weights = read_checkpoint(folder).weights
    assert not any(name.startswith("pooler.") for name in weights)


def test_a_start_that_lacks_a_weight_becomes_no_classifier():
    model = random_model(EncoderModel, encoder_config("add"))
    weights = dict(model.state_dict())
    del weights["norm.weight"]
    start = Start(model.config, weights, "pretrained", name="one")
    with pytest.raises(
        UserError, match=r"^checkpoint 'one' lacks 1 weights of its encoder, such as norm\.weight$"
    ):
        start.classifier(("yes", "no"), seed=1)


def name_norms_as_tensorflow_did(folder: Path) -> None:
    """Rename the weights of LayerNorm to gamma and beta, as old checkpoints have them."""

    def rename(weights: dict[str, Tensor]) -> None:
        for name in [*weights]:
            new = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
                "LayerNorm.bias", "LayerNorm.beta"
            )
            weights[new] = weights.pop(name)

    edit_weights(folder, rename)


def convert_to_torch_format(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


@pytest.mark.parametrize(
    "change_form", [name_norms_as_tensorflow_did, convert_to_torch_format, None]
)
def test_weights_are_read_in_every_form(change_form, tmp_path):
    # The third form is that of several files.
    max_shard_size = "10GB" if change_form else "10KB"
    saved(tmp_path, transformers.BertForMaskedLM, "bert", max_shard_size=max_shard_size)
    if change_form:
        change_form(tmp_path)
    else:
        assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    # The checkpoint was not refused, so the encoder computes the same as transformers.
    assert "head_norm.weight" in read_checkpoint(str(tmp_path)).head


@pytest.mark.parametrize("kind", [EncoderModel, EncoderForMaskedLM])
def test_our_own_checkpoint_is_read_back(kind, tmp_path):
    model = random_model(kind, encoder_config("untied", origin="adapted"))
    model.save_pretrained(tmp_path)
    checkpoint = read_checkpoint(str(tmp_path))
    assert checkpoint.origin == "adapted"
    assert bool(checkpoint.head) == (kind is EncoderForMaskedLM)
    loaded = encoder(checkpoint.config, checkpoint.weights)
    loaded_states = states(loaded, tokens())
    expected = states(model.base_model, tokens())
    assert max_error(loaded_states, expected) == 0


def changed_settings(**changes: Any) -> Change:
    """Return a function that changes settings in the config.json of a folder."""
    return lambda folder: edit_settings(folder, **changes)


def changed_weights(change: Callable[[dict[str, Tensor]], Any]) -> Change:
    """Return a function that changes the weights in a folder."""
    return lambda folder: edit_weights(folder, change)


def cut_weights_short(folder: Path) -> None:
    os.truncate(folder / "model.safetensors", 9000)


def replaced_file(name: str, content: Any) -> Change:
    """Return a function that replaces a file of a folder, or removes it if `content` is None.

    If the file is not config.json, model.safetensors is removed, so that the file is read instead.
    """

    def change(folder: Path) -> None:
        if name != "config.json":
            (folder / "model.safetensors").unlink()
        if name.endswith(".bin"):
            torch.save(content, folder / name)
        elif content is None:
            (folder / name).unlink(missing_ok=True)
        else:
            (folder / name).write_bytes(content)

    return change


INDEX, BIN = "model.safetensors.index.json", "pytorch_model.bin"
KEY = "encoder.layer.0.attention.self.key.weight"
QUERY = KEY.replace("key", "query")
REFUSED: dict[str, tuple[Change, str]] = {
    "no config": (replaced_file("config.json", None), r"has no config\.json"),
    "no JSON": (
        replaced_file("config.json", b"{'model_type': 'bert'}"),
        r"config\.json' is not valid JSON",
    ),
    "a list": (replaced_file("config.json", b"[]"), "is not valid JSON .it is no object"),
    "width": (changed_settings(hidden_size="wide"), "config.json does not fit"),
    "family": (
        changed_settings(model_type="gpt2"),
        "model_type 'gpt2'; only bert, .*, glue_bench can become",
    ),
    "activation": (changed_settings(hidden_act="gelou"), "its activation 'gelou' is not known"),
    "half a pooler": (
        changed_weights(lambda weights: weights.pop("pooler.dense.bias")),
        r"lacks 1 weights .* pooler\.dense\.bias",
    ),
    "a weight": (
        changed_weights(lambda weights: weights.pop("embeddings.LayerNorm.bias")),
        "lacks 1 weights .*, such as norm.bias",
    ),
    "a query": (
        changed_weights(lambda weights: weights.pop(QUERY)),
        r"lacks 1 weights .* blocks\.0\.att",
    ),
    "a key": (
        changed_weights(lambda weights: weights.update({KEY: torch.zeros(24, 7)})),
        r"lacks 1 weights .*qkv\.weight",
    ),
    "more blocks": (
        changed_settings(num_hidden_layers=3),
        r"lacks 12 weights of its encoder, such as blocks\.2",
    ),
    "more positions": (
        changed_settings(max_position_embeddings=99),
        r"has shape \(.*\), its settings say \(.*99.*\)",
    ),
    "no weights": (
        replaced_file("model.safetensors", None),
        r"has no weights; expected one of model\.safetensors",
    ),
    "cut short": (
        cut_weights_short,
        r"cannot read weights from '.*model\.safetensors'.*may be cut short",
    ),
    "an index of lists": (
        replaced_file(INDEX, b'{"weight_map": {"a": []}}'),
        "has no weight_map of names of files",
    ),
    "a shard": (
        replaced_file(INDEX, b'{"weight_map": {"a": "model-1-of-2.safetensors"}}'),
        "cannot read weights .*model-1-of",
    ),
    "code": (replaced_file(BIN, {"weights": Path("a call, not a tensor")}), "cannot read weights"),
    "no tensors": (replaced_file(BIN, [1]), "no tensors by their names"),
    "a number": (replaced_file(BIN, {"a": 1}), "its a is no plain tensor"),
    "larger than stored": (
        replaced_file(BIN, {"a": torch.zeros(1).expand(10**12)}),
        "its a is larger than what is stored",
    ),
    "our head's activation": (changed_settings(head_act="prelu"), "has weights of its own"),
    "our head's type": (changed_settings(head_act=3), "must be a text"),
    "our decoder": (
        changed_settings(tie_word_embeddings=False),
        "tie_word_embeddings is False; it must be true",
    ),
    "our heads": (
        changed_settings(num_attention_heads=7),
        "it must be a multiple of num_attention_heads 7",
    ),
}
for count in (0, 10**9, 2.5, None):
    change = changed_settings(num_hidden_layers=count)
    REFUSED[f"our {count} blocks"] = (change, "whole number|expected int")


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_refused_in_one_line(case, tmp_path):
    if case.startswith("our "):
        random_model(EncoderForMaskedLM, encoder_config("add")).save_pretrained(tmp_path)
    else:
        saved(tmp_path, transformers.BertModel, "bert")
    change, message = REFUSED[case]
    change(tmp_path)
    with pytest.raises(UserError, match=message) as refused:
        read_checkpoint(str(tmp_path))
    assert "\n" not in str(refused.value)


SHARDS = [
    "pytorch_model-00001-of-00002.bin",
    "pytorch_model-00002-of-00002.bin",
    "pytorch_model.bin.index.json",
]
INDEXED = ["model-1.safetensors", "model.safetensors.index.json"]


@pytest.mark.parametrize(
    ("fetched", "left_out"),
    [(SHARDS, []), (["model.safetensors"], SHARDS[:2]), (INDEXED, ["pytorch_model.bin"])],
)
def test_all_weights_of_one_form_are_fetched_from_the_hub(fetched, left_out, tmp_path, monkeypatch):
    def download(_: str, *, allow_patterns: list[str], **options: Any) -> str:  # noqa: ARG001
        for name in [*fetched, *left_out, "tf_model.h5"]:
            if any(fnmatch(name, pattern) for pattern in allow_patterns):
                (tmp_path / name).touch()
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    locate("org/model")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(fetched)


@pytest.mark.parametrize("revision", [None, "main", "a" * 40])
def test_a_cached_snapshot_is_found_offline(tmp_path, monkeypatch, revision):
    """conftest has switched the hub client to its offline mode."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--org--model"
    saved(repository / "snapshots" / ("a" * 40), transformers.BertModel, "bert")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a" * 40)
    assert (
        locate("org/model", revision).resolve() == (repository / "snapshots" / ("a" * 40)).resolve()
    )
    with pytest.raises(
        UserError, match="no folder 'no-such-org/model' here, and the hub cannot be reached"
    ):
        locate("no-such-org/model", revision)


HUB: dict[str, tuple[Exception, str]] = {
    "no connection": (
        ConnectionError("no route\nto it"),
        r"\(ConnectionError: no route.*\); give the folder",
    ),
    "proxy": (HTTPError("403 Forbidden"), "the hub cannot be reached .*downloaded copy"),
    "no repository": (
        RepositoryNotFoundError("404", response=Mock()),
        "no such checkpoint 'org/model'",
    ),
    "no name": (
        HFValidationError("repo id must not end with '.git'"),
        "no such checkpoint 'org/model'",
    ),
    "no revision": (
        RevisionNotFoundError("404", response=Mock()),
        "'org/model' has no revision 'v9'",
    ),
    "full disk": (
        OSError(errno.ENOSPC, "No space left"),
        "cannot keep 'org/model' of the hub: .*; make room",
    ),
}


@pytest.mark.parametrize("case", HUB)
def test_what_the_hub_does_not_give_is_one_line(case, monkeypatch):
    error, message = HUB[case]
    monkeypatch.setattr(huggingface_hub, "snapshot_download", Mock(side_effect=error))
    kind = DiskError if case == "full disk" else UserError
    with slow_hub(0, monkeypatch), pytest.raises(kind, match=message):
        locate("org/model", "v9")


@pytest.mark.parametrize("weights", [True, False])
def test_the_file_of_an_experiment_is_no_checkpoint(weights, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine")
    with pytest.raises(
        UserError, match=r"mine\.yaml' is no checkpoint.*; glue-bench run .*runs it"
    ):
        locate(str(path), weights=weights)


def test_a_folder_of_results_folders_is_no_checkpoint(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "plan.json").touch()
    with pytest.raises(UserError, match=r"holds folders of results, such as '.*/mine', and no che"):
        locate(str(tmp_path))


def test_a_file_of_another_kind_is_no_tupe_checkpoint(tmp_path):
    path = tmp_path / "notes.pt"
    path.write_text("no weights at all")
    with pytest.raises(UserError, match=r"model: it is damaged, or another kind of file$"):
        read_checkpoint(str(path))


@pytest.mark.parametrize(
    "name", ["./nowhere", "/nowhere/at/all", "~/nowhere-at-all", "runs/arms/untied", "my.pt"]
)
def test_a_missing_checkpoint_is_refused(name):
    with pytest.raises(UserError, match=rf"no checkpoint (folder|file) '{name}'"):
        locate(name)


@pytest.mark.parametrize("place", [".", "https://example.org/bert"])
def test_a_revision_of_what_is_not_on_the_hub_is_refused(place):
    message = f"revision 'v2' of '{place}', which is no hub id: leave the revision out"
    with pytest.raises(UserError, match=message):
        locate(place, "v2")
