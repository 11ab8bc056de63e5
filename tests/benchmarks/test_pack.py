"""What is packed for a bare machine, and that it runs from there. Nothing is downloaded here."""

import json
import os
import subprocess
import sys
import tarfile
import zipfile

import pytest
import torch
import typer
from safetensors.torch import load_file

import gpu_speed
import pack
from gpu_cells import Plan


@pytest.fixture
def packed(tmp_path, make_bert, monkeypatch):
    """The file, made of tiny things and without packages."""
    monkeypatch.setattr(pack, "missing", lambda _: [])
    monkeypatch.setattr(pack, "_pip", lambda _: [sys.executable, "-c", "pass"])
    data, corpus = tmp_path / "data", tmp_path / "corpus.txt"
    for task in ("RTE", "MNLI", "AX"):
        (data / task).mkdir(parents=True)
        (data / task / "train.tsv").write_text("".join(f"{line}\n" for line in range(3000)))
    corpus.write_text("a cat .\n" * 10)

    def make(name="packed.tar.gz"):
        pack.main(tmp_path / name, data, corpus, make_bert(texts=("a cat .",)))
        return tmp_path / name

    return make


def unpacked(file, to):
    with tarfile.open(file) as archive:
        archive.extractall(to, filter="data")
    return to / pack.NAME


def test_the_file_has_what_a_run_needs(packed, tmp_path, capsys):
    folder = unpacked(packed(), tmp_path / "there")
    assert (folder / "source" / "benchmarks" / "gpu.py").exists()
    assert (folder / "source" / "glue_bench" / "training" / "engine.py").exists()
    assert not (folder / "source" / "tests").exists()
    lines = {task: len((folder / "data" / task / "train.tsv").read_text().splitlines()) for task in ("RTE", "MNLI")}
    assert lines == {"RTE": 3000, "MNLI": pack.OTHER_LINES}
    assert not (folder / "data" / "AX").exists()
    assert [path.read_text() for path in (folder / "text").iterdir()] == ["a cat .\n" * 10]
    assert set(json.loads((folder / "source" / "pack.json").read_text())) == {"commit", "python", "packages"}
    assert "tar xzf packed.tar.gz && python glue-bench-gpu/run.py" in capsys.readouterr().out


def test_the_same_content_gives_the_same_bytes(packed):
    assert packed("one.tar.gz").read_bytes() == packed("two.tar.gz").read_bytes()


def test_a_file_that_is_too_large_is_said(packed, monkeypatch, capsys):
    monkeypatch.setattr(pack, "MOST_BYTES", 1000)
    with pytest.raises(typer.Exit):
        packed()
    assert "that is more than" in capsys.readouterr().err


def test_weights_are_packed_in_bf16_and_trained_in_float32(packed, tmp_path):
    folder = unpacked(packed(), tmp_path / "there") / "checkpoint"
    lower = load_file(folder / "model.safetensors")
    assert {tensor.dtype for tensor in lower.values()} == {torch.bfloat16}
    wide = load_file(
        f"{gpu_speed._checkpoint(Plan('cpu', True, 'demo', 'demo', str(folder), str(tmp_path)))}/model.safetensors"
    )
    for name, tensor in wide.items():
        assert tensor.dtype == torch.float32
        torch.testing.assert_close(tensor, lower[name].float(), rtol=0, atol=0)


def test_what_the_machine_lacks_is_all_that_glue_bench_requires_beside():
    names = pack.missing("3.12")
    assert {*pack.LACKED, "pydantic-core", "xxhash", "dill", "aiohttp"} <= set(names)
    assert not {*pack.PRESENT, "numpy", "glue-bench", "safetensors", "pyyaml"} & set(names)


def test_a_wheel_is_unpacked_without_its_scripts(tmp_path):
    wheel = tmp_path / "some.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in (
            "some/a.py",
            "some-1.data/purelib/some/b.py",
            "some-1.data/scripts/tool",
            "some-1.dist-info/RECORD",
        ):
            archive.writestr(name, name)
    pack.unpack(wheel, tmp_path / "to")
    found = sorted(str(path.relative_to(tmp_path / "to")) for path in (tmp_path / "to").rglob("*") if path.is_file())
    assert found == ["some-1.dist-info/RECORD", "some/a.py", "some/b.py"]


@pytest.mark.slow
def test_it_runs_from_there(packed, tmp_path):
    folder, out = unpacked(packed(), tmp_path / "there"), tmp_path / "gpu.json"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, folder / "run.py", "--tiny", "--only", "gradients", "--data", "demo", "--out", out]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "commit" in json.loads(out.read_text())["machine"]["packed"]
