"""The notebook of the documentation runs from its first cell to its last, and shows what it says that it shows."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from pages import ROOT

NOTEBOOK = ROOT / "docs" / "tutorial" / "notebook.ipynb"


@pytest.mark.slow
def test_the_notebook_runs(tmp_path):
    pytest.importorskip("nbconvert")
    pytest.importorskip("ipykernel")
    shutil.copy(NOTEBOOK, tmp_path)
    words = ["nbconvert", "--to", "notebook", "--execute", NOTEBOOK.name, "--output", "done.ipynb"]
    asked = {"PYTHONPATH": str(ROOT), "GLUE_BENCH_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}
    said = subprocess.run(
        [sys.executable, "-m", "jupyter", *words],
        cwd=tmp_path,
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr[-2000:]
    cells = [cell for cell in json.loads((tmp_path / "done.ipynb").read_bytes())["cells"] if "outputs" in cell]
    shown = [json.dumps(cell["outputs"]) for cell in cells]
    # tqdm asks for ipywidgets where it is first imported in a notebook; that is the first cell's only remark.
    assert not any("Warning" in text for text in shown[1:]), shown
    assert "[12/12]" in shown[1]
    assert "<table" in shown[2]
    assert (tmp_path / "runs" / "notebook" / "report.html").is_file()


def test_the_notebook_is_kept_without_what_a_run_left():
    cells = json.loads(NOTEBOOK.read_bytes())["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
