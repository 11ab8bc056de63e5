"""The verbs that print facts of variants, data, checkpoints and encoders, and `submit`."""

import json
import re
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

from glue_bench import __version__
from glue_bench.data.sources import DemoSource
from glue_bench.data.submission import FILES, fill_file, make_zip
from glue_bench.data.tasks import KNOWN
from glue_bench.model.variants import VARIANTS
from glue_bench.records.store import Store
from glue_bench.testing import CLAUSES

MINILM = Path(__file__).parents[2] / "results" / "minilm"
SENTENCES = ("the old cat chased the tall dog again .", "was the quiet goose watched by anna ?")


@pytest.fixture
def bert(make_bert):
    return make_bert(texts=SENTENCES)


def test_the_version_is_printed(glue_bench):
    assert glue_bench("--version").out == f"glue-bench {__version__}\n"


def test_variants_are_listed_with_their_summaries(glue_bench):
    _, *lines = glue_bench("variants").out.splitlines()
    assert [line.split()[0] for line in lines] == list(VARIANTS)
    for line, variant in zip(lines, VARIANTS.values(), strict=True):
        assert variant.summary in line


def test_tasks_are_listed_with_their_metrics_and_rows(glue_bench):
    printed = glue_bench("data").out
    assert [line.split()[0] for line in printed.splitlines()[1:]] == list(KNOWN)
    assert re.search(r"(?m)^cola .*matthews_correlation.* 8551 ", printed)


@pytest.mark.usefixtures("small_demo")
def test_the_splits_of_a_source_are_listed_with_their_rows(glue_bench):
    lines = glue_bench("data", "demo").out.splitlines()
    splits = [line.split()[1:3] for line in lines if line.startswith("rte")]
    assert splits == [["train", "48"], ["validation", "24"], ["test", "12"]]
    assert lines[-1].startswith("demo: cola, sst2")


def test_a_plugin_is_said_to_pass_the_contract_or_which_clause_it_breaks(
    glue_bench, refused, write_plugin
):
    plugin = write_plugin()
    assert glue_bench("variants", "--plugin", plugin) == (
        0,
        f"mine: Mine (my_variant.py)\nclauses: {', '.join(CLAUSES)}\nmine passes the contract\n",
        "checking the contract ...\n",
    )
    broken = write_plugin(plugin.read_text() + "    def forward(self, *_):\n        return 1 / 0\n")
    message = refused("variants", "--plugin", broken)
    assert (
        f"plugin '{plugin}': variant 'mine' does not meet the contract: "
        "clause 'shapes', encoder like BERT: " in message
    )
    assert "ZeroDivisionError: division by zero (my_variant.py:7)" in message


CONVERSIONS = {
    "diet-abs --option rank=4 --option share=false": [
        "conversion +approximate",
        "origin +grafted",
        "masked-LM head +none in the source",
        r"relative error +0\.\d\d 0\.\d\d \(hidden states",
    ],
    "concat-split": [r"variance kept +tokens \d\d\.\d%, positions \d\d\.\d%"],
    "mine --plugin my_variant.py": [
        r".* \(add\) -> .* \(mine\)$",
        "conversion +exact, up to rounding",
    ],
}


@pytest.mark.parametrize("words", CONVERSIONS)
def test_convert_says_what_was_lost(glue_bench, bert, write_plugin, monkeypatch, tmp_path, words):
    write_plugin()
    monkeypatch.chdir(tmp_path)
    result = glue_bench("convert", bert, "out", "--variant", *words.split())
    assert [
        line for line in CONVERSIONS[words] if not re.search(f"(?m)^{line}", result.out)
    ] == [], result.out
    if "rank" in words:
        assert json.loads((tmp_path / "out" / "conversion.json").read_text())["options"] == {
            "rank": 4,
            "share": False,
        }


@pytest.mark.usefixtures("small_demo")
def test_arms_may_start_from_a_tupe_file_and_what_was_converted(
    glue_bench, make_tupe, bert, tiny, write_yaml, tmp_path
):
    glue_bench("convert", bert, tmp_path / "out", "--variant", "rotary")
    arms = [{"variant": "untied-relative", "checkpoint": str(make_tupe()), "tokenizer": str(bert)}]
    arms += [{"variant": "rotary", "checkpoint": str(tmp_path / "out")}]
    config = write_yaml(tiny(arms=arms, tasks=["cola"], finetuning={"max_length": 20}))
    assert "cells run: 2" in glue_bench("run", config, "--results", tmp_path / "runs").out
    cells = Store(tmp_path / "runs" / "tiny").plan().cells
    assert {cell.arm: cell.origin for cell in cells} == {
        "untied-relative": "pretrained",
        "rotary": "grafted",
    }


