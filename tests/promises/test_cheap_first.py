"""A mistake that is cheap to find is refused before expensive work begins.

Expensive are heavy imports, and reading data, text or checkpoints, and checking a contract.
"""

import json
import subprocess
import sys

import pytest

from glue_bench import run
from glue_bench.errors import UserError

OWN_TASK = {
    "name": "Mine",
    "files": {"train": "nowhere.csv", "validation": "nowhere.csv"},
    "texts": "text",
    "labels": ["no", "yes"],
}
CHEAP = {
    "a misspelt key": (
        {"finetuning": {"epoch": 1}},
        {},
        "unknown key 'epoch' in finetuning; did you mean 'epochs'?",
    ),
    "a misspelt tracker": ({}, {"track": "tensorbord"}, "unknown tracker 'tensorbord' in --track"),
    "a device": ({}, {"device": "tpu"}, "device 'tpu' is none of auto, cpu, cuda, mps"),
    "a precision": ({}, {"precision": "fp16"}, "precision 'fp16' is none of auto, float32, bf16"),
    "a number of workers": ({}, {"workers": 0}, "workers 0: give a whole number"),
    "two engines": ({}, {"workers": 2, "slurm": {}}, "--slurm goes without --workers"),
    "an address": ({}, {"address": "nowhere"}, "--address is HOST:PORT"),
    "a cluster": ({}, {"address": "127.0.0.1:1"}, "no Ray cluster answers at 127.0.0.1:1"),
    "a key of --only": (
        {},
        {"only": "tusk=rte"},
        "unknown key 'tusk' in --only; did you mean 'task'?",
    ),
    "a task of --only": ({}, {"only": "task=rte"}, "unknown task 'rte' in --only"),
    "a rate of --only": (
        {},
        {"only": "learning_rate=1e-2"},
        "unknown learning_rate '0.01' in --only",
    ),
    "a file of a task of one's own": (
        {"tasks": [OWN_TASK]},
        {},
        "file 'nowhere.csv' does not exist",
    ),
    "a folder of data": ({"data": "./nowhere"}, {}, "folder ./nowhere does not exist"),
    "a folder of a checkpoint": (
        {"checkpoint": "./nowhere"},
        {},
        "no checkpoint folder './nowhere'",
    ),
    "a folder of nobody": (
        {"checkpoint": "~nobody-here/bert"},
        {},
        "'~nobody-here/bert': there is no user ~nobody-here; write the folder out",
    ),
    "results on the web": ({}, {"results": "s3://bucket/runs"}, "s3://bucket/runs"),
}
"""Changes to the tiny experiment, options of `run`, and what the error says.

No case needs torch.
"""
CHEAP_WITH_TORCH = {
    "a misspelt variant": (
        {"arms": ["ad"]},
        "unknown variant 'ad' in arm 'ad'; did you mean 'add'?",
    ),
    "a misspelt option": (
        {"arms": [{"name": "a", "variant": "concat-split", "options": {"tokn": 1}}]},
        "arm 'a': unknown option 'tokn' in variant 'concat-split'",
    ),
}
PLUGIN = """
from glue_bench.model.variants.additive import Add

class Scaled(Add):
    name = "scaled"

    def __init__(self, dims, *, start: float = 1.0):
        super().__init__(dims)
"""
REFUSES = """
import json, sys
for name in ("torch", "transformers", "datasets"):
    sys.modules[name] = None  # an import of it fails
import glue_bench
messages = {}
for case, (experiment, options) in json.loads(sys.argv[1]).items():
    try:
        glue_bench.run(experiment, **options)
    except glue_bench.errors.UserError as error:
        messages[case] = str(error)
print(json.dumps(messages))
"""
"""Prints what a run of each experiment says, in an interpreter that cannot import anything
heavy.
"""


@pytest.fixture
def nothing_expensive(monkeypatch):
    """Make a test fail if it opens a source of data or checks a contract."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("this is expensive")

    monkeypatch.setattr("glue_bench.training.task_inputs.open_source", refuse)
    monkeypatch.setattr("glue_bench.model.plugins.check_contract", refuse)


@pytest.fixture(scope="module")
def messages(tiny, tmp_path_factory) -> dict[str, str]:
    """Return the error message of a run for each case of CHEAP."""
    results = str(tmp_path_factory.mktemp("results"))
    runs: dict[str, tuple[object, object]] = {}
    for case, (changes, options, _) in CHEAP.items():
        runs[case] = (tiny(**changes), {"results": results} | options)
    return refusals(runs)


def refusals(runs: dict[str, tuple[object, object]]) -> dict[str, str]:
    """Return the error messages of runs without heavy imports; a run is an experiment, options."""
    command = [sys.executable, "-c", REFUSES, json.dumps(runs)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@pytest.mark.parametrize("case", CHEAP)
def test_a_cheap_mistake_is_refused_before_heavy_imports(messages, case):
    _, _, expected = CHEAP[case]
    assert expected in messages[case]


def test_outputs_that_are_no_classes_are_refused_before_heavy_imports(tiny, tmp_path):
    settings = {
        "architectures": ["BertForSequenceClassification"],
        "id2label": {"0": "a", "1": "b"},
    }
    (tmp_path / "config.json").write_text(json.dumps(settings))
    arm = {"name": "clf", "variant": "finished", "checkpoint": str(tmp_path)}
    values = tiny(arms=[arm], checkpoint=None, tasks=["mnli"])
    message = refusals({"outputs": (values, {"results": str(tmp_path / "runs")})})["outputs"]
    assert "has 2 outputs ('a', 'b'), but MNLI has 3 classes" in message


@pytest.mark.usefixtures("nothing_expensive")
@pytest.mark.parametrize("case", CHEAP_WITH_TORCH)
def test_a_misspelt_name_of_an_arm_is_refused_before_data_is_opened(tiny, tmp_path, case):
    changes, expected = CHEAP_WITH_TORCH[case]
    with pytest.raises(UserError) as caught:
        run(tiny(**changes), results=tmp_path)
    assert expected in str(caught.value)


@pytest.mark.usefixtures("nothing_expensive")
def test_a_misspelt_option_of_a_plugin_is_refused_before_its_contract_is_checked(
    tiny, tmp_path, write_plugin
):
    arms = [{"name": "a", "variant": "scaled", "options": {"strat": 2.0}}]
    with pytest.raises(
        UserError, match="unknown option 'strat' in variant 'scaled'; did you mean 'start'"
    ):
        run(tiny(arms=arms, plugins=[str(write_plugin(PLUGIN))]), results=tmp_path)


@pytest.mark.usefixtures("nothing_expensive")
def test_a_missing_slurm_is_reported_before_data_is_opened(tiny, tmp_path, monkeypatch):
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="no Slurm answers here"):
        run(tiny(), results=tmp_path, slurm={"partition": "cpu"})


@pytest.mark.usefixtures("nothing_expensive")
def test_a_missing_ray_is_reported_before_data_is_opened(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("glue_bench.sweep.request.find_spec", lambda _: None)
    with pytest.raises(UserError, match="need ray; install it"):
        run(tiny(), results=tmp_path, workers=2)


def test_the_contract_of_a_plugin_is_checked_although_it_is_already_loaded(
    tiny, tmp_path, write_plugin
):
    broken = PLUGIN + "\n    def forward(self, token_ids, segment_ids):\n        return None\n"
    with pytest.raises(UserError, match="variant 'scaled' does not meet the contract"):
        run(tiny(plugins=[str(write_plugin(broken))]), results=tmp_path)
