"""Words that a verb does not take are refused by a line that says what the verb takes."""

import pytest
from typer.core import TyperArgument
from typer.main import get_command

from glue_bench.cli import app

COMMANDS = get_command(app).commands
FOR_ANY_NUMBER = {"analyse", "compare", "evaluate", "export"}
REQUIRED = {"convert": ["--variant", "add"]}
WITHOUT_LIMIT = -1


def arguments_of(verb: str) -> list[TyperArgument]:
    return [
        parameter for parameter in COMMANDS[verb].params if isinstance(parameter, TyperArgument)
    ]


def test_four_verbs_alone_take_any_number_of_words():
    verbs = {
        verb
        for verb in COMMANDS
        if any(argument.nargs == WITHOUT_LIMIT for argument in arguments_of(verb))
    }
    assert verbs == FOR_ANY_NUMBER


@pytest.mark.parametrize("verb", sorted(COMMANDS.keys() - FOR_ANY_NUMBER))
def test_a_word_too_many_is_refused_with_what_the_verb_takes(refused, verb):
    arguments = arguments_of(verb)
    words = ["a"] * len(arguments)
    message = refused(verb, *words, "extra", *REQUIRED.get(verb, []))
    taken = " ".join(str(argument.metavar) for argument in arguments) or "options alone"
    assert f"{verb} takes {taken}; it has no place for 'extra'" in message


@pytest.mark.parametrize("verb", ["leaderboard", "report", "statistics"])
def test_a_second_experiment_is_answered_with_how_arms_are_compared(refused, verb):
    assert "glue-bench compare DIR/A DIR/B" in refused(verb, "runs/a", "runs/b")


def test_seeds_with_spaces_between_them_are_answered_with_commas(refused):
    message = refused("run", "--checkpoint", "a", "--seed", "1", "2", "3")
    assert "--seed 1,2" in message
