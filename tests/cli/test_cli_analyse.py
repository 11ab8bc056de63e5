"""`glue-bench analyse`: what it prints and leaves, and one line for bad input."""

import json

import pandas as pd
import pytest

from glue_bench.training.convert import SENTENCES


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(SENTENCES))
    return path


def test_a_page_is_printed_and_numbers_tables_and_figures_are_left(make_bert, text, glue_bench, tmp_path):
    folder = make_bert(texts=SENTENCES)
    wanted = ("--only", "subspaces,dimensions", "--corpus", text, "--figures", "svg", "-o", tmp_path / "found")
    said = glue_bench("analyse", folder, *wanted)
    assert said.status == 0
    assert said.out == (tmp_path / "found" / "analysis.md").read_text()
    assert said.out.startswith("# Inside the encoders\n")
    document = json.loads((tmp_path / "found" / "analysis.json").read_text())
    curve = pd.read_csv(tmp_path / "found" / "subspace_curve.csv")
    assert curve["m"].max() == document["checkpoints"][folder.name]["width"]
    drawn = {path.stem for path in (tmp_path / "found").glob("*.svg")}
    assert drawn == {"subspace_curve", "spectrum", "dimensions"}
