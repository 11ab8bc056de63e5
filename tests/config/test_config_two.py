"""The experiment file with two of each: arms, tasks, seeds, checkpoints and mistakes."""

import pytest

from glue_bench.config import Experiment, PretrainingSettings, load_experiment
from glue_bench.config.load import parse_options
from glue_bench.config.plain_yaml import parse_yaml
from glue_bench.errors import UserError

MINIMAL = {"name": "x", "data": "demo", "checkpoint": "scratch", "arms": ["add", "none"]}
PRETRAINED = {
    "name": "x",
    "data": "demo",
    "arms": ["add", "none"],
    "pretraining": {"corpus": "demo", "steps": 9},
}


def loaded(**changes) -> Experiment:
    return load_experiment(MINIMAL | changes)


def pretraining(**changes) -> PretrainingSettings:
    return PretrainingSettings(corpus=["demo"], steps=20, **changes)


# What a file means


def test_each_of_two_tasks_has_its_own_settings_beside_shared_ones_away_from_the_default():
    tasks = {
        "cola": {"epochs": 2, "limit": 40},
        "RTE": {"batch_size": 8, "max_length": 64, "learning_rates": [1e-4]},
    }
    shared = {
        "epochs": 7,
        "batch_size": 16,
        "warmup_ratio": 0.2,
        "weight_decay": 0.3,
        "max_steps": 90,
    }
    settings = loaded(
        finetuning=shared | {"learning_rates": [2e-5, 3e-5], "tasks": tasks}
    ).finetuning

    sizes = {}
    for task in ("cola", "rte", "mrpc"):
        values = settings.hyperparameters(task, 1e-3)
        sizes[task] = (values.epochs, values.batch_size, values.max_length)
        assert values.warmup_ratio == 0.2
        assert values.weight_decay == 0.3
        assert values.max_steps == 90

    expected = {"cola": (2, 16, 128), "rte": (7, 8, 64), "mrpc": (7, 16, 128)}
    assert sizes == expected
    assert [settings.rates(task) for task in sizes] == [[2e-5, 3e-5], [1e-4], [2e-5, 3e-5]]
    assert [settings.limit(task) for task in sizes] == [40, None, None]


@pytest.mark.parametrize(("rows", "steps"), [(32, 2), (33, 3), (1, 1), (48, 3)])
def test_a_last_batch_that_is_not_full_is_a_step(rows, steps):
    settings = loaded(finetuning={"batch_size": 16}).finetuning.hyperparameters("rte", 1e-3)
    assert settings.steps_per_epoch(rows) == steps


def test_other_tasks_start_from_the_rate_of_mnli_that_is_named_or_from_its_only_one():
    rates = {"mnli": {"learning_rates": [1e-5, 3e-5]}}
    with_name = {"from_mnli": ["rte"], "mnli_rate": 3e-5, "tasks": rates}
    assert loaded(finetuning=with_name).finetuning.source_rate == 3e-5
    with_one_rate = {"from_mnli": ["rte"], "tasks": {"mnli": {"learning_rates": [7e-5]}}}
    assert loaded(finetuning=with_one_rate).finetuning.source_rate == 7e-5


def test_checkpoints_in_any_order_are_kept_in_that_of_their_steps_and_fine_tuned_if_that_is_asked():
    kept = pretraining(checkpoints=[12, 4])
    assert kept.kept_steps == [4, 12, 20]
    assert kept.finetuned_steps == [20]
    assert pretraining(checkpoints=[12, 4], finetune_checkpoints=True).finetuned_steps == [
        4,
        12,
        20,
    ]


def test_a_search_has_a_run_for_each_rate_and_each_seed_of_its_own():
    search = {"steps": 5, "seeds": [7, 8]}
    settings = pretraining(
        learning_rates=[1e-3, 2e-3], rate_search=search, checkpoints=[4], seeds=[1, 2]
    )
    searches = settings.searches()
    assert [run.seeds for run in searches] == [[7], [8], [7], [8]]
    assert [run.learning_rates for run in searches] == [[1e-3], [1e-3], [2e-3], [2e-3]]
    assert [run.steps for run in searches] == [5] * 4
    expected = [[5]] * 4
    assert [run.kept_steps for run in searches] == expected
    assert [run.rate_search for run in searches] == [None] * 4


@pytest.mark.parametrize(("micro", "size"), [(None, 8), (256, 2), (300, 2), (5000, 8), (1024, 8)])
def test_so_many_sequences_are_computed_at_once_and_no_more_than_a_batch_has(micro, size):
    assert (
        pretraining(batch_tokens=1024, length=128, micro_batch_tokens=micro).micro_batch_size
        == size
    )


def test_a_run_of_a_pretraining_with_an_arms_own_rate_is_not_searched_for():
    settings = pretraining(learning_rates=[1e-3, 2e-3], rate_search={"steps": 5}, seeds=[3, 4])
    searched = settings.run(4)
    assert searched.seeds == [4]
    assert searched.learning_rates == [1e-3, 2e-3]
    assert len(searched.searches()) == 2
    with_rate = settings.run(4, 5e-4)
    assert with_rate.seeds == [4]
    assert with_rate.learning_rates == [5e-4]
    assert with_rate.searches() == []


def test_an_alias_gives_both_arms_the_same_options():
    text = """
name: x
data: demo
checkpoint: scratch
arms:
  - &split {variant: concat-split, name: one, options: &options {position_share: 0.25}}
  - {variant: concat-split, name: two, options: *options}
"""
    arms = load_experiment(parse_yaml(text, "here")).arms
    assert [arm.name for arm in arms] == ["one", "two"]
    expected = [{"position_share": 0.25}] * 2
    assert [arm.options for arm in arms] == expected


