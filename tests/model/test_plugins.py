"""Variants of a user's own: loaded from a file, or refused in words that help."""

import hashlib

import pytest
import torch
from helpers.tiny_models import encoder_config, random_model, tokens
from transformers import AutoModelForMaskedLM

from glue_bench import load_plugins
from glue_bench.errors import UserError
from glue_bench.model.checkpoints import read_checkpoint
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.model.plugins import PLUGINS, check_plugin, plugin_digest
from glue_bench.model.variants import VARIANTS

LOUD = '''"""Positions twice as loud."""

from glue_bench.model.variants.additive import Add
from glue_bench.model.variants.base import EncoderInput, Variant


class Loud(Add):
    """x_i = w_i + 2 p_i + s_i.

    More is message here.
    """

    name = "loud"

    def __init__(self, dims, *, factor=2.0):
        super().__init__(dims)
        self.factor = factor

    def forward(self, token_ids, segment_ids):
        positions = self.factor * self.positions.weight[: token_ids.shape[1]]
        return EncoderInput(self.words_and_segments(token_ids, segment_ids) + positions)

    def graft(self, base):
        grafted = super().graft(base)
        self.positions.weight.data /= self.factor
        return grafted
'''

DEAF = "class Deaf(Add):\n    name = 'deaf'\n    uses_position = False\n"
OF_POSITIONS = "self.positions.weight[: token_ids.shape[1]]"
LINE = 1 + LOUD[: LOUD.index(OF_POSITIONS)].count("\n")
BROKEN = r"my_variant\.py': variant 'loud' does not meet the contract: clause "


def test_a_plugin_becomes_a_variant(write_plugin):
    path = write_plugin(LOUD)
    load_plugins([path])
    assert list(VARIANTS)[-1] == "loud"
    assert VARIANTS["loud"].summary == "x_i = w_i + 2 p_i + s_i."
    assert VARIANTS["loud"].source == "my_variant.py"
    content = path.read_bytes()
    assert plugin_digest("loud") == hashlib.sha256(content).hexdigest()


def test_the_same_file_stays_loaded_and_an_edited_one_is_loaded_anew(write_plugin, monkeypatch):
    """The edit comes at once and keeps the size. Python's own cache would miss it."""
    path = write_plugin(LOUD)
    load_plugins([path, path])
    first = VARIANTS["loud"]
    before = plugin_digest("loud")
    monkeypatch.chdir(path.parent)
    load_plugins(["my_variant.py"])
    assert VARIANTS["loud"] is first
    write_plugin(LOUD.replace("factor=2.0", "factor=4.0"))
    load_plugins([path])
    assert EncoderModel(encoder_config("loud")).variant.factor == 4.0
    assert plugin_digest("loud") != before
    write_plugin(LOUD.replace('"loud"', '"quiet"'))
    load_plugins([path])
    assert set(PLUGINS) == {"quiet"}


CHANGES = {
    "factor=2.0": "factor=2.0, backwards=False, width=1",
    "self.factor = factor": """self.factor, self.backwards = factor, backwards
        if dims.embedding_size < width:
            raise ValueError("too wide")""",
    "+ positions)": "+ (positions.flip(0) if self.backwards else positions))",
}
BACKWARDS = LOUD
for code, changed_code in CHANGES.items():
    BACKWARDS = BACKWARDS.replace(code, changed_code)


def test_options_that_break_the_contract_are_refused(write_plugin):
    load_plugins([write_plugin(BACKWARDS)])
    clause = "clause 'padding', encoder like BERT: "
    message = rf"'loud' does not meet the contract: with \{{'backwards': True\}}, {clause}"
    with pytest.raises(UserError, match=message):
        check_plugin("loud", {"backwards": True, "factor": 2.0})


def test_an_unknown_option_of_a_plugin_is_refused(write_plugin):
    load_plugins([write_plugin(BACKWARDS)])
    message = "unknown option 'backward' in variant 'loud'; did you mean 'backwards'"
    with pytest.raises(UserError, match=message):
        check_plugin("loud", {"backward": True})


