"""No option replaces an earlier one in silence; lists are given with commas or by repetition."""

import re

import pytest
from typer.main import get_command

from glue_bench.cli import app

VERBS = get_command(app).commands
OPTIONS = [(verb, option) for verb, command in VERBS.items() for option in command.params]
SINGLE = [
    (verb, max(option.opts, key=len))
    for verb, option in OPTIONS
    if option.param_type_name == "option" and not (option.multiple or option.is_flag)
]


@pytest.mark.parametrize(("verb", "option"), SINGLE)
def test_an_option_of_one_value_is_refused_when_it_is_given_twice(refused, verb, option):
    message = refused(verb, option, "1", option, "2")
    assert re.match(f"{option} is given twice; ", message)


@pytest.mark.parametrize("form", ["--{0} {1},{2}", "--{0} {1} --{0} {2}"])
@pytest.mark.parametrize(
    ("option", "values", "line"),
    [
        ("task", ("mrpc", "rte"), 'tasks: ["mrpc", "rte"]'),
        ("seed", ("1", "2"), "seeds: [1, 2]"),
        ("arm", ("add", "none"), 'arms: ["add", "none"]'),
    ],
)
def test_a_list_is_given_with_commas_or_by_repetition(
    glue_bench, make_bert, form, option, values, line
):
    words = form.format(option, *values).split()
    if option != "task":
        words += ["--task", "rte"]
    result = glue_bench(
        "run",
        "--checkpoint",
        make_bert(texts=("a b c d",), positions=130),
        *words,
        "--data",
        "demo",
        "--dry-run",
    )
    assert line in result.err


def test_an_empty_name_in_a_list_is_refused(refused):
    assert "--task 'rte,': a name is empty" in refused("run", "--checkpoint", "a", "--task", "rte,")


def test_seeds_that_are_no_numbers_are_refused_with_the_way_to_give_several(refused):
    assert "--seed 1,2" in refused("run", "--checkpoint", "a", "--seed", "1-3")