def test_a_leaderboard_names_no_page_and_what_comes_next_only_by_the_experiments_own_protocol(
    glue_bench, monkeypatch
):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    by_its_protocol = glue_bench("leaderboard", MINILM).out
    by_another = glue_bench("leaderboard", MINILM, "--protocol", "seeds=median").out
    assert "leaderboard.md" not in by_its_protocol + by_another
    assert "next: glue-bench" in by_its_protocol
    assert "next: glue-bench" not in by_another


@pytest.mark.parametrize("verb", ["leaderboard", "init"])
def test_a_file_that_cannot_be_written_whole_stays_as_it_was(verb, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.md").write_text("old")
    monkeypatch.setattr(
        "glue_bench.files._sync", Mock(side_effect=OSError(28, "No space left on device"))
    )
    words = ("leaderboard", MINILM, "-o", "old.md") if verb == "leaderboard" else ("init", "new")
    assert "No space left" in refused(*words)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("old.md", "old")]


# A submission


@pytest.fixture
def submitted(glue_bench, tiny, write_yaml, tmp_path, small_demo):  # noqa: ARG001
    """The output of `submit` for an arm that has predicted MNLI and RTE; the zip is `x.zip`."""
    config = write_yaml(
        tiny(arms=["add"], tasks=["mnli", "rte"], finetuning={"predict": ["validation", "test"]})
    )
    assert glue_bench("run", config, "--results", tmp_path).status == 0
    words = ("--arm", "add", "-o", tmp_path / "x.zip", "--fill")
    return glue_bench("submit", tmp_path / "tiny", *words)


FINDINGS = [
    "MNLI-m.tsv: 12 rows; expected 9796",
    "MNLI-mm.tsv: 12 rows; expected 9847",
    "RTE.tsv: 12 rows; expected 3000",
    "AX.tsv: 12 rows; expected 1104",
]


def test_submit_says_what_is_filled_and_what_is_made_up(submitted):
    filled = "filled with the majority class, not predicted: CoLA.tsv, SST-2.tsv, MRPC.tsv"
    assert filled in submitted.out
    assert "made-up data" in submitted.out
    assert "of these the experiment has" not in submitted.out


@pytest.mark.usefixtures("submitted")
def test_submit_names_the_files_whose_runs_are_planned_and_missing(glue_bench, tmp_path):
    files = json.loads((tmp_path / "x.json").read_text())["files"]
    shutil.rmtree(tmp_path / "tiny" / "cells" / files["RTE.tsv"]["cell_id"])
    words = ("--arm", "add", "-o", tmp_path / "x.zip", "--fill")
    line = "of these the experiment has RTE.tsv; glue-bench run goes on with what is missing"
    assert line in glue_bench("submit", tmp_path / "tiny", *words).out


def test_submit_warns_of_a_zip_that_the_site_will_not_take(submitted, tmp_path):
    warning = f"warning: the site will not take {tmp_path / 'x.zip'}:"
    assert submitted.status == 1
    assert submitted.err.splitlines() == [warning, *FINDINGS]


@pytest.mark.usefixtures("submitted")
def test_a_check_of_a_zip_lists_what_submit_warned_of(glue_bench, tmp_path):
    assert glue_bench("submit", "--check", tmp_path / "x.zip").out.splitlines() == FINDINGS


@pytest.mark.usefixtures("submitted")
def test_ax_is_predicted_by_the_run_of_mnli(tmp_path):
    files = json.loads((tmp_path / "x.json").read_text())["files"]
    assert files["AX.tsv"]["cell_id"] == files["MNLI-m.tsv"]["cell_id"]
    assert files["AX.tsv"]["data"] == DemoSource().load("ax").digest


def test_a_zip_is_called_good_or_its_findings_are_listed_one_a_line(glue_bench, tmp_path):
    path = tmp_path / "it.zip"
    path.write_bytes(make_zip({name: fill_file(file) for name, file in FILES.items()}))
    expected = (
        0,
        f"{path}: good; 11 files, 426309 predictions\n",
        "",
    )
    assert glue_bench("submit", "--check", path) == expected
    path.write_bytes(
        make_zip({"WNLI.tsv": fill_file(FILES["WNLI.tsv"]).replace(b"\n7\t0", b"\n7\tentailment")})
    )
    result = glue_bench("submit", "--check", path)
    assert (result.status, len(result.out.splitlines())) == (1, 11)
    assert (
        r"WNLI.tsv, line 9: '7\tentailment'; expected 7, a tab, and 0 or 1"
        in result.out.splitlines()
    )
