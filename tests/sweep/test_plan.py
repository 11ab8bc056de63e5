"""Cells and their ids: what changes an id, what does not, and what is refused before any compute."""

import re
import shutil

import pytest
from safetensors.torch import load_file, save_file

from glue_bench.config import load_experiment
from glue_bench.data.demo import generate
from glue_bench.errors import UserError
from glue_bench.records.values import Plan
from glue_bench.sweep.plan import make_plan, select
from glue_bench.training.inputs import Inputs

pytestmark = pytest.mark.usefixtures("small_demo")


def plan(values) -> Plan:
    experiment = load_experiment(values)
    return make_plan(experiment, Inputs(experiment))


def ids(values) -> list[str]:
    return [cell.id for cell in plan(values).cells]


@pytest.fixture
def one(tiny):
    """The id of the only cell of a tiny experiment, with changes."""

    def one_id(**changes) -> str:
        (found,) = ids(tiny(**{"arms": ["add"], "tasks": ["cola"]} | changes))
        return found

    return one_id


@pytest.fixture
def texts() -> tuple[str, ...]:
    return tuple(generate("cola")["train"]["text_a"])


def test_the_plan_says_what_each_encoder_is(tiny, make_bert, texts):
    """The vocabulary is that of the tokenizer, which may lack words that were asked for."""
    bert = str(make_bert(texts=texts))
    values = tiny(
        arms=["add", {"variant": "concat-split", "name": "split"}, {"variant": "untied", "checkpoint": bert}],
        tasks=["cola"],
        scratch={"vocab_size": 5000},
    )
    arms = plan(values).arms
    sizes = {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
    assert arms["untied"].shape.document() == sizes | {"embedding_size": 16, "vocab_size": 250}
    assert arms["add"].shape == arms["split"].shape != arms["untied"].shape
    assert arms["add"].shape.vocab_size < 5000
    assert arms["split"].parameters - arms["split"].added_over_add == arms["add"].parameters


def test_the_plan_hides_where_data_and_text_are(tiny, tmp_path):
    (tmp_path / "secret.txt").write_text("\n".join(generate("cola")["train"]["text_a"]))
    pretraining = {"corpus": str(tmp_path / "secret.txt"), "steps": 2, "batch_tokens": 64, "length": 32}
    whole = plan(tiny(pretraining=pretraining | {"validation_share": 0.1}))
    assert "secret" not in whole.model_dump_json()
    assert {cell.origin for cell in whole.cells} == {"pretrained"}
    assert whole.experiment.data == "demo"


# Ids


def test_an_id_is_a_slug_and_a_hash(one):
    assert re.fullmatch(r"add-cola-lr0\.001-s1-[0-9a-f]{12}", one())
    assert re.fullmatch(r"a\.b-cola-lr2e-05-s7-[0-9a-f]{12}", one(
        arms=[{"variant": "add", "name": "a.b"}], seeds=[7], finetuning={"learning_rates": [2e-5]}
    ))  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        *[{"arms": [{"variant": "none", "name": "add"}]}, {"arms": [{"variant": "add", "name": "other"}]}],
        *[{"scratch": change} for change in ({"hidden_size": 32}, {"hidden_dropout_prob": 0.0}, {"vocab_size": 150})],
    ],
    ids=str,
)
def test_whatever_changes_the_outcome_changes_the_id(one, changes):
    assert one(**changes) != one()


def test_what_does_not_change_the_outcome_keeps_the_id(tiny, one):
    same = one()
    for changes in (
        {"name": "other"},
        *({"finetuning": {"tasks": each}} for each in ({"cola": {"epochs": 1}}, {"rte": {}})),
    ):
        assert one(**changes) == same
    assert same in ids(tiny(arms=["none", "add"], tasks=["cola"], seeds=[3, 1]))


def test_options_are_part_of_the_identity(tiny):
    def id_of(variant, **options):
        return ids(tiny(arms=[{"name": "x", "variant": variant, "options": options}], tasks=["cola"]))

    assert id_of("add", segments="none") != id_of("add", segments="scores") != id_of("add")
    assert id_of("add", segments="input") == id_of("add")
    assert id_of("diet-abs", rank=128, share=True) == id_of("diet-abs") != id_of("diet-abs", rank=2)


