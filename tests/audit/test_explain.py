"""Why a cell runs again: what differs from what is stored, and from nothing else."""

import json

import pytest
from stored import documents

from glue_bench.api import explain as explain_experiment
from glue_bench.audit.explain import explain
from glue_bench.errors import UserError
from glue_bench.records.plan import Plan
from glue_bench.records.record import Environment, FailureRecord, Record
from glue_bench.records.store import Store


def said(explanation, number=0):
    """What differs from a candidate: name -> (before, now)."""
    return {d.what: (d.before, d.after) for d in explanation.candidates[number].differences}


def plan_after(folder, change):
    """The stored plan after a change; cells whose identity has changed get other ids, as a sweep would give them."""
    document = json.loads((folder / "plan.json").read_text())
    change(document)
    plan = Plan.model_validate(document)
    for cell, entry in zip(plan.cells, document["cells"], strict=True):
        source = next((c["cell_id"] for c in document["cells"] if c["arm"] == cell.arm and c["task"] == "mnli"), None)
        settled = cell.model_copy(update={"from_mnli": source if cell.from_mnli else None})
        entry["cell_id"] = cell.id(plan.identity(settled).digest)
        if cell.from_mnli:
            entry["from_mnli"] = source
    return Plan.model_validate(document)


CHANGES = {
    "data": (
        lambda plan: plan["tasks"]["stsb"].update(data="c3d4" * 16),
        "add-stsb",
        {"data of stsb (their content)": (None, "c3d4c3d4c3d4")},
    ),
    "epochs": (
        lambda plan: plan["tasks"]["stsb"]["hyperparameters"].update(epochs=4),
        "add-stsb",
        {"finetuning.epochs": ("1", "4")},
    ),
    "option": (
        lambda plan: plan["arms"]["untied"].update(options={"segments": "input"}),
        "untied-stsb",
        {"options.segments": ("scores", "input")},
    ),
    "list": (
        lambda plan: plan["arms"]["untied"].update(options={"segments": ["input"]}),
        "untied-stsb",
        {"options.segments": ("scores", '["input"]')},
    ),
    "option gone": (
        lambda plan: plan["arms"]["untied"].update(options={}),
        "untied-stsb",
        {"options.segments": ("scores", "-")},
    ),
    "plugin": (
        lambda plan: plan["arms"]["add"].update(plugin="ab" * 32),
        "add-stsb",
        {"plugin (its source)": ("-", "abababababab")},
    ),
    "tokenizer": (
        lambda plan: plan["arms"]["add"].update(tokenizer="ab" * 32),
        "add-stsb",
        {"tokenizer (how it splits text)": (None, "abababababab")},
    ),
    "data of mnli": (
        lambda plan: plan["tasks"]["mnli"].update(data="c3d4" * 16),
        "add-rte",
        {"its MNLI run: data of mnli (their content)": (None, "c3d4c3d4c3d4")},
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_what_was_changed_is_named_and_nothing_else(finished, case):
    change, name, expected = CHANGES[case]
    explanation = explain(Store(finished), plan_after(finished, change), name)
    assert explanation.state == "missing"
    assert explanation.candidates[0].cell_id.startswith(name)
    found = said(explanation)
    assert found.keys() == expected.keys()
    for what, (before, after) in expected.items():
        assert found[what][1] == after
        assert before is None or found[what][0] == before


EDITS = {
    "pretraining": ({"pretraining": {"learning_rate": 2e-3}}, "add-stsb", {"pretraining.learning_rate"}),
    "steps": ({"pretraining": {"steps": 12}}, "add-rte", {"pretraining.steps"}),
    "sizes": ({"scratch": {"hidden_size": 32}}, "add-rte", {"pretraining: scratch.hidden_size"}),
    "batch": ({"finetuning": {"batch_size": 8}}, "untied-rte", {"finetuning.batch_size"}),
    "not from mnli": ({"finetuning": {"from_mnli": []}}, "add-rte", {"starts from an MNLI run"}),
    "rate": ({"finetuning": {"learning_rates": [2e-3]}}, "add-stsb", {"finetuning.learning_rate"}),
    "seed": ({"seeds": [2]}, "add-stsb", {"seed"}),
    "no pretraining": ({"pretraining": None}, "add-stsb", {"starts from", "tokenizer (how it splits text)"}),
}


@pytest.mark.parametrize("case", EDITS)
def test_an_edited_file_is_compared_before_anything_is_run(finished, experiment, case, monkeypatch):
    monkeypatch.setattr("glue_bench.sweep.records.budget", lambda *_: {})  # what an arm costs is in no identity
    edits, name, expected = EDITS[case]
    for key, value in edits.items():
        if isinstance(value, dict):
            experiment[key] |= value
        else:
            experiment[key] = value
    before = sorted(finished.rglob("*"))
    explanation = explain_experiment(name, experiment, results=finished.parent)
    assert explanation.state == "missing"
    assert said(explanation).keys() == expected
    assert sorted(finished.rglob("*")) == before


def test_a_limit_makes_other_cells_as_in_a_run(finished, experiment, monkeypatch):
    monkeypatch.setattr("glue_bench.sweep.records.budget", lambda *_: {})
    explanation = explain_experiment("add-stsb", experiment, results=finished.parent, limit=4)
    assert explanation.state == "missing"
    assert "data of stsb (their content)" in said(explanation)


def test_a_finished_cell_says_where_it_was_made_and_what_does_not_count(finished):
    store = Store(finished)
    record = documents(store)[0]
    was = Environment(**record["environment"])
    now = was.model_copy(update={"packages": {**was.packages, "torch": "9.9"}})
    same = explain(store, store.read_plan(), record["cell_id"], was)
    assert (same.state, same.candidates) == ("done", ())
    assert same.remarks[0].startswith("made by glue-bench ")
    assert len(same.remarks) == 1
    other = explain(store, store.read_plan(), record["cell_id"], now)
    assert f"does not count: torch {record['environment']['packages']['torch']} -> 9.9" in other.remarks[1]


def test_a_cell_that_ran_again_shows_the_record_before_it_and_that_one_what_took_its_place(finished):
    store = Store(finished)
    plan = plan_after(finished, CHANGES["epochs"][0])
    old, new = (next(c.cell_id for c in p.cells if c.arm == "add" and c.task == "stsb")
                for p in (store.read_plan(), plan))  # fmt: skip
    record = next(record for record in documents(store) if record["cell_id"] == old)
    again = {**record, "cell_id": new, "hyperparameters": {**record["hyperparameters"], "epochs": 4}}
    del again["digest"], again["predictions_sha256"]
    store.write_record(Record(**again), store.read_predictions(old))
    ran = explain(store, plan, "add-stsb")
    assert (ran.cell_id, ran.state, [c.cell_id for c in ran.candidates]) == (new, "done", [old])
    assert said(ran) == {"finetuning.epochs": ("1", "4")}
    gone = explain(store, plan, old)
    assert (gone.state, [c.cell_id for c in gone.candidates]) == ("no longer asked for", [new])
    assert said(gone) == {"finetuning.epochs": ("1", "4")}


def test_a_failed_cell_says_why(finished):
    store = Store(finished)
    plan = plan_after(finished, CHANGES["epochs"][0])
    name = next(cell.cell_id for cell in plan.cells if cell.task == "stsb")
    store.write_failure(FailureRecord(cell_id=name, error="RuntimeError: out of luck"))
    explanation = explain(store, plan, name)
    assert explanation.state == "failed"
    assert explanation.remarks == ("RuntimeError: out of luck (the next run tries it again)",)
    assert said(explanation) == {"finetuning.epochs": ("1", "4")}


def test_an_edited_record_is_done_but_left_out_of_tables(finished, edit):
    path = next((finished / "records").glob("add-stsb*"))
    edit(path, lambda record: record.update(seconds={"total": 1, "training": 1}))
    store = Store(finished)
    explanation = explain(store, store.read_plan(), "add-stsb")
    assert explanation.state == "done"
    assert "tables leave it out: records/add-stsb" in explanation.remarks[0]
    assert "edited since the run wrote it" in explanation.remarks[0]


def test_an_mnli_cell_runs_once_more_for_its_encoder(finished):
    store = Store(finished)
    next((finished / "records").glob("add-rte*")).unlink()
    explanation = explain(store, store.read_plan(), "add-mnli")
    assert "its encoder is gone and add-rte-lr0.001-s1-step10-" in explanation.remarks[1]
    (finished / "checkpoints" / f"add-mnli-s1-{explanation.cell_id[-12:]}").mkdir(parents=True)
    assert len(explain(store, store.read_plan(), "add-mnli").remarks) == 1


def test_a_claimed_cell_is_said_to_run(finished):
    path = next((finished / "records").glob("add-stsb*"))
    path.unlink()
    (finished / "claims").mkdir(exist_ok=True)
    (finished / "claims" / path.stem).write_text("{}")
    store = Store(finished)
    assert "a sweep runs it just now" in explain(store, store.read_plan(), "add-stsb").remarks[1]


def test_facts_that_an_older_record_lacks_are_not_guessed(finished, edit):
    for path in (finished / "records").glob("*.json"):
        edit(path, lambda record: [record.pop(key) for key in ("tokenizer", "digest")])
    for path in (finished / "pretraining").glob("*.json"):
        path.unlink()
    edit(finished / "plan.json", lambda plan: [facts.pop("identity") for facts in plan["pretrainings"]])
    plan = plan_after(finished, CHANGES["epochs"][0])
    explanation = explain(Store(finished), plan, "add-stsb")
    assert said(explanation) == {"finetuning.epochs": ("1", "4")}
    assert explanation.candidates[0].unknown == ("tokenizer (how it splits text)",)


def test_an_older_plan_asks_for_the_experiment_file(finished):
    store = Store(finished)
    plan = plan_after(finished, CHANGES["epochs"][0]).model_copy(update={"tasks": {}})
    with pytest.raises(UserError, match="give the experiment file in place of the folder"):
        explain(store, plan, "add-stsb")
    assert explain(store, plan, "add-rte").state == "done"


def test_a_stray_record_beside_an_older_plan_has_nothing_to_be_compared_with(finished, edit):
    path = next((finished / "records").glob("add-stsb*"))
    (path.parent / f"stray-{path.name}").write_bytes(path.read_bytes())
    edit(
        path.parent / f"stray-{path.name}",
        lambda record: [record.update(cell_id=f"stray-{path.stem}"), record.pop("digest")],
    )
    store = Store(finished)
    plan = store.read_plan().model_copy(update={"tasks": {}})
    explanation = explain(store, plan, "stray")
    assert (explanation.state, explanation.candidates) == ("no longer asked for", ())


def test_a_plan_that_lacks_an_arm_was_edited(finished):
    next((finished / "records").glob("add-stsb*")).unlink()
    store = Store(finished)
    plan = store.read_plan()
    plan = plan.model_copy(update={"arms": {"untied": plan.arms["untied"]}})
    with pytest.raises(UserError, match=r"plan.json: edited \(nothing is said of 'add'\); run the experiment again"):
        explain(store, plan, "add-stsb")


def test_a_failure_without_a_plan_says_that_there_is_none(tmp_path):
    store = Store(tmp_path)
    store.prepare()
    store.write_failure(FailureRecord(cell_id="add-rte", task="rte", error="RuntimeError: out of luck"))
    with pytest.raises(UserError, match=r"no record, and there is no plan.json; give the experiment file"):
        explain(store, store.read_plan(), "add-rte")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("add-stsx", r"no cell 'add-stsx' in .*; did you mean add-stsb-lr0.001-s1-step10-[0-9a-f]{12}\?"),
        ("zzz", r"no cell 'zzz' in .*; its cells: add-mnli-.*, untied-mnli-"),
        ("stsb", r"2 cells have ids with 'stsb': add-stsb-.*, untied-stsb-.*; give more of it"),
    ],
)
def test_an_unknown_or_ambiguous_cell_is_one_line(finished, name, message):
    store = Store(finished)
    with pytest.raises(UserError, match=message):
        explain(store, store.read_plan(), name)


