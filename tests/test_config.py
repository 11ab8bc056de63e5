"""The experiment file: what it means, and what is said about a mistake in it."""

from pathlib import Path

import pytest

from glue_bench.api import run
from glue_bench.config import Experiment, load_experiment, parse_experiment
from glue_bench.data.tasks import TRAINABLE
from glue_bench.errors import UserError
from glue_bench.values import parse_options, series

CONFIGS = sorted((Path(__file__).parents[1] / "configs").glob("*.yaml"))
MINIMAL = {"name": "x", "data": "demo", "checkpoint": "scratch", "arms": ["add"]}


def parsed(**changes) -> Experiment:
    return parse_experiment(MINIMAL | changes)


def refused(**changes) -> str:
    """What is said about the minimal experiment with these changes."""
    with pytest.raises(UserError) as caught:
        parse_experiment(MINIMAL | changes, "my.yaml")
    lines = str(caught.value).splitlines()
    assert all(line.startswith("my.yaml: ") for line in lines)
    return str(caught.value)


# What a file means


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_shipped_experiments_load(path):
    experiment = load_experiment(path)
    assert experiment.name == path.stem
    assert list(experiment.cells())


def test_defaults_are_tupes_table_2():
    experiment = parsed()
    settings = experiment.finetuning
    assert experiment.tasks == list(TRAINABLE)
    assert experiment.seeds == [1, 2, 3, 4, 5]
    assert settings.learning_rates == [2e-5, 3e-5, 4e-5, 5e-5]
    assert (settings.epochs, settings.batch_size) == (10, 32)
    assert (settings.warmup_ratio, settings.weight_decay, settings.clip_norm) == (0.06, 0.01, 1.0)
    assert settings.adam_epsilon == 1e-6


def test_cells_are_the_product_of_tasks_rates_seeds_and_arms_in_this_order():
    experiment = parsed(
        arms=["add", "none"], tasks=["rte", "cola"], seeds=[7, 3], finetuning={"learning_rates": [2e-5, 1e-5]}
    )
    keys = [(cell.task, cell.hyperparameters.learning_rate, cell.seed, cell.arm.name) for cell in experiment.cells()]
    assert len(keys) == 16
    assert keys[:5] == [
        ("rte", 2e-5, 7, "add"),
        ("rte", 2e-5, 7, "none"),
        ("rte", 2e-5, 3, "add"),
        ("rte", 2e-5, 3, "none"),
        ("rte", 1e-5, 7, "add"),
    ]
    assert [key[0] for key in keys] == ["rte"] * 8 + ["cola"] * 8


def test_per_task_settings_take_the_place_of_shared_ones():
    own = {"learning_rates": [1e-4], "epochs": 3, "batch_size": 8, "max_length": 16}
    finetuning = {"learning_rates": [1e-5, 2e-5], "epochs": 5, "tasks": {"rte": own, "cola": {"epochs": 2}}}
    cells = list(parsed(tasks=["rte", "cola", "mrpc"], seeds=[1], finetuning=finetuning).cells())
    settled = {(c.task, c.hyperparameters.learning_rate): c.hyperparameters for c in cells}
    assert set(settled) == {("rte", 1e-4), ("cola", 1e-5), ("cola", 2e-5), ("mrpc", 1e-5), ("mrpc", 2e-5)}
    rte = settled["rte", 1e-4]
    assert (rte.epochs, rte.batch_size, rte.max_length, rte.clip_norm) == (3, 8, 16, 1.0)
    assert (settled["cola", 1e-5].epochs, settled["cola", 1e-5].batch_size) == (2, 32)
    assert settled["mrpc", 1e-5].epochs == 5


def test_an_arm_is_named_after_its_variant():
    arms = parsed(arms=["add", {"variant": "none", "name": "floor"}, {"variant": "concat"}]).arms
    assert [(arm.name, arm.variant) for arm in arms] == [("add", "add"), ("floor", "none"), ("concat", "concat")]


