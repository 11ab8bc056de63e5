"""Two sweeps on one results folder at once: each cell and each pretraining once, and both end with the whole."""

import os
import re
from pathlib import Path

import pytest
from started import TABLES, finish, start, write_rte, write_text

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs /proc")


@pytest.fixture
def config(tiny, write_yaml, tmp_path) -> Path:
    write_rte(tmp_path / "glue")
    write_text(tmp_path / "text.txt")
    pretraining = {"corpus": str(tmp_path / "text.txt"), "steps": 10, "batch_tokens": 256, "length": 32}
    return write_yaml(
        tiny(
            data=str(tmp_path / "glue"),
            tasks=["rte"],
            arms=["add", "untied"],
            seeds=[1, 2, 3],
            finetuning={"epochs": 2},
            pretraining=pretraining | {"validations": 1},
        )
    )


def test_two_sweeps_at_once_share_the_work(config, tmp_path):
    shared = tmp_path / "shared"
    processes = [start(config, shared) for _ in range(2)]
    outputs = [finish(process) for process in processes]
    counts = [re.search(r"(\d+) cells run, (?:(\d+) run by another sweep, )?(\d+) were", said) for said in outputs]
    ran = [int(count[1]) for count in counts]
    assert sum(ran) == 6, outputs
    assert all(sum(int(part or 0) for part in count.groups()) == 6 for count in counts), outputs
    for arm in ("add", "untied"):  # each arm's losses were printed by the one that pretrained it
        assert sum(f"pretraining {arm}: step 10" in said for said in outputs) == 1, outputs
    assert not (shared / "tiny" / "claims").exists()
    finish(start(config, tmp_path / "alone"))
    for name in TABLES:
        assert (shared / "tiny" / name).read_bytes() == (tmp_path / "alone" / "tiny" / name).read_bytes()