def test_fresh_weights_are_the_start_of_pretrained_arms_also_where_that_is_said():
    pretraining_from_scratch = PRETRAINED["pretraining"] | {"from": "scratch"}
    for values in (PRETRAINED, PRETRAINED | {"pretraining": pretraining_from_scratch}):
        assert [arm.checkpoint for arm in load_experiment(values).arms] == ["scratch", "scratch"]


def test_options_are_read_as_values_where_their_keys_are_known_or_they_are_true():
    options = parse_options(
        ["gpus=2", "mem=2", "exclusive=true", "quiet=false"], "--slurm", ["gpus"]
    )
    expected = {"gpus": 2, "mem": "2", "exclusive": True, "quiet": "false"}
    assert options == expected


# Mistakes in what stands second


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"arms": ["add", {"variant": "native", "checkpoint": "b"}]},
            "arm 'native' is native, taken as it is published",
        ),
        (
            {"arms": ["add", {"variant": "none", "checkpoint": "b"}]},
            "arm 'none' starts from 'b', but pretraining is",
        ),
        (
            {
                "arms": ["add", {"variant": "none", "tokenizer": "t"}],
                "pretraining": {"tokenizer": "u"},
            },
            "pretraining.tokenizer cannot be set if arms have a `tokenizer`",
        ),
        (
            {"pretraining": {"warmup_ratio": 0.5, "schedule": "trapezoid", "decay_share": 0.6}},
            "warmup_ratio 0.5 and decay_share 0.6 are together more than 1",
        ),
        (
            {
                "pretraining": {
                    "learning_rates": [1, 2],
                    "rate_search": {"steps": 2, "seeds": [5, 2]},
                    "seeds": [1, 2],
                }
            },
            "rate_search.seeds: 2 is a seed of the pretraining",
        ),
        (
            {"pretraining": {"checkpoints": [3, 9]}},
            "checkpoints [9] are not before the last step, 9",
        ),
        ({"pretraining": {"checkpoints": [3, 4], "seeds": [1, 2, 2]}}, "given twice: 2"),
        (
            {
                "pretraining": {
                    "checkpoints": [3, 4],
                    "finetune_checkpoints": True,
                    "seeds": [*range(9)],
                },
                "seeds": [*range(100)],
            },
            "194,400 cells, but at most 50,000",
        ),
    ],
)
def test_a_second_arm_seed_or_checkpoint_is_checked_as_the_first_is(changes, message):
    values = PRETRAINED | changes
    values["pretraining"] = PRETRAINED["pretraining"] | changes.get("pretraining", {})
    with pytest.raises(UserError) as caught:
        load_experiment(values)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"arms": ["add", {"variant": "none", "pretraining_rate": 1e-3}]},
            "arm 'none' has a pretraining_rate, but",
        ),
        (
            {"protocol": {"contrasts": [["none", "add"], ["add", "nobody"]]}},
            "unknown arm 'nobody' in protocol.contr",
        ),
        (
            {"protocol": {"contrasts": [["none", "add"], ["none", "add"]]}},
            "no pair may be given twice",
        ),
        (
            {
                "protocol": {"rate": "fixed"},
                "tasks": ["cola", "rte"],
                "finetuning": {
                    "learning_rates": [1e-3],
                    "tasks": {"rte": {"learning_rates": [1e-3, 2e-3]}},
                },
            },
            "fixed needs one learning rate a task; rte has several",
        ),
        (
            {"finetuning": {"from_mnli": ["rte", "stsb"]}, "tasks": ["mnli", "rte"]},
            "say with mnli_rate which run",
        ),
    ],
)
def test_a_second_name_pair_or_task_is_checked_as_the_first_is(changes, message):
    with pytest.raises(UserError) as caught:
        loaded(**changes)
    assert message in str(caught.value)


def test_each_of_two_unknown_keys_has_the_nearest_key_of_its_own_section():
    with pytest.raises(UserError) as caught:
        loaded(finetuning={"epoch": 3, "tasks": {"rte": {"epochz": 2}}}, protocol={"sed": "median"})
    message = str(caught.value)
    assert message.startswith("experiment: 3 mistakes: ")
    for mistake in (
        "unknown key 'epoch' in finetuning; did you mean 'epochs'?",
        "unknown key 'epochz' in finetuning.tasks.rte; did you mean 'epochs'?",
        "unknown key 'sed' in protocol; did you mean 'seeds'?",
    ):
        assert mistake in message


def test_a_key_is_told_as_the_file_spells_it():
    with pytest.raises(
        UserError, match=r"unknown key 'form' in pretraining; did you mean 'from'\?"
    ):
        load_experiment(
            PRETRAINED | {"pretraining": PRETRAINED["pretraining"] | {"form": "scratch"}}
        )


def test_of_many_mistakes_all_are_counted_and_the_first_five_told():
    keys = [f"zz{number}" for number in range(6)]
    with pytest.raises(UserError) as caught:
        loaded(**dict.fromkeys(keys, 1))
    assert str(caught.value).startswith("experiment: 6 mistakes: (1) ")
    expected = [True] * 5 + [False]
    assert [key in str(caught.value) for key in keys] == expected


def test_an_option_that_is_given_twice_with_another_value_is_refused():
    with pytest.raises(UserError, match="--option a is given twice"):
        parse_options(["a=1", "b=2", "a=3"])
