"""The experiment file: what it means, and what is said about a mistake in it."""

from pathlib import Path

import pytest

from glue_bench.config import Experiment, changed_protocol, load_experiment
from glue_bench.config.load import parse_options
from glue_bench.config.settings import Finetuning
from glue_bench.errors import UserError

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
MINIMAL = {"name": "x", "data": "demo", "checkpoint": "scratch", "arms": ["add"]}
PRETRAINED = {"corpus": "demo", "steps": 9}


def loaded(**changes) -> Experiment:
    return load_experiment(MINIMAL | changes)


# What a file means


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_shipped_experiments_load_and_are_what_they_hold(path):
    experiment = load_experiment(path)
    assert experiment.name == path.stem
    assert load_experiment(str(path)) == load_experiment(experiment) == experiment
    assert load_experiment(experiment.model_dump(mode="json", by_alias=True)) == experiment


@pytest.fixture
def settings() -> Finetuning:
    """Shared settings of fine-tuning; RTE and CoLA have some of their own, and MRPC has none."""
    of_rte = {
        "learning_rates": [1e-4],
        "epochs": 3,
        "batch_size": 8,
        "max_length": 16,
        "limit": 100,
    }
    shared = {"learning_rates": [1e-5, 2e-5], "epochs": 5, "max_steps": 7}
    tasks = {"RTE": of_rte, "cola": {"epochs": 2}}
    return loaded(finetuning=shared | {"tasks": tasks}).finetuning


@pytest.mark.parametrize(
    ("task", "rates"), [("rte", [1e-4]), ("cola", [1e-5, 2e-5]), ("mrpc", [1e-5, 2e-5])]
)
def test_learning_rates_of_a_task_take_the_place_of_shared_ones(settings, task, rates):
    assert settings.rates(task) == rates


@pytest.mark.parametrize(("task", "limit"), [("rte", 100), ("cola", None), ("mrpc", None)])
def test_the_limit_of_a_task_is_its_own(settings, task, limit):
    assert settings.limit(task) == limit


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("rte", {"epochs": 3, "batch_size": 8, "max_length": 16, "clip_norm": 1.0}),
        ("cola", {"epochs": 2, "batch_size": 32, "max_length": 128, "clip_norm": 1.0}),
        ("mrpc", {"epochs": 5, "batch_size": 32, "max_length": 128, "clip_norm": 1.0}),
    ],
)
def test_settings_of_a_task_take_the_place_of_shared_ones(settings, task, expected):
    values = settings.hyperparameters(task, 1e-4)
    assert values.learning_rate == 1e-4
    assert {name: getattr(values, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("task", "steps_per_epoch", "steps"), [("rte", 2, 6), ("cola", 2, 4), ("rte", 100, 7)]
)
def test_a_run_has_its_epochs_of_steps_and_at_most_max_steps(
    settings, task, steps_per_epoch, steps
):
    values = settings.hyperparameters(task, 1e-4)
    assert values.steps(in_epoch=steps_per_epoch) == steps


def test_arms_inherit_their_variants_name_and_checkpoint_revision_and_tokenizer_together():
    arms = [
        "add",
        {"variant": "none", "tokenizer": "own"},
        {"variant": "concat", "name": "floor", "checkpoint": "elsewhere"},
        {"variant": "untied", "revision": "r2"},
    ]
    shared = {"checkpoint": "base", "revision": "r1", "tokenizer": "words"}
    read = loaded(**shared, arms=arms).arms
    assert [
        (arm.name, arm.variant, arm.checkpoint, arm.revision, arm.tokenizer) for arm in read
    ] == [
        ("add", "add", "base", "r1", "words"),
        ("none", "none", "base", "r1", "own"),
        ("floor", "concat", "elsewhere", None, None),
        ("untied", "untied", "base", "r2", "words"),
    ]


def test_a_shared_key_that_no_arm_takes_is_refused():
    arm = {"name": "mine", "variant": "native", "checkpoint": "org/one"}
    values = {"name": "toy", "data": "demo", "arms": [arm], "tokenizer": "org/other"}
    with pytest.raises(UserError, match=r"`tokenizer` at the top .* give each arm its tokenizer"):
        load_experiment(values)


WITH_OPTIONS = MINIMAL | {"pretraining": PRETRAINED, "plugins": ["one.py"]}


def test_options_beside_an_experiment_take_the_place_of_its_own():
    experiment = load_experiment(WITH_OPTIONS, data="hub", corpus=["a", "b"], limit=9)
    assert experiment.data == "hub"
    assert experiment.pretraining.corpus == ["a", "b"]
    assert experiment.limit == 9


def test_plugins_beside_an_experiment_are_added_to_its_own():
    experiment = load_experiment(WITH_OPTIONS, plugins=[Path("two.py")])
    assert experiment.plugins == ["one.py", "two.py"]


def test_an_option_may_be_a_list_of_one_without_the_list():
    experiment = load_experiment(WITH_OPTIONS, corpus="a.txt", plugins=Path("b.py"))
    assert experiment.pretraining.corpus == ["a.txt"]
    assert experiment.plugins == ["one.py", "b.py"]


def test_options_go_beside_an_experiment_that_is_loaded_already():
    assert load_experiment(load_experiment(WITH_OPTIONS), data="hub").data == "hub"


def test_data_may_be_given_beside_an_experiment_alone():
    without_data = {key: value for key, value in MINIMAL.items() if key != "data"}
    assert load_experiment(without_data, data="hub").data == "hub"


def test_a_corpus_beside_an_experiment_without_pretraining_is_refused():
    message = "a corpus is given, but the experiment has no `pretraining`"
    with pytest.raises(UserError, match=message):
        load_experiment(MINIMAL, corpus=["demo"])


# Values as YAML and the command line write them


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("010", 10),
        ("0o17", 15),
        ("1e3", 1000.0),
        ("2e-5", 2e-5),
        (".2E-4", 2e-5),
        ("false", False),
        *[(text, text) for text in ("1:30", "2e-5x", "yes", "b=c")],
        ("[word-word, 2]", ["word-word", 2]),
    ],
)
def test_values_are_those_of_yaml_1_2(text, value):
    (given,) = parse_options([f"a={text}"]).values()
    assert (given, type(given)) == (value, type(value))


