"""Options of variants: typed, completed with defaults, and in one form before anything compares or
hashes them.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from glue_bench import load_plugins
from glue_bench.config import load_experiment
from glue_bench.errors import UserError
from glue_bench.model.grafts import graft
from glue_bench.model.start import Start
from glue_bench.model.tiny import encoder_config
from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.options import (
    build_variant,
    canonical_options,
    check_variant,
    declared_options,
)
from glue_bench.model.variants.untied import ATTENTION_TERMS
from glue_bench.sweep.plan import make_plan
from glue_bench.training.inputs import Inputs

OPTIONS = [(name, option) for name in VARIANTS for option in declared_options(VARIANTS[name], name)]
WRONG: tuple[Any, ...] = (
    "false",
    "3",
    1.5,
    -1,
    0,
    True,
    None,
    [],
    [1],
    {"a": 1},
    float("nan"),
    float("inf"),
)
PLUGIN = """
import torch
from glue_bench.model.variants.additive import Add

class Wide(Add):
    name = "wide"

    def __init__(self, dims, *, times: int = 1, factor=2.0, names=("a",)):
        super().__init__(dims)
        self.times = torch.ones(times)[0]
        self.factor, self.names = factor, names
"""


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_a_value_is_refused_or_can_be_built_and_keeps_its_type(name, option):
    """No value is taken for another type, and a refusal is always a UserError."""
    default = declared_options(VARIANTS[name], name)[option].default
    # Writing the default into a file changes nothing.
    assert canonical_options(name, {option: json.loads(json.dumps(default))}) == {}
    kinds = {bool: (bool,), int: (int,), float: (int, float), str: (str,), list: (list,)}[
        type(default)
    ]
    if option == "blocks":  # its value is a word, or numbers of blocks
        kinds = (*kinds, list)
    for value in WRONG:
        try:
            canonical = canonical_options(name, {option: value})
        except UserError:
            continue
        assert isinstance(value, kinds)
        assert isinstance(value, bool) == isinstance(default, bool)
        assert canonical_options(name, canonical) == canonical
        build_variant(encoder_config(name, variant_options=canonical))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "untied",
            {"share": "false"},
            "'share' of variant 'untied': input should be a valid boolean, not 'false'",
        ),
        ("diet-abs", {"rank": 0}, "'rank' of variant 'diet-abs': .* greater than 0, not 0"),
        (
            "concat-split",
            {"position_share": 1},
            "option 'position_share' .* should be less than 1, not 1",
        ),
        (
            "four-term",
            {"terms": ["word-wort"]},
            r"'terms' .*: give one or more of word-word, .*, not \['word-wort'\]",
        ),
        (
            "disentangled",
            {"terms": []},
            "'terms' .*: give one or more of content-position, position-content, not",
        ),
        (
            "add",
            {"segments": "inputs"},
            "x: unknown value 'inputs' in option 'segments' .*; did you mean 'input'",
        ),
    ],
)
def test_a_wrong_value_is_one_line(name, options, message):
    with pytest.raises(UserError, match=message):
        check_variant(name, options, "x")


def test_which_terms_counts_and_not_their_order():
    given = {"terms": ["position-word", "word-word", "word-word"]}
    assert canonical_options("four-term", given) == {"terms": ["word-word", "position-word"]}
    assert canonical_options("four-term", {"terms": list(reversed(ATTENTION_TERMS))}) == {}


@pytest.mark.parametrize("stored", [None, {"share": True, "segments": "input"}])
def test_a_checkpoint_takes_its_own_options_in_any_form_and_no_others(stored):
    start = Start(encoder_config("untied", variant_options=stored), {}, "adapted")
    for asked in ({}, {"share": True}):
        assert graft(start, "untied", asked) is start
    with pytest.raises(UserError, match="only additive checkpoints can be grafted"):
        graft(start, "untied", {"share": False})


@pytest.mark.usefixtures("small_demo")
def test_a_plugins_options_have_the_type_of_their_annotation_or_default(tiny, write_plugin):
    """A value of another type is refused before any compute."""
    load_plugins([plugin := write_plugin(PLUGIN)])
    assert canonical_options("wide", {"times": 1, "factor": 2, "names": ["a"]}) == {}
    given = {"times": 2, "factor": 3, "names": ["b"]}
    assert canonical_options("wide", given) == given

    message = "option '{}' of variant 'wide': input should be a valid "
    made_with = "variant 'wide' cannot be made with options"
    cases = [
        ({"times": "2"}, message.format("times")),
        ({"times": True}, message.format("times")),
        ({"factor": "2"}, message.format("factor")),
        ({"names": "a"}, message.format("names")),
        ({"factor": None}, message.format("factor")),
        ({"times": 0}, f"{made_with} {{'times': 0}}: index 0 is out of bounds"),
    ]

    for options, expected in cases:
        arm = {"variant": "wide", "options": options}
        experiment = load_experiment(tiny(arms=[arm], plugins=[str(plugin)]))
        with pytest.raises(UserError) as refusal:
            make_plan(Inputs(experiment, Path("none")))
        assert str(refusal.value).startswith(f"arm 'wide': {expected}")
        assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "declaration",
    [
        "*, times: 'Unknown' = 1",
        "*, times: torch.Tensor = 1",
        "*, times=object()",
        "*, times=float('nan')",
        "*, times: int",
        "times: int = 1, *",
        "*, times: int = 'one'",
    ],
)
def test_a_plugins_declaration_that_cannot_be_checked_is_refused(declaration, write_plugin):
    needs = r"a `\*` before it, a default, and a type that JSON has: "
    message = f"variant 'wide': option 'times' needs {needs}"
    with pytest.raises(UserError, match=message):
        load_plugins([write_plugin(PLUGIN.replace("*, times: int = 1", declaration))])