def test_arms_inherit_checkpoint_revision_and_tokenizer_together():
    arms = [
        "add",
        {"variant": "none", "tokenizer": "own"},
        {"variant": "concat", "checkpoint": "elsewhere"},
        {"variant": "untied", "revision": "r2"},
    ]
    shared = {"checkpoint": "base", "revision": "r1", "tokenizer": "words"}
    found = [(a.checkpoint, a.revision, a.tokenizer) for a in parsed(**shared, arms=arms).arms]
    assert found == [
        ("base", "r1", "words"),
        ("base", "r1", "own"),
        ("elsewhere", None, None),
        ("base", "r2", "words"),
    ]


def test_an_arm_from_scratch_has_no_revision():
    arm = {"variant": "add", "checkpoint": "scratch", "revision": "r1"}
    assert "revision is of a hub id; an arm from scratch has none" in refused(arms=[arm])


def test_an_experiment_is_immutable():
    experiment = parsed()
    with pytest.raises(ValueError, match="frozen"):
        experiment.name = "y"


# Files


@pytest.mark.parametrize("text", ["2e-5", "2E-5", "2.e-5", ".2e-4", "2.0e-5", "+2e-5", "0.00002"])
def test_a_learning_rate_may_be_written_any_way(write_yaml, text):
    path = write_yaml(
        f"{{name: x, data: demo, checkpoint: scratch, arms: [add], finetuning: {{learning_rates: [{text}]}}}}"
    )
    assert load_experiment(path).finetuning.learning_rates == pytest.approx([2e-5])


@pytest.mark.parametrize(
    ("text", "value"),
    [("010", 10), ("-07", -7), ("0o17", 15), ("0x1F", 31), ("1.", 1.0), (".5", 0.5), ("1e3", 1000.0), ("+2", 2)],
)
def test_numbers_are_those_of_yaml_1_2(text, value):
    assert parse_options([f"a={text}"]) == {"a": value}


@pytest.mark.parametrize("text", ["1:30", "1_000", "0b11", "1:30:00.5", "0o8"])
def test_what_is_a_number_in_yaml_1_1_alone_is_text(text):
    assert parse_options([f"a={text}"]) == {"a": text}


def test_words_with_an_e_stay_words(write_yaml):
    path = write_yaml("{name: 2e-5x, data: e5, checkpoint: scratch, arms: [add]}")
    assert (load_experiment(path).name, load_experiment(path).data) == ("2e-5x", "e5")


