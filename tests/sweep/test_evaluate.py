"""Classifiers that were fine-tuned elsewhere are scored by the names of their outputs."""

import numpy as np
import pytest
import transformers
from helpers import tiny_runs
from helpers.classifiers import name_outputs, permuted, save_classifier
from helpers.tiny_models import edit_settings, edit_weights

import glue_bench
from glue_bench.data.demo import generate
from glue_bench.data.tasks import NLI_3, TASKS
from glue_bench.errors import UserError
from glue_bench.records.store import Store

OPTIONS = {"data": "demo", "limit": 24, "max_length": 32, "device": "cpu"}
ORDER = (2, 0, 1)
TRAINED = {
    "name": "trained",
    "limit": 24,
    "tasks": ["rte", "mnli", "stsb"],
    "finetuning": {"keep": "all", "predict": ["validation", "test"]},
}


def evaluate(place, checkpoint, **options):
    """Evaluate classifiers with nothing failed; return the folder of the results."""
    summary = glue_bench.evaluate(checkpoint, results=place / "runs", **OPTIONS | options)
    assert not summary.failed
    return summary.folder


def logits_of(folder, arm, task="mnli"):
    """Return the logits of an arm's scored splits."""
    store = Store(folder)
    records = store.finished(store.plan()).records.values()
    (record,) = [r for r in records if (r.cell.arm, r.cell.task) == (arm, task)]
    return store.logits(record)


def record_of(folder):
    """Return the only record of a folder."""
    store = Store(folder)
    (record,) = store.finished(store.plan()).records.values()
    return record


