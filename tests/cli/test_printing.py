"""The verbs that print what is known of variants, data, checkpoints and encoders."""

import json
import re

import pytest

from glue_bench.data.tasks import TASKS
from glue_bench.model.variants import VARIANTS
from glue_bench.records.store import Store
from glue_bench.testing import CLAUSES

SENTENCES = ("the old cat chased the tall dog again .", "was the quiet goose watched by anna ?")


@pytest.fixture
def bert(make_bert):
    return make_bert(texts=SENTENCES)


def test_variants_tasks_and_splits_are_listed(glue_bench, small_demo):  # noqa: ARG001
    variants, tasks, demo = glue_bench("variants"), glue_bench("data"), glue_bench("data", "demo")
    assert [line.split()[0] for line in variants.out.splitlines()[1:]] == list(VARIANTS)
    assert all(variant.summary in variants.out for variant in VARIANTS.values())
    assert [line.split()[0] for line in tasks.out.splitlines()[1:]] == list(TASKS)
    assert re.search(r"(?m)^cola .*matthews_correlation.* 8551 ", tasks.out)
    splits = [line.split()[1:3] for line in demo.out.splitlines() if line.startswith("rte")]
    assert splits == [["train", "48"], ["validation", "24"], ["test", "12"]]
    assert demo.out.splitlines()[-1].startswith("demo: cola, sst2")


def test_a_plugin_is_said_to_pass_the_contract_or_which_clause_it_breaks(glue_bench, refused, write_plugin):
    plugin = write_plugin()
    assert glue_bench("variants", "--plugin", plugin) == (
        0,
        f"mine: Mine (my_variant.py)\nclauses: {', '.join(CLAUSES)}\nmine passes the contract\n",
        "checking the contract ...\n",
    )
    code = plugin.read_text()
    said = refused("variants", "--plugin", write_plugin(code + "    uses_position = False\n"))
    assert f"plugin '{plugin}': variant 'mine' does not meet the contract: clause 'position'" in said
    broken = write_plugin(code + "    def forward(self, *_):\n        return 1 / 0\n")
    said = refused("variants", "--plugin", broken)
    assert "clause 'shapes', encoder like BERT: ZeroDivisionError: division by zero (my_variant.py:7)" in said


def test_analyse_prints_its_page_and_leaves_numbers_tables_and_figures(bert, glue_bench, tmp_path):
    wanted = ("--only", "subspaces,dimensions", "-o", tmp_path / "found")
    said = glue_bench("analyse", bert, *wanted)
    assert said.status == 0
    assert said.out == (tmp_path / "found" / "analysis.md").read_text()
    assert json.loads((tmp_path / "found" / "analysis.json").read_text())["checkpoints"]
    assert (tmp_path / "found" / "subspace_curve.csv").is_file()
    assert {path.stem for path in (tmp_path / "found").glob("*.svg")} == {"subspace_curve", "spectrum", "dimensions"}


CONVERSIONS = {
    "untied --option segments=scores": [
        "conversion      approximate",
        "origin          grafted: weights of another variant",
        r"hidden states   relative error 0\.\d\d after the last block, on random tokens *$",
        r"error by layer  0\.\d\d 0\.\d\d \(the input first\)",
        "masked-LM head  none in the source",
    ],
    "concat": ["conversion      exact: it computes what the source computes"],
    "concat-split": [r"variance kept   tokens \d\d\.\d%, positions \d\d\.\d%"],
    "mine --plugin my_variant.py": [r".* \(add\) -> .* \(mine\)$"],
    "diet-abs --option rank=4 --option share=false": ["conversion      approximate"],
}


@pytest.mark.parametrize("words", CONVERSIONS)
def test_convert_says_what_was_lost(glue_bench, bert, write_plugin, monkeypatch, tmp_path, words):
    write_plugin()
    monkeypatch.chdir(tmp_path)
    said = glue_bench("convert", bert, "out", "--variant", *words.split())
    assert said.status == 0
    assert [line for line in CONVERSIONS[words] if not re.search(f"(?m)^{line}", said.out)] == [], said.out
    record = json.loads((tmp_path / "out" / "conversion.json").read_text())
    assert record["variant"] == words.split()[0]
    if "rank" in words:
        assert record["options"] == {"rank": 4, "share": False}


@pytest.mark.usefixtures("small_demo")
def test_arms_may_start_from_a_tupe_file_and_what_was_converted(
    glue_bench, make_tupe, bert, tiny, write_yaml, tmp_path
):
    glue_bench("convert", bert, tmp_path / "out", "--variant", "rotary")
    arms = [{"variant": "untied-relative", "checkpoint": str(make_tupe()), "tokenizer": str(bert)}]
    arms += [{"variant": "rotary", "checkpoint": str(tmp_path / "out")}]
    config = write_yaml(tiny(arms=arms, tasks=["cola"], finetuning={"max_length": 20}))
    assert "2 cells run" in glue_bench("run", config, "--results", tmp_path / "runs").out
    cells = Store(tmp_path / "runs" / "tiny").plan().cells
    assert {cell.arm: cell.origin for cell in cells} == {"untied-relative": "pretrained", "rotary": "grafted"}