def test_data_takes_the_place_of_the_files_own(write_yaml):
    assert load_experiment(write_yaml(MINIMAL), data="hub").data == "hub"
    without = {key: value for key, value in MINIMAL.items() if key != "data"}
    assert load_experiment(write_yaml(without), data="hub").data == "hub"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("arms: [add", "not valid YAML"),
        ("a: b: c", "line 1"),
        ("seeds: 2024-13-45", "not valid YAML"),
        ("", "expected an experiment with keys name, data, arms"),
        ("- add", "expected an experiment with keys"),
        ("just words", "expected an experiment with keys"),
    ],
)
def test_a_file_that_is_no_experiment(write_yaml, text, said):
    path = write_yaml(text)
    with pytest.raises(UserError, match=said) as caught:
        load_experiment(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(UserError, match=r"cannot read experiment file '.*none.yaml': No such file"):
        load_experiment(tmp_path / "none.yaml")
    with pytest.raises(UserError, match="Is a directory"):
        load_experiment(tmp_path)
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not valid YAML"):
        load_experiment(binary)


# Mistakes


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sedes": [1]}, "unknown key 'sedes'; did you mean 'seeds'?"),
        ({"zzz": 1}, "unknown key 'zzz'; known: name, data, arms"),
        ({"finetuning": {"epoch": 1}}, "unknown key 'epoch' in finetuning; did you mean 'epochs'?"),
        (
            {"finetuning": {"tasks": {"rte": {"learning_rate": [1e-5]}}}},
            "unknown key 'learning_rate' in finetuning.tasks.rte; did you mean 'learning_rates'?",
        ),
        ({"scratch": {"hidden": 8}}, "unknown key 'hidden' in scratch; did you mean 'hidden_size'?"),
        (
            {"arms": ["add", {"variant": "none", "tokeniser": "t"}]},
            "unknown key 'tokeniser' in arms.1; did you mean 'tokenizer'?",
        ),
        ({"tasks": ["colla"]}, "tasks: unknown task 'colla'; did you mean 'cola'?"),
        ({"tasks": ["ax"]}, "unknown task 'ax'; known: cola"),
        ({"finetuning": {"tasks": {"mnlii": {}}}}, "unknown task 'mnlii'; did you mean 'mnli'?"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(changes, said):
    assert said in refused(**changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seeds": "1"}, "seeds: input should be a valid list, not '1'"),
        ({"seeds": ["1"]}, "seeds.0: input should be a valid integer, not '1'"),
        ({"seeds": [1.5]}, "seeds.0: input should be a valid integer, not 1.5"),
        ({"seeds": [True]}, "seeds.0: input should be a valid integer"),
        ({"name": 3}, "name: input should be a valid string, not 3"),
        ({"data": 5}, "data: input should be a valid string, not 5"),
        ({"arms": "add"}, "arms: input should be a valid list, not 'add'"),
        ({"arms": [1]}, "arms.0: input should be a valid dictionary"),
        ({"arms": [{"variant": "add", "options": ["x"]}]}, "arms.0.options: input should be a valid dictionary"),
        ({"finetuning": None}, "finetuning: input should be a valid dictionary"),
        ({"finetuning": {"learning_rates": 2e-5}}, "finetuning.learning_rates: input should be a valid list"),
        ({"finetuning": {"learning_rates": ["fast"]}}, "learning_rates.0: input should be a valid number, not 'fast'"),
        ({"finetuning": {"epochs": "3"}}, "finetuning.epochs: input should be a valid integer, not '3'"),
        ({"finetuning": {"tasks": ["rte"]}}, "finetuning.tasks: input should be a valid dictionary"),
        ({1: 2}, "keys should be strings"),
    ],
)
def test_a_wrong_type_is_refused_with_its_place(changes, said):
    with pytest.raises(UserError) as caught:
        parse_experiment(MINIMAL | changes)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seeds": [-1]}, "seeds.0: input should be greater than or equal to 0, not -1"),
        ({"resources": {"cpus": 10**9}}, "resources.cpus: input should be less than or equal to 1024, not 1000000000"),
        ({"resources": {"gpus": 10**9}}, "resources.gpus: input should be less than or equal to 1024"),
        ({"resources": {"give_up_after": 1}}, "resources.give_up_after: input should be greater than 1, not 1"),
        ({"seeds": [2**32]}, "seeds.0: input should be less than"),
        ({"seeds": []}, "seeds: list should have at least 1 item"),
        ({"arms": []}, "arms: list should have at least 1 item"),
        ({"tasks": []}, "tasks: list should have at least 1 item"),
        ({"finetuning": {"learning_rates": []}}, "learning_rates: list should have at least 1 item"),
        ({"finetuning": {"tasks": {"rte": {"learning_rates": []}}}}, "rte.learning_rates: list should have at least"),
        ({"finetuning": {"learning_rates": [0]}}, "learning_rates.0: input should be greater than 0"),
        ({"finetuning": {"learning_rates": [float("inf")]}}, "learning_rates.0: input should be a finite number"),
        ({"finetuning": {"epochs": 0}}, "finetuning.epochs: input should be greater than 0, not 0"),
        ({"finetuning": {"max_length": 3}}, "finetuning.max_length"),
        ({"scratch": {"hidden_size": 10, "num_attention_heads": 3}}, "hidden_size 10 is not a multiple of"),
        ({"name": "a/b"}, "name: string should match pattern"),
        (
            {"checkpoint": "base", "arms": [{"variant": "add", "embedding_size": 64}]},
            "embedding_size is of an arm from scratch; the tables of 'base' have their own width",
        ),
        ({"checkpoint": ""}, "arms.0.checkpoint: string should have at least 1 character"),
    ],
)
def test_a_value_out_of_range_is_refused(changes, said):
    assert said in refused(**changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"arms": ["add", "none", "add"]}, "arms: names must differ; given twice: add"),
        ({"seeds": [1, 2, 1]}, "seeds: values must differ; given twice: 1"),
        ({"tasks": ["rte", "rte"]}, "tasks: values must differ; given twice: rte"),
        ({"finetuning": {"learning_rates": [2e-5, 2e-5]}}, "learning_rates: values must differ; given twice: 2e-05"),
    ],
)
def test_duplicates_are_refused(changes, said):
    assert said in refused(**changes)


