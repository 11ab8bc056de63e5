"""What cannot be read is refused in words that say what to do."""

import errno
import json
import zipfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
import transformers
from huggingface_hub.errors import (
    GatedRepoError,
    HFValidationError,
    HTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from safetensors.torch import load_file, save_file
from tiny_models import encoder_config, random_model, saved
from torch import Tensor

from glue_bench.errors import DiskError, UserError
from glue_bench.model.checkpoints import masked_lm, read_checkpoint, read_config
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.model.locate import fingerprint, locate, read_weights
from glue_bench.training.tokenizers import load_tokenizer

httpx: Any = import_module(HTTPError.__module__)  # httpx or httpx2: whichever the hub client is built on


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A good BERT checkpoint, to be spoilt."""
    saved(tmp_path, transformers.BertModel, "bert")
    return tmp_path


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def change_weights(folder: Path, change: Callable[[dict[str, Tensor]], Any]) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors")


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "~/nowhere-at-all", "runs/arms/untied"])
def test_no_such_folder(name: str) -> None:
    with pytest.raises(UserError, match=r"no checkpoint folder '.*nowhere.*|no checkpoint folder 'runs/arms/untied'"):
        read_checkpoint(name)


def test_folder_without_config(folder: Path) -> None:
    (folder / "config.json").unlink()
    with pytest.raises(UserError, match=r"has no config\.json"):
        read_checkpoint(str(folder))


def test_config_that_is_not_json(folder: Path) -> None:
    (folder / "config.json").write_text("{'model_type': 'bert'}")
    with pytest.raises(UserError, match=r"config\.json' is not valid JSON"):
        read_config(str(folder))


def test_config_that_is_a_list(folder: Path) -> None:
    (folder / "config.json").write_text("[]")
    with pytest.raises(UserError, match=r"config\.json' is not a JSON object"):
        read_config(str(folder))


@pytest.mark.parametrize(
    "changes", [{"hidden_size": "wide"}, {"hidden_size": 30, "num_attention_heads": 7}, {"num_hidden_layers": None}]
)
def test_config_that_does_not_fit(folder: Path, changes: dict[str, Any]) -> None:
    change_config(folder, **changes)
    with pytest.raises(UserError, match=r"config\.json does not fit"):
        read_config(str(folder))


def test_half_a_pooler_is_refused(folder: Path) -> None:
    """Without any pooler it is drawn; of half of one nobody knows where the rest went."""
    change_weights(folder, lambda weights: weights.pop("pooler.dense.bias"))
    with pytest.raises(UserError, match=r"lacks 1 weights of its encoder, such as pooler\.dense\.bias"):
        read_checkpoint(str(folder))


def test_unknown_activation(folder: Path) -> None:
    change_config(folder, hidden_act="gelou")
    with pytest.raises(UserError, match="hidden_act 'gelou' is not known"):
        read_checkpoint(str(folder))


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """A good checkpoint of our own, to be spoilt."""
    random_model(EncoderForMaskedLM, encoder_config("add")).save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("act", "said"), [("gelou", "is not known"), ("prelu", "has weights of its own"), (3, "text")])
def test_unknown_activation_of_the_head(ours: Path, act: Any, said: str) -> None:
    change_config(ours, head_act=act)
    with pytest.raises(UserError, match=f"head_act .*{said}"):
        read_checkpoint(str(ours))


def test_a_decoder_that_is_not_the_table_of_the_words_is_refused(ours: Path) -> None:
    change_config(ours, tie_word_embeddings=False)
    with pytest.raises(UserError, match="tie_word_embeddings is False; it must be true"):
        read_checkpoint(str(ours))
    with pytest.raises(ValueError, match="tie_word_embeddings is False; it must be true"):
        EncoderConfig(tie_word_embeddings=False)


@pytest.mark.parametrize(
    ("index", "problem"),
    [
        ('{"weight_map": {', "not valid JSON"),
        ("{}", "has no weight_map"),
        ('{"weight_map": {"a": []}}', "has no weight_map of names of files"),
        ('{"weight_map": {"a": 1, "b": "x"}}', "has no weight_map of names of files"),
    ],
)
def test_damaged_shard_index(folder: Path, index: str, problem: str) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(index)
    with pytest.raises(UserError, match=problem):
        read_checkpoint(str(folder))


def test_key_of_another_width(folder: Path) -> None:
    name = "encoder.layer.0.attention.self.key.weight"
    change_weights(folder, lambda weights: weights.update({name: torch.zeros(24, 7)}))
    with pytest.raises(UserError, match=r"lacks 1 weights .* blocks\.0\.attention\.qkv\.weight"):
        read_checkpoint(str(folder))


def test_masked_lm_without_a_head(folder: Path) -> None:
    with pytest.raises(UserError, match="has no masked-LM head"):
        masked_lm(read_checkpoint(str(folder)))


def test_folder_without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"has no weights; expected one of model\.safetensors"):
        read_checkpoint(str(folder))
    with pytest.raises(UserError, match="has no weights"):
        fingerprint(folder)


def test_truncated_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match=r"cannot read weights from '.*model\.safetensors'.*may be cut short"):
        read_checkpoint(str(folder))


def test_pickle_that_would_run_code_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"weights": Path("a function call, not a tensor")}, folder / "pytorch_model.bin")
    with pytest.raises(UserError, match="cannot read weights"):
        read_checkpoint(str(folder))


def test_missing_shard(tmp_path: Path) -> None:
    saved(tmp_path, transformers.BertModel, "bert", max_shard_size="10KB")
    sorted(tmp_path.glob("model-*.safetensors"))[0].unlink()
    with pytest.raises(UserError, match=r"cannot read weights from '.*model-00001-of"):
        read_checkpoint(str(tmp_path))


def test_unknown_family(folder: Path) -> None:
    change_config(folder, model_type="gpt2")
    known = "bert, roberta, xlm-roberta, camembert, electra, distilbert, glue_bench"
    with pytest.raises(UserError, match=f"model_type 'gpt2'; glue-bench reads {known}"):
        read_checkpoint(str(folder))


def test_relative_positions_are_refused(folder: Path) -> None:
    change_config(folder, position_embedding_type="relative_key_query")
    with pytest.raises(UserError, match="relative_key_query positions; only absolute"):
        read_config(str(folder))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("embeddings.position_embeddings.weight", "variant.positions.weight"),
        ("embeddings.LayerNorm.bias", "norm.bias"),
        ("encoder.layer.1.output.dense.weight", "blocks.1.down.weight"),
        ("encoder.layer.1.attention.self.query.weight", "blocks.1.attention.qkv.weight"),
        ("encoder.layer.0.attention.self.key.bias", "blocks.0.attention.qkv.bias"),
    ],
)
def test_missing_weight(folder: Path, theirs: str, ours: str) -> None:
    change_weights(folder, lambda weights: weights.pop(theirs))
    with pytest.raises(UserError, match=f"lacks 1 weights of its encoder, such as {ours}"):
        read_checkpoint(str(folder))


def test_fewer_layers_than_the_config_says(folder: Path) -> None:
    change_config(folder, num_hidden_layers=3)
    with pytest.raises(UserError, match=r"lacks 12 weights of its encoder, such as blocks\.2"):
        read_checkpoint(str(folder))


@pytest.mark.parametrize("size", ["vocab_size", "max_position_embeddings", "intermediate_size"])
def test_shape_that_the_config_does_not_say(folder: Path, size: str) -> None:
    change_config(folder, **{size: 99})
    with pytest.raises(UserError, match=r"has shape \(.*\), its config\.json says \(.*99.*\)"):
        read_checkpoint(str(folder))


def response(status: int) -> Any:
    return httpx.Response(status, request=httpx.Request("GET", "https://huggingface.co/api"))


UNREACHABLE = {
    "nothing cached": LocalEntryNotFoundError("no snapshot"),
    "connection refused": ConnectionError("refused"),
    "proxy": httpx.ProxyError("403 Forbidden"),
    "broken download": httpx.RemoteProtocolError("peer closed connection"),
    "time-out while reading": httpx.ReadTimeout("timed out"),
}


@pytest.mark.parametrize("cause", UNREACHABLE)
def test_hub_out_of_reach(cause: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, UNREACHABLE[cause])
    with pytest.raises(UserError, match=r"no folder 'org/model' here, and the hub cannot be reached.*downloaded copy"):
        locate("org/model")


@pytest.mark.parametrize(
    "error",
    [
        RepositoryNotFoundError("404", response=response(404)),
        HFValidationError("repo id must not end with '.git'"),
    ],
)
def test_no_such_repository(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, error)
    with pytest.raises(UserError, match="no such checkpoint 'org/model': neither a folder here nor a repository"):
        locate("org/model")


def test_no_such_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, RevisionNotFoundError("404", response=response(404)))
    with pytest.raises(UserError, match="checkpoint 'org/model' has no revision 'v9'"):
        locate("org/model", "v9")


def test_gated_repository_is_a_user_error(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, GatedRepoError("401", response=response(401)))
    with pytest.raises(UserError, match="org/model"):
        locate("org/model")


def refuse(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Make every download fail."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)


def test_a_full_disk_is_no_hub_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(DiskError, match=r"cannot keep 'org/model' of the hub: .*; make room in the cache"):
        locate("org/model")


def test_what_the_hub_client_says_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, ConnectionError("no route\nto it"))
    with pytest.raises(UserError, match=r"\(ConnectionError: no route.*\); give the folder"):
        locate("org/model")


@pytest.mark.parametrize("name", ["folder", "https://example.org/bert"])
def test_a_revision_of_no_hub_id_is_refused(name: str, folder: Path) -> None:
    place = str(folder) if name == "folder" else name
    with pytest.raises(UserError, match=f"revision 'v2' of '{place}', which is no hub id: leave the revision out"):
        locate(place, "v2")


def test_a_tokenizer_is_fetched_without_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[list[str]] = []

    def download(*_: object, allow_patterns: list[str], **__: object) -> str:
        asked.append(allow_patterns)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(UserError, match="no tokenizer in 'org/model'"):
        load_tokenizer("org/model")
    assert asked == [["*.json", "*.txt", "*.model"]]
    locate("org/model")
    assert asked[1:] == [[*asked[0], "model*.safetensors"], ["pytorch_model*.bin*"]]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache of our own; conftest has switched the hub client to offline."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("name", ["no-such-org/no-such-model", "no-such-model"])
def test_the_real_hub_client_offline(name: str) -> None:
    with pytest.raises(UserError, match=f"no folder '{name}' here, and the hub cannot be reached"):
        locate(name)


@pytest.mark.usefixtures("cache")
def test_the_real_hub_client_refuses_the_name() -> None:
    with pytest.raises(UserError, match="no such checkpoint 'my model'"):
        locate("my model")


@pytest.mark.parametrize("revision", [None, "main", "a" * 40])
def test_a_cached_snapshot_is_found_offline(cache: Path, revision: str | None) -> None:
    repository = cache / "models--org--model"
    saved(repository / "snapshots" / ("a" * 40), transformers.BertModel, "bert")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a" * 40)
    assert locate("org/model", revision).resolve() == (repository / "snapshots" / ("a" * 40)).resolve()


@pytest.mark.parametrize("key", ["num_attention_heads", "hidden_size", "num_hidden_layers", "max_position_embeddings"])
@pytest.mark.parametrize("value", [0, -2, 10**9, 2.5, None, "2", [2]])
def test_a_size_that_no_encoder_has_is_refused(tmp_path, key, value):
    config = {"model_type": "glue_bench", "vocab_size": 10, "hidden_size": 4, "num_attention_heads": 2, key: value}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"config.json does not fit: .*(must be a whole number|multiple|expected int)"):
        read_config(str(tmp_path))


def test_weights_that_unpack_to_more_than_the_file_has_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "pytorch_model.bin", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(10**6))
    with pytest.raises(UserError, match="it unpacks to more than it has"):
        read_weights(tmp_path)


def test_a_tensor_that_says_to_be_larger_than_it_is_is_refused(tmp_path):
    torch.save({"a": torch.zeros(1).expand(10**12)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(UserError, match="its a is larger than what is stored of it"):
        read_weights(tmp_path)


@pytest.mark.parametrize("saved_as", [[1], {"a": 1}, {1: torch.zeros(1)}, {"a": torch.zeros(2).to_sparse()}])
def test_what_is_no_tensor_is_refused(tmp_path, saved_as):
    torch.save(saved_as, tmp_path / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"no tensors by their names|is no plain tensor|cannot read weights"):
        read_weights(tmp_path)