# The verb


def test_values_are_printed_as_they_are(glue_bench, finished, edit):
    edit(finished / "plan.json", lambda plan: plan.update(plan_after(finished, CHANGES["list"][0]).document()))
    assert 'options.segments  scores  ["input"]' in glue_bench("explain", "untied-stsb", finished).out


def test_the_verb_looks_through_runs(glue_bench, refused, finished, experiment, write_yaml, monkeypatch):
    monkeypatch.chdir(finished.parents[1])
    name = next(cell["cell_id"] for cell in json.loads((finished / "plan.json").read_text())["cells"])
    assert glue_bench("explain", name).out.startswith(f"{name}: done; made by glue-bench ")
    assert glue_bench("explain", name, finished).out.startswith(f"{name}: done; ")
    assert "no cell 'x-y' in 'runs/small'" in refused("explain", "x-y")
    assert "go with an experiment file" in refused("explain", name, finished, "--data", "demo")
    experiment["finetuning"]["epochs"] = 3
    experiment["arms"][1]["options"] = {"segments": "none"}
    assert "scores  none" in glue_bench("explain", "untied-stsb", write_yaml(experiment)).out
    out = glue_bench("explain", "add-stsb", write_yaml(experiment)).out
    assert "missing; no record has this id, so the cell is to be run" in out
    assert [line.split() for line in out.splitlines()[-2:]] == [
        ["what", "differs", "before", "now"],
        ["finetuning.epochs", "1", "3"],
    ]


def test_the_verb_says_which_experiment_to_name(refused, finished, monkeypatch):
    import shutil

    shutil.copytree(finished, finished.with_name("other"))
    monkeypatch.chdir(finished.parents[1])
    assert "'add-stsb' is in runs/other, runs/small; give one of them after it" in refused("explain", "add-stsb")
    assert "no cell 'zz' in runs/other, runs/small; glue-bench run CONFIG --dry-run" in refused("explain", "zz")