@pytest.mark.parametrize(
    ("protocol", "said"),
    [
        ({"reference": "ad"}, "unknown arm 'ad' in protocol.reference; did you mean 'add'?"),
        ({"contrasts": [["add", "nobody"]]}, "unknown arm 'nobody' in protocol.contrasts"),
        ({"contrasts": [["add"]]}, "at least 2 items"),
        ({"contrasts": [["add", "add"]]}, "of two different arms"),
        ({"contrasts": [["add", "none"], ["none", "add"]]}, "none is given twice"),
        ({"primary": "loss"}, "'average' or 'validation_loss'"),
        ({"primary": "validation_loss"}, "needs `pretraining`"),
    ],
)
def test_comparisons_that_cannot_be_made_are_refused(protocol, said):
    assert said in refused(arms=["add", "none"], protocol=protocol)


def test_who_is_compared_stands_in_a_plan_only_where_it_is_said():
    assert set(parsed().model_dump(mode="json")["protocol"]) == {"rate", "seeds", "epoch", "choose_on"}
    said = {"reference": "none", "contrasts": [["add", "none"]]}
    written = parsed(arms=["add", "none"], protocol=said).model_dump(mode="json")["protocol"]
    assert {key: written[key] for key in said} == said
    assert "primary" not in written


@pytest.mark.parametrize("key", ["name", "data", "arms"])
def test_a_missing_key_is_named(key):
    with pytest.raises(UserError, match=f"missing key '{key}'"):
        parse_experiment({k: v for k, v in MINIMAL.items() if k != key})


def test_an_arm_without_a_checkpoint_is_named():
    with pytest.raises(UserError, match=r"missing key 'arms.0.checkpoint'"):
        parse_experiment({"name": "x", "data": "demo", "arms": ["add"]})


def test_every_mistake_is_listed():
    said = refused(seeds="1", tasks=["colla"], zzz=1)
    assert said.startswith(
        "my.yaml: 3 mistakes: (1) tasks: unknown task 'colla'; did you mean 'cola'? (2) seeds: input"
    )
    assert "(3) unknown key 'zzz'" in said
    assert refused(**{f"zzz{number}": 1 for number in range(9)}).endswith(" and 4 more")


def test_a_key_given_twice_is_refused(tmp_path):
    path = tmp_path / "twice.yaml"
    path.write_text("name: a\ndata: demo\nname: b\n")
    with pytest.raises(UserError, match="name given twice"):
        load_experiment(path)