def test_other_data_changes_the_id(one, small_demo):
    before = one()
    small_demo(validation=25)
    assert one() != before


def test_a_checkpoint_and_a_tokenizer_count_by_content_and_their_folders_do_not(one, make_bert, texts, tmp_path):
    first, other = make_bert("first", texts=texts), make_bert("other", seed=1, texts=texts[:10])
    shutil.copytree(first, tmp_path / "moved")
    id_of = one(checkpoint=str(first))
    assert id_of == one(checkpoint=str(tmp_path / "moved")) != one(checkpoint=str(other))
    assert id_of == one(checkpoint=str(first), tokenizer=str(tmp_path / "moved"))
    assert id_of != one(checkpoint=str(first), tokenizer=str(other))
    assert id_of == one(checkpoint=str(first), scratch={"hidden_size": 64})
    config = tmp_path / "moved" / "config.json"
    config.write_text(config.read_text().replace('"hidden_dropout_prob": 0.1', '"hidden_dropout_prob": 0.2'))
    assert id_of != one(checkpoint=str(tmp_path / "moved"))


def test_a_plugins_file_is_part_of_its_cells_alone(one, write_plugin):
    plugin, without = write_plugin(), one()
    mine = one(arms=["mine"], plugins=[str(plugin)])
    assert one(plugins=[str(plugin)]) == without
    plugin.write_text(plugin.read_text() + "# edited")
    assert one(arms=["mine"], plugins=[str(plugin)]) != mine
    assert one() == without


# Mistakes


def test_dead_positions_are_refused(tiny, make_bert, texts):
    """The variant is alive in the contract; these weights are not."""
    folder = make_bert(texts=texts)
    weights = load_file(folder / "model.safetensors")
    weights["embeddings.position_embeddings.weight"][:] = 1
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    plan(tiny(checkpoint=str(folder), arms=["none", "alibi"]))
    with pytest.raises(UserError, match=r"arm 'b' \(variant 'add' from '.*bert'\): position is dead"):
        plan(tiny(checkpoint=str(folder), arms=["none", {"variant": "add", "name": "b"}]))


def test_a_vocabulary_that_does_not_fit_is_refused(tiny, make_bert, texts):
    big, small = make_bert("big", texts=texts), make_bert("small", vocab_size=20)
    with pytest.raises(UserError, match=r"arm 'add': the tokenizer has \d+ tokens but the checkpoint .* embeds 20"):
        plan(tiny(checkpoint=str(small), tokenizer=str(big)))


def test_a_task_that_the_data_lacks_is_refused(tiny, tmp_path):
    folder = tmp_path / "glue" / "RTE"
    folder.mkdir(parents=True)
    rows = "index\tsentence1\tsentence2\tlabel\n0\ta cat\ta dog\tentailment\n"
    (folder / "train.tsv").write_text(rows)
    with pytest.raises(UserError, match=r"has no cola; complete it, or set `tasks: \[rte\]`"):
        plan(tiny(data=str(folder.parent), tasks=["rte", "cola"]))
    with pytest.raises(UserError, match="task 'rte' has no validation split"):
        plan(tiny(data=str(folder.parent), tasks=["rte"]))


# --only


def chosen(tiny, *only):
    cells = plan(tiny(arms=["add", "none"], seeds=[1, 2], finetuning={"learning_rates": [1e-3, 2e-5]})).cells
    return [cell.key for cell in select(cells, only)]


def test_only_keeps_the_cells_that_match(tiny):
    assert len(chosen(tiny)) == 16
    found = chosen(tiny, "task=cola", "seed=2", "learning_rate=0.00002", "variant=none")
    assert [(key["arm"], key["task"], key["learning_rate"], key["seed"]) for key in found] == [
        ("none", "cola", 2e-5, 2)
    ]
    assert len(chosen(tiny, "task=cola", "task=stsb", "arm=add")) == 8
    assert chosen(tiny, "learning_rate=2e-5") == chosen(tiny, "learning_rate=2e-05")
    with pytest.raises(UserError, match="unknown learning_rate 'fast' in --only; known: "):
        chosen(tiny, "learning_rate=fast")
