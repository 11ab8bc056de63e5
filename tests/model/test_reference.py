"""The first reading of another library's checkpoint is compared with transformers' own model, later ones are not."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tiny_models import saved

from glue_bench.config import parse_experiment
from glue_bench.errors import UserError
from glue_bench.model import reference
from glue_bench.model.checkpoints import read_checkpoint
from glue_bench.model.families import FAMILIES
from glue_bench.training.convert import convert
from glue_bench.training.inputs import Inputs

Compared = Callable[[], int]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    monkeypatch.setenv("GLUE_BENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> Compared:
    """How often transformers' own model has been made."""
    theirs, calls = reference._theirs, []
    monkeypatch.setattr(reference, "_theirs", lambda *inputs: calls.append(inputs) or theirs(*inputs))
    return lambda: len(calls)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return saved(tmp_path / "roberta", transformers.RobertaForMaskedLM, "roberta")[1]


@pytest.fixture
def misread(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make this package read RoBERTa in another way than transformers."""

    def change(**changes: Any) -> None:
        monkeypatch.setitem(FAMILIES, "roberta", replace(FAMILIES["roberta"], **changes))

    return change


def test_equal_files_are_compared_once(folder: str, compared: Compared, cache: Path) -> None:
    for _ in range(3):
        read_checkpoint(folder)
    assert compared() == 1
    assert len(list((cache / "agrees-with-transformers").iterdir())) == 1


def test_other_files_and_other_code_are_compared_anew(
    folder: str, compared: Compared, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_checkpoint(folder)
    weights = Path(folder, "model.safetensors")
    save_file({name: tensor + 0.01 for name, tensor in load_file(weights).items()}, weights)
    read_checkpoint(folder)
    assert compared() == 2
    monkeypatch.setattr(reference, "_code", lambda: "other")
    read_checkpoint(folder)
    assert compared() == 3
    monkeypatch.setattr(reference, "TRANSFORMERS", "5.99")
    read_checkpoint(folder)
    assert compared() == 4


@pytest.mark.parametrize("read", ["read_checkpoint", "convert", "Inputs"])
def test_what_differs_is_refused_wherever_it_is_read(
    read: str, folder: str, misread: Callable[..., None], tmp_path: Path, tiny: Callable[..., Any]
) -> None:
    misread(settings=FAMILIES["roberta"].settings | {"layer_norm_eps": "initializer_range"})
    experiment = parse_experiment(tiny(arms=["add"], checkpoint=folder))
    readers: dict[str, Callable[[], object]] = {
        "read_checkpoint": lambda: read_checkpoint(folder),
        "convert": lambda: convert(folder, tmp_path / "out", "concat"),
        "Inputs": lambda: Inputs(experiment).initial(experiment.arms[0]),
    }
    for _ in range(2):  # nothing is noted of what differs
        with pytest.raises(UserError) as refused:
            readers[read]()
        assert "\n" not in str(refused.value)
        assert str(refused.value).startswith(
            f"checkpoint '{folder}' cannot be read: what enters its first block differs from transformers "
        )
    assert not (tmp_path / "out").exists()


def test_a_head_that_differs_is_refused(folder: str, misread: Callable[..., None]) -> None:
    misread(fixed={"head_act": "relu"})
    with pytest.raises(UserError, match=r"what its masked-LM head predicts differs from transformers .* by \d"):
        read_checkpoint(folder)


def test_what_differs_on_padding_alone_is_refused(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "glue_bench.model.encoder.padding_scores", lambda mask, _: torch.zeros(len(mask), 1, 1, mask.shape[1])
    )
    with pytest.raises(UserError, match=r"what leaves its block 1 differs .* where a sequence is padded"):
        read_checkpoint(folder)


def test_damaged_weights_are_said(folder: str) -> None:
    weights = Path(folder, "model.safetensors")
    save_file({name: tensor * float("nan") for name, tensor in load_file(weights).items()}, weights)
    with pytest.raises(UserError, match=r"hidden states are not finite; its weights are damaged$"):
        read_checkpoint(folder)


@pytest.mark.parametrize("method", ["from_pretrained", "forward"])
def test_what_transformers_cannot_compute_is_one_line(
    method: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no such thing\nand more")

    monkeypatch.setattr(transformers.RobertaForMaskedLM, method, fail)
    with pytest.raises(UserError, match=r"transformers itself cannot compute it \(RuntimeError: no such thing\)$"):
        read_checkpoint(folder)


def test_a_cache_that_cannot_be_written_does_not_stop_the_reading(folder: str, compared: Compared, cache: Path) -> None:
    cache.write_text("a file where a folder should be")
    for _ in range(2):
        assert read_checkpoint(folder).head
    assert compared() == 2


def test_a_cache_behind_a_url_is_left_alone(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    monkeypatch.setenv("GLUE_BENCH_CACHE", "s3://bucket/cache")
    read_checkpoint(folder)
    assert sorted(tmp_path.iterdir()) == before


def test_nothing_is_drawn_said_or_left_changed(folder: str, capfd: pytest.CaptureFixture[str]) -> None:
    transformers.logging.set_verbosity_info()
    transformers.logging.enable_progress_bar()
    torch.set_float32_matmul_precision("medium")
    try:
        before = torch.get_rng_state()
        read_checkpoint(folder)
        assert torch.equal(torch.get_rng_state(), before)
        assert capfd.readouterr() == ("", "")
        assert transformers.logging.get_verbosity() == transformers.logging.INFO
        assert transformers.logging.is_progress_bar_enabled()
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
        transformers.logging.set_verbosity_warning()


def test_our_own_checkpoints_are_not_compared(folder: str, tmp_path: Path, compared: Compared) -> None:
    convert(folder, tmp_path / "out", "concat")
    assert compared() == 1
    read_checkpoint(str(tmp_path / "out"))
    assert compared() == 1