def test_options_are_read_as_an_experiment_file_reads_them():
    given = ["rank=4", "scale=2e-5", "share=false", "segments=scores", "terms=[word-word, word-position]", "a=b=c"]
    assert parse_options(given) == {
        "rank": 4,
        "scale": 2e-5,
        "share": False,
        "segments": "scores",
        "terms": ["word-word", "word-position"],
        "a": "b=c",
    }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["rank"], "takes KEY=VALUE, not 'rank'"),
        (["=4"], "takes KEY=VALUE, not '=4'"),
        (["rank="], "takes KEY=VALUE, not 'rank='"),
        (["rank=4", "rank=5"], "--option rank is given twice"),
        (["terms=[a"], r"--option terms=\[a: no value of an option"),
        (["terms=2020-13-45"], "--option terms=2020-13-45: no value of an option"),
        (["share=2020-01-01"], "--option share=2020-01-01: no value of an option: .*date"),
        (["scale=.nan"], "--option scale=.nan: no value of an option"),
    ],
)
def test_bad_options_are_refused(given, said):
    with pytest.raises(UserError, match=said):
        parse_options(given)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"scratch": {"vocab_size": 10**11}}, "scratch.vocab_size: input should be less than or equal to 1000000"),
        ({"scratch": {"hidden_size": 2**14, "num_hidden_layers": 256}}, "more than 1e\\+10 parameters"),
        ({"finetuning": {"epochs": 10**24}}, "is too large a number"),
        ({"finetuning": {"tasks": {"rte": {"epochs": 10**9}}}}, "finetuning.tasks.rte.epochs: .* 10000"),
        ({"finetuning": {"learning_rates": [1e300]}}, "finetuning.learning_rates.0: .*100"),
        ({"name": "a" * 101}, "name: string should have at most 100 characters"),
        ({"arms": [{"name": "a" * 101, "variant": "add"}]}, "arms.0.name: string should have at most 100 characters"),
        ({"seeds": list(range(9000))}, "cells, but at most 50,000"),
        ({"data": ""}, "data: string should have at least 1 character"),
        ({"tokenizer": ""}, "arms.0.tokenizer: string should have at least 1 character"),
        ({"plugins": [""]}, "plugins.0: string should have at least 1 character"),
        ({"data": "a\nb"}, "has characters that cannot be printed"),
        ({"data": "x" * 5000}, "is too long"),
        ({"options": {"a": [[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]}}, "nested too deeply"),
        ({"seeds": [0] * 10_001}, "more than 10,000 values"),
        ({"epochs": 3}, "unknown key 'epochs'; it belongs to finetuning"),
        ({"tokeniser": "x"}, "did you mean 'tokenizer'"),
        ({"pretraining": {"corpus": "demo", "steps": 1, "learning_rat": 1e-3}}, "did you mean 'learning_rate'"),
    ],
)
def test_what_no_run_could_use_is_refused(changes, said):
    with pytest.raises(UserError, match=said):
        parse_experiment(MINIMAL | changes)


@pytest.mark.parametrize("given", [None, 3, ["a"]])
def test_what_is_no_experiment_is_refused(given):
    with pytest.raises(UserError, match="is no experiment; give a YAML file, or its content as a mapping"):
        run(given)


@pytest.mark.parametrize(
    "options", [{"workers": 0}, {"workers": -1}, {"workers": True}, {"workers": 2.5}, {"results": ""}]
)
def test_options_that_mean_nothing_are_refused(options):
    with pytest.raises(UserError, match=r"workers|results"):
        run(MINIMAL, **options)


@pytest.mark.parametrize("words", [("verify", ""), ("run", "x.yaml", "--data", ""), ("run", "x.yaml", "--data=")])
def test_an_empty_argument_is_refused(glue_bench, words):
    assert glue_bench(*words) == (2, "", "error: an argument is empty; give a name, or leave it out\n")


def test_a_mistake_of_the_whole_experiment_has_no_place():
    assert refused(tasks=["rte"], finetuning={"from_mnli": ["rte"]}).startswith("my.yaml: finetuning.from_mnli needs")


@pytest.mark.parametrize(
    ("names", "told"), [([], ""), (["a"], "a"), (["a", "b"], "a and b"), (iter(["a", "b", "c"]), "a, b and c")]
)
def test_names_stand_in_a_sentence_as_people_write_them(names, told):
    assert series(names) == told


def test_max_steps_is_part_of_an_id_only_where_it_is_given(tiny):
    plain, cut = (
        next(parse_experiment(tiny(finetuning=more)).cells()).hyperparameters.model_dump(exclude_none=True)
        for more in ({}, {"max_steps": 7})
    )
    assert "max_steps" not in plain
    assert cut == plain | {"max_steps": 7}


def test_tasks_are_named_in_any_case_and_once(tiny):
    named = parse_experiment(tiny(tasks=["RTE", "SST-2", "stsB", "MNLI"], finetuning={"tasks": {"RTE": {"epochs": 2}}}))
    assert named.tasks == ["rte", "sst2", "stsb", "mnli"]
    assert named.finetuning.tasks["rte"].epochs == 2
    with pytest.raises(Exception, match="given twice: rte"):
        parse_experiment(tiny(tasks=["rte", "RTE"]))