@pytest.fixture(scope="module")
def nli(tmp_path_factory):
    """A classifier of MNLI whose outputs are named, and copies of it with another order."""
    place = tmp_path_factory.mktemp("classifiers")
    first = save_classifier(place / "first", NLI_3)
    permuted(first, place / "named", ORDER)
    permuted(first, place / "numbered", ORDER, named=False)
    return place


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The records of a run that keeps its models, and the folders of these models, by task."""
    place = tmp_path_factory.mktemp("trained")
    folder = save_classifier(place / "bert", ("zero", "one"))
    arms = [
        {"variant": "add", "checkpoint": "scratch"},
        {"variant": "native", "checkpoint": str(folder)},
    ]
    values = tiny_runs.merged(tiny_runs.TINY, TRAINED | {"arms": arms, "checkpoint": None})
    results = tiny_runs.run(values, place)
    store = Store(results)
    kept = {}
    for record in store.finished(store.plan()).records.values():
        kept[record.cell.variant, record.cell.task] = (record, store.models.find_whole(record))
    return kept


@pytest.mark.parametrize("task", TRAINED["tasks"])
@pytest.mark.parametrize("variant", ["add", "native"])
def test_a_model_that_was_kept_gets_its_record_again_to_the_last_bit(
    trained, variant, task, tmp_path
):
    record, model = trained[variant, task]
    evaluated = record_of(evaluate(tmp_path, str(model), tasks=[task], predicts_test=True))
    assert evaluated.scores == record.scores
    assert evaluated.logits == record.logits
    assert evaluated.tests == record.tests


@pytest.mark.parametrize("has_names", [True, False], ids=["named", "numbered"])
@pytest.mark.parametrize("variant", ["add", "native"])
def test_a_kept_model_with_a_permuted_head_gets_the_scores_of_its_record(
    trained, variant, has_names, tmp_path
):
    record, model = trained[variant, "mnli"]
    folder = permuted(model, tmp_path / "permuted", ORDER, named=has_names)
    labels = [] if has_names else [NLI_3[place] for place in ORDER]
    evaluated = record_of(evaluate(tmp_path, str(folder), tasks=["mnli"], labels=labels))
    assert evaluated.scores == record.scores


def test_the_order_of_outputs_changes_nothing(nli, tmp_path):
    labels = [NLI_3[place] for place in ORDER]
    names = ["first", "named", "numbered"]
    checkpoints = [str(nli / name) for name in names]
    folder = evaluate(tmp_path, checkpoints, tasks=["mnli"], labels=labels, name="orders")
    first, *permutations = [logits_of(folder, name)["validation_matched"] for name in names]
    assert np.ptp(first, axis=0).min() > 1e-3
    for logits in permutations:
        np.testing.assert_allclose(logits, first, atol=1e-6)


def test_probabilities_are_those_of_transformers_own_pipeline(nli, tmp_path):
    folder = evaluate(tmp_path, str(nli / "named"), tasks=["mnli"], limit=None)
    logits = logits_of(folder, "named")["validation_matched"][:12]
    rows = generate("mnli")["validation_matched"][:12]
    pairs = []
    for first, second in zip(rows["text_a"], rows["text_b"], strict=True):
        pairs.append({"text": first, "text_pair": second})
    pipeline = transformers.pipeline("text-classification", str(nli / "named"), top_k=None)
    expected = []
    for answers in pipeline(pairs):
        probabilities = {answer["label"]: answer["score"] for answer in answers}
        expected.append([probabilities[label] for label in NLI_3])
    exponentials = np.exp(logits)
    actual = exponentials / exponentials.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_fewer_rows_at_once_round_otherwise_and_no_more(nli, tmp_path):
    at_once = evaluate(tmp_path, str(nli / "first"), tasks=["mnli"], name="whole")
    parts = evaluate(tmp_path, str(nli / "first"), tasks=["mnli"], name="parts", batch_size=3)
    expected = logits_of(at_once, "first")["validation_matched"]
    actual = logits_of(parts, "first")["validation_matched"]
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    assert record_of(parts).cell.id != record_of(at_once).cell.id


def test_the_same_call_goes_on_where_it_ended(nli, tmp_path):
    evaluate(tmp_path, str(nli / "first"), tasks=["mnli"])
    summary = glue_bench.evaluate(
        str(nli / "first"), tasks=["mnli"], results=tmp_path / "runs", **OPTIONS
    )
    assert (summary.finished, summary.skipped) == (0, 1)


def test_the_name_of_the_task_stands_in_the_name_of_the_checkpoint(tmp_path):
    for task in ("SST-2", "RTE"):
        labels = TASKS[task.lower().replace("-", "")].labels
        save_classifier(tmp_path / f"bert-{task}", labels)
    folder = evaluate(tmp_path, str(tmp_path / "bert-{TASK}"), tasks=["sst2", "rte"])
    frame = glue_bench.leaderboard(folder)
    assert frame["arm"][0] == "bert"
    assert frame[["sst2", "rte"]].notna().all(axis=None)


def test_finished_arms_are_compared_by_their_examples_and_with_no_other_arms(nli, tmp_path):
    finished = [
        {"name": name, "variant": "finished", "checkpoint": str(nli / name)}
        for name in ("first", "named")
    ]
    arms = [*finished, {"variant": "add", "checkpoint": "scratch"}]
    values = tiny_runs.merged(
        tiny_runs.TINY, {"arms": arms, "checkpoint": None, "tasks": ["mnli"], "limit": 24}
    )
    folder = tiny_runs.run(values, tmp_path)
    contrasts = glue_bench.statistics(folder)
    assert set(contrasts["reference"]) == {"first"}
    assert set(contrasts["arm"]) == {"named"}
    assert set(contrasts["seeds"]) == {"examples"}


def test_train_is_not_needed(tmp_path):
    data = tmp_path / "glue"
    source = tiny_runs.glue()
    (data / "STS-B").mkdir(parents=True)
    (data / "STS-B" / "dev.tsv").write_bytes((source / "STS-B" / "dev.tsv").read_bytes())
    model = save_classifier(tmp_path / "model-of-stsb", ["LABEL_0"])
    folder = evaluate(tmp_path, str(model), tasks=["stsb"], data=str(data), limit=None)
    assert record_of(folder).scores["validation"]["pearson"] is not None


def test_a_sigmoid_that_the_settings_name_ends_a_score(tmp_path):
    activation = {"activation_fn": "torch.nn.modules.activation.Sigmoid"}
    plain = save_classifier(tmp_path / "plain", ["LABEL_0"])
    ended = save_classifier(tmp_path / "ended", ["LABEL_0"], sentence_transformers=activation)
    folder = evaluate(tmp_path, [str(plain), str(ended)], tasks=["stsb"])
    logits = logits_of(folder, "plain", "stsb")["validation"]
    expected = 1 / (1 + np.exp(-logits))
    actual = logits_of(folder, "ended", "stsb")["validation"]
    np.testing.assert_allclose(actual, expected, atol=1e-6)


def without_head(weights):
    del weights["classifier.weight"]


@pytest.mark.parametrize(
    ("outputs", "task", "line"),
    [
        (NLI_3, "rte", "has 3 outputs .*, but RTE has 2 classes .*leave out"),
        (NLI_3, "stsb", "has 3 outputs .*, but STS-B is one number"),
        (["LABEL_0"], "rte", "has one output, a number, but RTE has the classes"),
        (["LABEL_0", "LABEL_1"], "rte", "numbers its outputs .*such as entailment,not_entailment"),
        (["good", "bad"], "rte", "names its outputs 'good', 'bad', and RTE asks for"),
        (["entailment", "entails"], "rte", "names its outputs 'entailment', 'entails'"),
    ],
)
def test_outputs_that_are_not_the_classes_are_refused(outputs, task, line, tmp_path):
    model = save_classifier(tmp_path / "model", outputs)
    if len(outputs) == 2:
        name_outputs(model, outputs)
    with pytest.raises(UserError, match=line):
        evaluate(tmp_path, str(model), tasks=[task])


def test_a_head_that_was_never_trained_is_refused(tmp_path):
    model = save_classifier(tmp_path / "model", NLI_3)
    edit_weights(model, without_head)
    with pytest.raises(UserError, match=r"no trained head: classifier.weight is absent"):
        evaluate(tmp_path, str(model), tasks=["mnli"])


def test_a_head_of_another_shape_is_refused(tmp_path):
    model = save_classifier(tmp_path / "model", NLI_3)
    edit_settings(model, id2label={"0": "entailment", "1": "not_entailment"})
    with pytest.raises(
        UserError, match=r"no trained head: classifier\.(weight|bias) is absent, or"
    ):
        evaluate(tmp_path, str(model), tasks=["rte"])


@pytest.mark.parametrize("labels", [["entailment", "neutral"], ["yes", "no", "maybe"]])
def test_labels_that_are_not_the_classes_are_refused(nli, labels, tmp_path):
    with pytest.raises(UserError, match=r"labels: .*entailment, neutral, contradiction"):
        evaluate(tmp_path, str(nli / "numbered"), tasks=["mnli"], labels=labels)


def test_a_task_is_asked_for(tmp_path):
    with pytest.raises(UserError, match="give the tasks"):
        evaluate(tmp_path, "org/model")


def test_verify_finds_no_fault(nli, tmp_path):
    (verified,) = glue_bench.verify(evaluate(tmp_path, str(nli / "first"), tasks=["mnli"]))
    assert verified.faults == []


def test_no_seeds_are_advised(nli, tmp_path):
    checkpoints = [str(nli / "first"), str(nli / "named")]
    folder = evaluate(tmp_path, checkpoints, tasks=["mnli"], name="two")
    with pytest.raises(UserError, match="finished models, whose scores no seed changes"):
        glue_bench.statistics(folder, difference=1.0)