def test_an_option_that_no_tiny_encoder_permits_is_not_refused(write_plugin):
    load_plugins([write_plugin(BACKWARDS)])
    check_plugin("loud", {"width": 99})


def test_options_are_held_to_the_contract_once(write_plugin, monkeypatch):
    load_plugins([write_plugin(BACKWARDS)])
    check_plugin("loud", {"factor": 3.0})
    monkeypatch.setattr("glue_bench.model.plugins.check_contract", pytest.fail)
    check_plugin("loud", {"factor": 3.0})
    check_plugin("loud", {"backwards": False})  # the default, which loading has checked


def test_a_plugins_checkpoint_needs_the_plugin(write_plugin, tmp_path):
    path = write_plugin(LOUD)
    load_plugins([path])
    model = random_model(EncoderForMaskedLM, encoder_config("loud"))
    model.save_pretrained(tmp_path / "saved")
    expected = model(tokens()).logits
    del VARIANTS["loud"], PLUGINS["loud"]
    hint = r"unknown variant 'loud'; .* \(a variant of your own needs its file: --plugin FILE"
    for load in (AutoModelForMaskedLM.from_pretrained, read_checkpoint):
        with pytest.raises(UserError, match=hint):
            load(str(tmp_path / "saved"))
    load_plugins([path])
    loaded = AutoModelForMaskedLM.from_pretrained(tmp_path / "saved")
    torch.testing.assert_close(loaded(tokens()).logits, expected)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("x = 1\nclass (", r"cannot be imported: SyntaxError: invalid syntax \(my_variant\.py:2\)"),
        (
            "\n\nimport no_such_module",
            r"ModuleNotFoundError: No module named 'no_such_module' \(my_variant\.py:3\)",
        ),
        ("def f():\n    1 / 0\nf()", r"ZeroDivisionError: division by zero \(my_variant\.py:2\)"),
        ("import sys\nsys.exit(3)", r"cannot be imported: SystemExit: 3 \(my_variant\.py:2\)"),
        ("from glue_bench.model.variants.additive import Add", "defines no variant"),
        (
            LOUD.replace("def forward", "def backward").replace("(Add)", "(Variant)"),
            "variant: .*; Loud lacks forward",
        ),
        (
            LOUD.replace('    name = "loud"\n', ""),
            "class Loud needs a class attribute `name` .*; not None",
        ),
        (
            LOUD.replace('"loud"', '"so loud"'),
            "class Loud needs a class attribute `name` .*; not 'so loud'",
        ),
        (
            LOUD.replace('"loud"', '"add"'),
            "the name 'add' is taken by another variant; choose another",
        ),
        (LOUD + LOUD.replace("Loud(", "Louder("), "the name 'loud' is taken by another variant"),
        (
            LOUD.replace("shape[1]", "shape[2]"),
            rf"{BROKEN}'shapes', .*: IndexError: .* \(my_variant\.py:{LINE}\)",
        ),
        (
            LOUD.replace("return grafted", "pass"),
            rf"{BROKEN}'graft', encoder like BERT: TypeError: graft returns None",
        ),
        (LOUD + DEAF, "variant 'deaf' does not meet the contract: clause 'position'"),
    ],
    ids=lambda value: value[:20],
)
def test_a_file_that_is_no_plugin_is_refused_and_nothing_of_it_is_kept(code, message, write_plugin):
    path = write_plugin(code)
    with pytest.raises(UserError, match=message) as caught:
        load_plugins([path])
    assert str(path) in str(caught.value)
    assert not PLUGINS
    assert VARIANTS.keys().isdisjoint({"loud", "deaf"})


def test_one_file_may_have_several_variants_and_helpers(write_plugin):
    helper = """from abc import abstractmethod
class Base(Add):
    @abstractmethod
    def help(self): ...
"""
    load_plugins(
        [write_plugin(f"{LOUD}{helper}class Other(Loud):\n    name = 'other'\nAlias = Other")]
    )
    assert set(PLUGINS) == {"loud", "other"}
    assert VARIANTS["other"].summary == "Other"
