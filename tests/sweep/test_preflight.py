"""What is known before anything is computed: a dry run refuses what a run refuses, and both say the same lines."""

import sys

import pytest
import torch
from tiny_runs import SIZES, contents
from transformers import RobertaConfig, RobertaModel

from glue_bench.config import Resources
from glue_bench.data.demo import generate
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.sweep.run import room_here
from glue_bench.training.compute import Compute
from glue_bench.training.tokenizers import train_tokenizer

pytestmark = pytest.mark.usefixtures("small_demo")
FAULTS = {
    "no ray": ({"workers": 2}, "--workers and --address needs ray; install it: pip install 'glue-bench[ray]'"),
    "no cluster": ({"address": "127.0.0.1:1"}, "cannot use the Ray cluster at 127.0.0.1:1: ConnectionRefusedError"),
    "cache is a file": ({}, "cannot write to"),
    "cache is a URL": ({}, "the cache (GLUE_BENCH_CACHE)"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_dry_run_and_a_run_refuse_alike_and_leave_no_trace(sweep, tiny, monkeypatch, tmp_path, fault):
    options, expected = FAULTS[fault]
    if fault == "no ray":
        monkeypatch.setitem(sys.modules, "ray", None)
    elif fault == "no cluster":
        pytest.importorskip("ray")
    else:
        (tmp_path / "cache").write_text("in the way")
        monkeypatch.setenv("GLUE_BENCH_CACHE", "s3://bucket/cache" if "URL" in fault else str(tmp_path / "cache"))
    before, said = contents(tmp_path), []
    for dry_run in (True, False):
        with pytest.raises(UserError) as caught:
            sweep(tiny(), dry_run=dry_run, **options)
        said.append(str(caught.value))
        assert contents(tmp_path) == before
    assert expected in said[0]
    assert said[0] == said[1]


def test_a_dry_run_writes_nothing_and_says_what_would_run_and_where(sweep, tiny, monkeypatch, tmp_path):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    summary = sweep(tiny(), only=["arm=none"], dry_run=True)
    assert [cell.split("-lr")[0] for cell in summary.waiting] == ["none-cola", "none-stsb"]
    assert (summary.reasons, sweep.ended) == ({"not run yet": 2}, [])
    assert not (tmp_path / "runs").exists()
    assert sweep.said.splitlines()[0] == "computing on cpu in float32"
    assert "one of 3 cores is at work (narrow encoder); glue-bench run --workers auto uses 2" in sweep.said
    for changes, only in (({}, ["arm=add", "task=cola"]), ({"scratch": {"hidden_size": 256}}, [])):
        sweep(tiny(**changes), dry_run=True, only=only)
        assert "at work" not in sweep.said


def test_texts_that_have_one_segment_are_said(sweep, tiny, tmp_path):
    config = RobertaConfig(vocab_size=300, **SIZES, max_position_embeddings=40, type_vocab_size=1)
    RobertaModel(config).save_pretrained(tmp_path / "one")
    train_tokenizer(generate("cola")["train"]["text_a"], 200).save_pretrained(tmp_path / "words")
    sweep(tiny(checkpoint=str(tmp_path / "one"), tokenizer=str(tmp_path / "words"), arms=["add"]), dry_run=True)
    assert "both texts of a pair are segment 0, because the encoder has no other: add" in sweep.said


def test_finished_cells_of_another_precision_are_said_and_count_as_done(sweep, tiny):
    folder = sweep(tiny(), only=["task=cola"], precision="float32").folder
    with Store(folder).lock():  # a store that another driver holds can still be looked at
        summary = sweep(tiny(), dry_run=True, precision="bf16")
    line = "computed on cpu in float32, not on cpu in bf16 as this run: 2 finished; they count as done"
    assert line in sweep.said
    assert summary.skipped == 2
    sweep(tiny(), dry_run=True, precision="float32")
    assert "count as done" not in sweep.said


@pytest.mark.parametrize(
    ("cores", "gpus", "needs", "expected"),
    [
        *[(8, 0, {}, 8), (8, 0, {"cpus": 3}, 2), (8, 0, {"cpus": 5}, None), (1, 0, {}, None), (8, 1, {}, None)],
        *[(8, 1, {"gpus": 0.25}, 4), (8, 1, {"gpus": 1.0}, None), (8, 3, {"gpus": 0.7}, 3)],
        (8, 2, {"gpus": 0.4}, 4),  # a share is one of a single GPU
        (8, 4, {"gpus": 1.0, "cpus": 4}, 2),
    ],
)
def test_a_worker_takes_its_cpus_and_its_share_of_a_gpu(monkeypatch, cores, gpus, needs, expected):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    compute = Compute(torch.device("cuda" if gpus else "cpu"), False, cores)
    assert room_here(Resources(**needs), compute) == expected
