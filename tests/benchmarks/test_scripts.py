"""Each benchmark runs from its command line on the demo, with every measurement in its JSON
file.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

pytestmark = pytest.mark.slow

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def run(script, *arguments):
    """Return what the script prints, and the rounds of its JSON file where it is asked for one."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(BENCHMARKS.parent)}
    command = [sys.executable, BENCHMARKS / script, *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, timeout=3000
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(arguments[-1].read_text())["rounds"] if "--json" in arguments else done.stdout


def test_finetune_compares_peers_with_ours(tmp_path):
    arguments = ("--rounds", 2, "--steps", 2, "--batch-size", 8)
    rounds = run("finetune.py", *arguments, "--json", tmp_path / "all.json")["rte"]
    assert [len(turn) for turn in rounds] == [4, 4]
    for turn in rounds:
        assert len({result["tokens"] for result in turn.values()}) == 1  # the same examples
        for result in turn.values():
            assert 0 < result["training_seconds"] < result["total_seconds"]
            assert result["scores"]["validation"]["accuracy"] >= 0


def test_every_variant_is_compared_with_add():
    text = run("finetune.py", "--variants", "--variant", "untied", "--rounds", 1, "--steps", 2)
    rows = [line.split("|")[1].strip(" :-") for line in text.splitlines() if line.startswith("|")]
    assert rows == ["variant", "", "add", "untied"]


def test_pretrain_compares_trainer_with_ours(tmp_path):
    sizes = ("--rounds", 1, "--steps", 2, "--length", 64, "--rows", 8)
    (turn,) = run("pretrain.py", *sizes, "--json", tmp_path / "all.json")
    our_tokens, peer = (result["tokens"] for result in turn.values())
    # These are other sequences of the same text, nearly all of them full.
    assert our_tokens == pytest.approx(peer, rel=0.1)


def test_overhead_is_that_of_every_cell_but_the_first():
    assert ", 2 cells)" in run("overhead.py", "--cells", 3, "--turns", 1)


def test_agreement_scores_both_systems_for_every_seed(tmp_path, make_bert, write_yaml):
    checkpoint = make_bert(
        texts=("tom helped the old cat today .", "the fox chased anna , a person .")
    )
    experiment = {"name": "tiny", "data": "demo", "checkpoint": str(checkpoint), "arms": ["add"]}
    experiment |= {"finetuning": {"learning_rates": [1e-3], "epochs": 1, "max_length": 32}}

    output = tmp_path / "both.csv"
    text = run(
        "agreement.py",
        write_yaml(experiment),
        "--task",
        "rte",
        "--seed",
        1,
        "--seed",
        2,
        "-o",
        output,
    )

    lines = pd.read_csv(output)
    expected = [(system, seed) for seed in (1, 2) for system in ("Trainer", "glue-bench")]
    assert [*zip(lines["system"], lines["seed"], strict=True)] == expected
    assert "2 seeds" in text


def test_gpu_measures_all_sections_in_small_and_goes_on_from_its_file(tmp_path):
    """Here on the CPU itself: nothing differs, but for the rounding of bf16."""
    output = tmp_path / "gpu.json"
    sections = ("--section", "agreement", "--section", "resume")
    first = run("gpu.py", output, "--tiny", *sections)
    assert "left: 8 measurements; the same command goes on" in first
    text = run("gpu.py", output, "--tiny")
    assert "agreement: add:" not in text  # it was there
    assert "left" not in text
    assert "FAILED" not in text
    steps = json.loads(output.read_text())["steps"]
    sections = {key.split(":")[0] for key in steps}
    assert sections == {"agreement", "resume", "pretraining", "fine-tuning", "sharing"}
    differences = steps["agreement: untied"]["result"]
    assert differences["loss, one by one, float32"] == 0
    assert differences["masked-LM loss, one by one, float32"] == 0
    assert all(0 < value < 0.03 for name, value in differences.items() if "bf16" in name)
    assert steps["resume: add, graphs"]["result"]["equal"] is True


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
@pytest.mark.parametrize("engine", ["inline", "ray"])
def test_mishaps_cost_nothing(engine):
    report = json.loads(run("kills.py", "--engine", engine, "--mishaps", 6, "--seed", 1))
    assert sum(report["mishaps"].values()) >= 6
    assert [report[name] for name in ("lost", "repeated", "other_tables", "surprises")] == [
        [],
        [],
        [],
        [],
    ]
