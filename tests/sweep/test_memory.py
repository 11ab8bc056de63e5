"""Memory that is short in earnest: half the rows at once, the same numbers, and a record that says so."""

import json
import random
import sys
from pathlib import Path

import pytest
from forked import Forked
from tiny_sweeps import WORDS

PROGRAM = Path(__file__).with_name("short_memory.py")
ROWS, LABELS = {"RTE": 16, "WNLI": 128}, {"RTE": ["entailment", "not_entailment"], "WNLI": ["0", "1"]}
MIB = 50  # a batch takes about 250, a row 2


def write_tasks(folder: Path) -> None:
    """RTE of a few long rows and WNLI of a whole batch, in the classic layout."""
    generator = random.Random(0)
    for task, train in ROWS.items():
        (folder / task).mkdir(parents=True)
        for name, rows in (("train", train), ("dev", train // 4), ("test", 4)):
            lines = ["index\tsentence1\tsentence2" + ("" if name == "test" else "\tlabel")]
            for row in range(rows):
                texts = [" ".join(generator.choices(WORDS, k=60)) for _ in range(2)]
                label = [] if name == "test" else [generator.choice(LABELS[task])]
                lines.append("\t".join([str(row), *texts, *label]))
            (folder / task / f"{name}.tsv").write_text("\n".join(lines) + "\n")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs RLIMIT_AS and /proc")
def test_a_process_that_may_not_grow_learns_the_same_in_parts(tiny, write_yaml, tmp_path):
    write_tasks(tmp_path / "glue")
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 1024, "max_position_embeddings": 128}
    still = {"num_hidden_layers": 2, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = write_yaml(
        tiny(
            data=str(tmp_path / "glue"),
            arms=["add"],
            tasks=["rte", "wnli"],
            scratch=sizes | still,
            finetuning={"batch_size": 128, "max_length": 128},
        )
    )
    process = Forked(PROGRAM.read_text(), config, MIB)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    found = json.loads(out)
    short, whole = found["short"], found["whole"]
    assert "error" not in whole, whole["error"] + whole["traceback"]
    assert whole["rows"] is None
    assert 1 <= short["rows"] <= 64, short
    assert short["losses"] == pytest.approx(whole["losses"], rel=1e-5)
    assert short["scores"] == whole["scores"]
    assert short["logits"].keys() == whole["logits"].keys()
    for name, logits in whole["logits"].items():
        assert [value for row in short["logits"][name] for value in row] == pytest.approx(
            [value for row in logits for value in row], abs=1e-4
        )
