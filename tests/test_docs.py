"""What the README and docs/ explain is all there is: keys, messages, variants, rooms."""

import re
from dataclasses import fields

import pytest
import yaml
from pages import README, ROOT, block, blocks, page

import glue_bench
from glue_bench.config import (
    Arm,
    Experiment,
    Finetuning,
    Pretraining,
    Protocol,
    Resources,
    ScratchEncoder,
    TaskSettings,
    load_experiment,
    parse_experiment,
)
from glue_bench.errors import UserError
from glue_bench.model.variants.base import Additive, Dimensions, EncoderInput
from glue_bench.values import Loader

EVERY_KEY = block("yaml", page("experiments"))
LEAST = {"name": "x", "data": "demo", "arms": ["add"], "checkpoint": "scratch"}


def test_the_readme_is_short_and_its_experiment_complete():
    assert len(README.split()) <= 1200
    experiment = parse_experiment(yaml.load(block("yaml", README), Loader=Loader))
    assert [arm.name for arm in experiment.arms] == ["add", "untied", "concat-start-add"]


def test_the_annotated_experiment_is_valid_and_names_every_key(tmp_path):
    path = tmp_path / "example.yaml"
    path.write_text(EVERY_KEY)
    experiment = load_experiment(path)
    assert [arm.name for arm in experiment.arms] == ["add", "tupe-a", "none-scratch", "concat-split"]
    explained = EVERY_KEY + "".join(blocks("yaml", page("pretraining")))
    for section in (Experiment, Arm, ScratchEncoder, Pretraining, Finetuning, TaskSettings, Protocol, Resources):
        for name, field in section.model_fields.items():
            assert re.search(rf"^ *(- )?{field.alias or name}:|\b{name}\b", explained, re.M), f"{name} is not explained"


def test_the_annotated_pretraining_is_valid_and_shows_the_defaults():
    text = page("pretraining")
    raw = yaml.load(block("yaml", text), Loader=Loader)["pretraining"]
    shown = parse_experiment(LEAST | {"pretraining": raw}).pretraining
    by_default = Pretraining(corpus=shown.corpus, steps=shown.steps)
    chosen = {"batch_tokens", "micro_batch_tokens", "checkpoints"}
    assert shown.model_dump(exclude=chosen) == by_default.model_dump(exclude=chosen)
    rows = re.findall(r"^\| (`.+?) \|", text.split("## What is the same")[0], re.M)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(raw)


def test_the_annotated_defaults_are_the_defaults():
    shown = yaml.safe_load(EVERY_KEY)
    assert ScratchEncoder(**shown["scratch"]) == ScratchEncoder()
    assert Resources(**shown["resources"]) == Resources()
    assert Protocol(**shown["protocol"]) == Protocol()
    finetuning = {key: value for key, value in shown["finetuning"].items() if key not in ("tasks", "learning_rates")}
    finetuning["adam_epsilon"] = float(finetuning["adam_epsilon"])
    assert Finetuning(**finetuning) == Finetuning()


def test_the_first_broken_clause_is_named_as_shown(write_plugin):
    code = block("python", page("own-variant"))
    plugin = write_plugin(code.replace("self.log_r2.exp() * away", "away"))
    with pytest.raises(UserError) as raised:
        glue_bench.load_plugins([plugin])
    expected = next(text for text in blocks("", page("own-variant")) if text.startswith("error: "))
    assert f"error: {raised.value}\n".replace(str(plugin.resolve()), "/home/me/my_variant.py") == expected


@pytest.mark.parametrize(
    ("kind", "heading"), [(Dimensions, "built for"), (EncoderInput, "it returns"), (Additive, "starts from")]
)
def test_every_field_that_a_variant_sees_is_explained(kind, heading):
    section = next(text for text in page("own-variant").split("\n## ") if heading in text.split("\n")[0])
    rows = re.findall(r"^\| (`.+?) \|", section, re.M)
    assert [name for row in rows for name in re.findall(r"`(\w+)`", row)] == [field.name for field in fields(kind)]


def test_every_variant_is_in_the_reference():
    text = page("reference/variants")
    for name, variant in glue_bench.VARIANTS.items():
        assert f"## {name}\n\n::: {variant.__module__}.{variant.__qualname__}\n" in text


def test_the_citation_names_this_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == glue_bench.__version__
    assert f"version = {{{glue_bench.__version__}}}" in page("cite")
    assert cited["title"] in page("cite")


def test_the_tree_names_every_room():
    rooms = {p.name for p in (ROOT / "glue_bench").iterdir() if p.is_dir() and (p / "__init__.py").exists()}
    tree = block("", page("architecture"), "glue_bench/\n")
    assert [room for room in rooms if f"\n  {room}/ " not in tree] == []