def test_a_protocol_is_changed_by_key_and_value():
    protocol = loaded(protocol={"contrasts": []}).protocol
    changed = changed_protocol(protocol, ["seeds=median", "reference=none"])
    assert (changed.seeds, changed.reference, changed.rate) == ("median", "none", "best-mean")
    with pytest.raises(
        UserError, match=r"^--protocol: unknown key 'chose_on'; did you mean 'choose_on'\?$"
    ):
        changed_protocol(protocol, ["chose_on=held_out"])


# Refusals of values that only Python can give; those of files are in tests/promises/test_verbs.py


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({1: 2}, "keys should be strings"),
        ({"seeds": [*range(9_000)], "tasks": ["cola", "rte"]}, "72,000 cells, but at most 50,000"),
        (
            {"finetuning": {"learning_rates": [float("inf")]}},
            "learning_rates.0: input should be a finite number",
        ),
        (
            {"arms": [{"variant": "add", "options": {"a": "\ud800"}}]},
            "arms.0.options: 'utf-8' codec can't encode",
        ),
        *(
            (
                {"arms": [{"variant": "add", "options": {"a": value}}]},
                "'a': give a text, a finite number, true",
            )
            for value in (float("nan"), float("-inf"), 10**24)
        ),
    ],
)
def test_a_mistake_is_told_with_its_place(changes, message):
    with pytest.raises(UserError) as caught:
        load_experiment(MINIMAL | changes)
    assert message in str(caught.value)


def test_several_mistakes_are_counted_and_listed():
    with pytest.raises(UserError) as caught:
        loaded(seeds="1", tasks=["colla"], zzz=1)
    message = str(caught.value)
    assert message.startswith(
        "experiment: 3 mistakes: (1) tasks: unknown task 'colla'; did you mean 'cola'? (2) seeds: "
    )
    assert "(3) unknown key 'zzz'" in message


MISTAKEN = """
name: x
data: demo
arms:
  - {name: a, variant: native, checkpoint: scratch, options: {x: 1}, revision: main}
  - add
tasks: [rte]
finetuning: {from_mnli: [rte], mnli_rate: 5e-5}
protocol: {choose_on: held_out, reference: nobody, contrasts: [[a, b]]}
"""
CROSSED = MISTAKEN.replace(
    "- {name: a, variant: native, checkpoint: scratch, options: {x: 1}, revision: main}", "- none"
)


def test_all_mistakes_of_an_arm_are_shown(tmp_path):
    (tmp_path / "x.yaml").write_text(MISTAKEN)
    with pytest.raises(
        UserError, match=r"3 mistakes: \(1\) arms.0: revision .* \(2\) arms.0: variant native"
    ):
        load_experiment(tmp_path / "x.yaml")


def test_all_mistakes_of_an_experiment_are_shown(tmp_path):
    (tmp_path / "x.yaml").write_text("checkpoint: scratch\n" + CROSSED)
    with pytest.raises(UserError) as caught:
        load_experiment(tmp_path / "x.yaml")
    message = str(caught.value)
    expected = (
        "5 mistakes:",
        "from_mnli needs mnli",
        "choose_on: held_out",
        "'nobody'",
        "'a'",
        "'b'",
    )
    assert [text for text in expected if text not in message] == []


def test_all_unknown_tasks_are_shown(tmp_path):
    (tmp_path / "x.yaml").write_text(
        "name: x\ndata: demo\ncheckpoint: scratch\narms: [add]\ntasks: [colla, rtte]\n"
    )
    with pytest.raises(UserError, match=r"2 mistakes.*'cola'.*'rte'"):
        load_experiment(tmp_path / "x.yaml")
