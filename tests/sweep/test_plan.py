"""Cells and their ids, and what is known before any compute: refusals, and what a dry run says."""

import shutil
import sys
from types import SimpleNamespace

import pytest
import torch
from helpers.tiny_models import edit_weights
from helpers.tiny_runs import SIZES, contents, plan

from glue_bench.config import Resources
from glue_bench.data.demo import generate
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.sweep.plan import select
from glue_bench.sweep.worker import workers_with_room
from glue_bench.training.device import Compute

pytestmark = pytest.mark.usefixtures("small_demo")
ONE_CELL = {"arms": ["add"], "tasks": ["cola"]}


def ids(values) -> list[str]:
    return [cell.id for cell in plan(values).cells]


@pytest.fixture
def id_of(tiny):
    """Give the id of the only cell of a tiny experiment, with changes."""
    return lambda **changes: ids(tiny(**ONE_CELL | changes))[0]


@pytest.fixture
def texts() -> tuple[str, ...]:
    return tuple(generate("cola")["train"]["text_a"])


def test_the_plan_says_what_each_encoder_is(tiny, make_bert, texts):
    """The vocabulary is that of the tokenizer, which may lack words that were asked for."""
    arms = [
        "add",
        {"variant": "concat-split", "name": "split"},
        {"variant": "untied", "checkpoint": str(make_bert(texts=texts))},
    ]
    facts = plan(tiny(arms=arms, tasks=["cola"], scratch={"vocab_size": 5000})).arms
    add = facts["add"]
    split = facts["split"]
    untied = facts["untied"]
    expected = SIZES | {"embedding_size": 16, "vocab_size": 250}
    assert untied.shape.document() == expected
    assert add.shape == split.shape
    assert add.shape != untied.shape
    assert add.shape.vocab_size < 5000
    assert split.parameters - split.added_over_add == add.parameters


def test_the_plan_hides_where_the_text_is(tiny, texts, tmp_path):
    (tmp_path / "secret.txt").write_text("\n".join(texts))
    pretraining = {
        "corpus": str(tmp_path / "secret.txt"),
        "steps": 2,
        "batch_tokens": 64,
        "length": 32,
        "validation_share": 0.1,
    }
    planned = plan(tiny(pretraining=pretraining))
    assert "secret" not in planned.model_dump_json()
    assert {cell.origin for cell in planned.cells} == {"pretrained"}


SAME_OUTCOME = {
    "another name": {"name": "other"},
    "an epoch on its own task that is the default": {
        "finetuning": {"tasks": {"cola": {"epochs": 1}}}
    },
    "a setting of another task": {"finetuning": {"tasks": {"rte": {}}}},
    "an option that is the default": {
        "arms": [{"variant": "add", "options": {"segments": "input"}}]
    },
}
OTHER_OUTCOME = {
    "another variant": {"arms": [{"variant": "none", "name": "add"}]},
    "another arm": {"arms": [{"variant": "add", "name": "other"}]},
    "no segments": {"arms": [{"variant": "add", "options": {"segments": "none"}}]},
    "segments in scores": {"arms": [{"variant": "add", "options": {"segments": "scores"}}]},
    "another width": {"scratch": {"hidden_size": 32}},
    "another dropout": {"scratch": {"hidden_dropout_prob": 0.0}},
    "another vocabulary": {"scratch": {"vocab_size": 150}},
}


@pytest.mark.parametrize("change", SAME_OUTCOME)
def test_what_does_not_change_the_outcome_does_not_change_the_id(id_of, change):
    assert id_of(**SAME_OUTCOME[change]) == id_of()


@pytest.mark.parametrize("change", OTHER_OUTCOME)
def test_what_changes_the_outcome_changes_the_id(id_of, change):
    assert id_of(**OTHER_OUTCOME[change]) != id_of()


def test_other_cells_do_not_change_the_id(id_of, tiny):
    assert id_of() in ids(tiny(arms=["none", "add"], tasks=["cola"], seeds=[3, 1]))


def test_a_plugin_changes_the_ids_of_its_own_variants_alone(id_of, write_plugin):
    plugin = write_plugin()
    before = id_of()
    assert id_of(plugins=[str(plugin)]) == before
    id_of_plugin = id_of(arms=["mine"], plugins=[str(plugin)])
    plugin.write_text(plugin.read_text() + "# edited")
    assert id_of(arms=["mine"], plugins=[str(plugin)]) != id_of_plugin
    assert id_of(plugins=[str(plugin)]) == before


def test_other_data_change_the_id(id_of, small_demo):
    before = id_of()
    small_demo(validation=25)
    assert id_of() != before


def test_a_checkpoint_counts_by_its_content_and_not_by_its_folder(
    id_of, make_bert, texts, tmp_path
):
    first = make_bert("first", texts=texts)
    second = make_bert("other", seed=1, texts=texts[:10])
    moved = tmp_path / "moved"
    shutil.copytree(first, moved)
    before = id_of(checkpoint=str(first))
    assert id_of(checkpoint=str(moved)) == before
    assert id_of(checkpoint=str(second)) != before
    assert id_of(checkpoint=str(first), scratch={"hidden_size": 64}) == before
    config = (moved / "config.json").read_text()
    edited = config.replace('"hidden_dropout_prob": 0.1', '"hidden_dropout_prob": 0.2')
    (moved / "config.json").write_text(edited)
    assert id_of(checkpoint=str(moved)) != before


def test_a_tokenizer_counts_by_its_content_and_not_by_its_folder(id_of, make_bert, texts, tmp_path):
    first = make_bert("first", texts=texts)
    second = make_bert("other", seed=1, texts=texts[:10])
    shutil.copytree(first, tmp_path / "moved")
    before = id_of(checkpoint=str(first))
    assert id_of(checkpoint=str(first), tokenizer=str(tmp_path / "moved")) == before
    assert id_of(checkpoint=str(first), tokenizer=str(second)) != before


# What cannot run


@pytest.fixture
def dead(make_bert, texts):
    """A checkpoint whose positions say nothing; variants that do not use them can start from it."""
    folder = make_bert("dead", texts=texts)
    edit_weights(folder, lambda weights: weights["embeddings.position_embeddings.weight"].fill_(1))
    return str(folder)


@pytest.fixture
def tiny_glue(tmp_path) -> str:
    """GLUE data with one task, which has one example and no validation split."""
    folder = tmp_path / "glue" / "RTE"
    folder.mkdir(parents=True)
    rows = "index\tsentence1\tsentence2\tlabel\n0\ta cat\ta dog\tentailment\n"
    (folder / "train.tsv").write_text(rows)
    return str(folder.parent)


def assert_refused(values, fault: str) -> None:
    with pytest.raises(UserError, match=fault):
        plan(values)


def test_an_arm_whose_weights_ignore_positions_is_refused(tiny, dead):
    """The variant uses positions in the contract; these weights do not."""
    plan(tiny(checkpoint=dead, arms=["none", "alibi"]))
    arms = ["none", {"variant": "add", "name": "b"}]
    assert_refused(tiny(checkpoint=dead, arms=arms), r"arm 'b' \(.*: position is dead")


def test_a_tokenizer_with_more_tokens_than_the_checkpoint_is_refused(tiny, dead, make_bert):
    checkpoint = str(make_bert("a", vocab_size=20))
    fault = r"'add': the tokenizer has \d+ tokens but .* embeds 20"
    assert_refused(tiny(checkpoint=checkpoint, tokenizer=dead), fault)


def test_texts_that_are_longer_than_the_positions_are_refused(tiny, dead):
    values = tiny(checkpoint=dead, arms=["none", "alibi"], finetuning={"max_length": 33})
    assert_refused(values, "arm 'none': max_length 33 of task 'cola' exceeds the 32 posit")


def test_a_pretraining_that_is_longer_than_the_positions_is_refused(pretrained, dead):
    pretraining = {"from": "checkpoint", "length": 33}
    values = pretrained(pretraining, checkpoint=dead, arms=["none", "alibi"])
    assert_refused(values, "arm 'none': pretraining.length 33 exceeds the 32 positions")


def test_a_task_that_the_data_do_not_have_is_refused(tiny, tiny_glue):
    fault = r"has no cola; complete it, or name what it has: `tasks: \[rte\]`"
    assert_refused(tiny(data=tiny_glue, tasks=["rte", "cola"]), fault)


def test_a_task_without_a_validation_split_is_refused(tiny, tiny_glue):
    values = tiny(data=tiny_glue, tasks=["rte"])
    assert_refused(values, "task 'rte' has no validation split")


def test_more_pretraining_seeds_than_sequences_are_refused(pretrained):
    values = pretrained({"seeds": [*range(500)], "validation_share": 0.5})
    assert_refused(values, "seeds has 500 seeds, but the text gives only")


def test_arms_with_different_tokenizers_are_not_pretrained_together(
    pretrained, dead, make_bert, texts
):
    arms = [
        {"variant": "none", "checkpoint": dead},
        {"variant": "alibi", "checkpoint": str(make_bert("b", texts=texts[:9]))},
    ]
    fault = "arms 'none' and 'alibi' have different tokenizers, so they cannot be"
    assert_refused(pretrained({"from": "checkpoint"}, arms=arms), fault)


# Conditions of --only


@pytest.fixture
def sixteen_cells(tiny):
    tuning = {"learning_rates": [1e-3, 2e-5]}
    return plan(tiny(arms=["add", "none"], seeds=[1, 2], finetuning=tuning)).cells


def test_a_condition_for_each_key_selects_one_cell(sixteen_cells):
    only = ["task=cola", "seed=2", "learning_rate=0.00002", "variant=none"]
    (cell,) = select(sixteen_cells, only)
    assert cell.arm == "none"
    assert cell.task == "cola"
    assert cell.settings.learning_rate == 2e-5
    assert cell.seed == 2


@pytest.mark.parametrize(
    ("count", "only"),
    [(16, []), (8, ["task=cola", "task=stsb", "arm=add"]), (8, ["learning_rate=2e-5"])],
)
def test_only_keeps_the_cells_that_match(sixteen_cells, count, only):
    assert len(select(sixteen_cells, only)) == count


def test_a_value_that_no_cell_has_is_refused(sixteen_cells):
    fault = "unknown learning_rate 'fast' in --only; known: "
    with pytest.raises(UserError, match=fault):
        select(sixteen_cells, ["learning_rate=fast"])


def test_conditions_that_no_cell_meets_are_refused(sixteen_cells):
    cells = [cell for cell in sixteen_cells if (cell.task, cell.seed) != ("cola", 2)]
    with pytest.raises(UserError, match="--only: no cell has all of task=cola, seed=2"):
        select(cells, ["task=cola", "seed=2"])


# Dry runs


NOWHERE = {"address": "127.0.0.1:1"}  # workers of a cluster look for the device themselves
FAULTS = {
    "no ray": (
        {"workers": 2},
        "--workers and --address need ray; install it: pip install '.[ray]'",
    ),
    "no cluster": (
        NOWHERE | {"device": "cuda"},
        "cannot use the Ray cluster at 127.0.0.1:1: ConnectionRefusedError",
    ),
    "no device": (NOWHERE | {"device": "gpu"}, "device 'gpu' is none of auto, cpu"),
    "cache is a file": ({}, "cannot write to"),
    "cache is a URL": ({}, "the cache (GLUE_BENCH_CACHE)"),
}


@pytest.fixture(params=FAULTS)
def fault(request, monkeypatch, tmp_path):
    """A fault that this machine now has; options of the run, and what the error says."""
    cache = tmp_path / "cache"
    if request.param == "no ray":
        monkeypatch.setitem(sys.modules, "ray", None)
    elif request.param == "no cluster":
        pytest.importorskip("ray")
    elif request.param == "cache is a file":
        cache.write_text("in the way")
        monkeypatch.setenv("GLUE_BENCH_CACHE", str(cache))
    elif request.param == "cache is a URL":
        monkeypatch.setenv("GLUE_BENCH_CACHE", "s3://bucket/cache")
    return FAULTS[request.param]


def test_a_dry_run_and_a_run_refuse_alike_and_leave_no_trace(sweep, tiny, tmp_path, fault):
    options, expected = fault
    before = contents(tmp_path)
    errors = []
    for dry_run in (True, False):
        with pytest.raises(UserError) as caught:
            sweep(tiny(), dry_run=dry_run, **options)
        errors.append(str(caught.value))
        assert contents(tmp_path) == before
    assert expected in errors[0]
    assert errors[0] == errors[1]


@pytest.fixture
def three_cores(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)


def test_a_dry_run_writes_nothing_and_says_what_would_run(sweep, tiny):
    summary = sweep(tiny(), only=["arm=none"], dry_run=True)
    assert [cell.split("-lr")[0] for cell in summary.waiting] == ["none-cola", "none-stsb"]
    assert summary.reasons == {"not run yet": 2}
    assert sweep.ended == []
    assert not summary.folder.exists()
    assert sweep.said.splitlines()[0] == "computing on cpu in float32"


@pytest.mark.usefixtures("three_cores")
def test_idle_cores_are_said(sweep, tiny):
    sweep(tiny(), only=["arm=none"], dry_run=True)
    advice = "--workers auto runs 2 at once (it needs Ray: pip install '.[ray]')"
    assert f"this machine has 3 cores: {advice}" in sweep.said


@pytest.mark.usefixtures("three_cores")
@pytest.mark.parametrize(
    ("changes", "only"),
    [({}, ["arm=add", "task=cola"]), ({"scratch": {"hidden_size": 256}}, [])],
    ids=["one job", "a wide encoder"],
)
def test_cores_that_are_no_use_are_not_said(sweep, tiny, changes, only):
    sweep(tiny(**changes), dry_run=True, only=only)
    assert "--workers" not in sweep.said


def test_an_encoder_without_segments_is_said(sweep, tiny, texts, make_bert):
    checkpoint = str(make_bert(texts=texts, segment_types=1))
    sweep(tiny(checkpoint=checkpoint, arms=["add"]), dry_run=True)
    assert (
        "both texts of a pair are segment 0, because the encoder has one segment: add" in sweep.said
    )


def test_workers_of_a_cluster_look_for_a_device_themselves(sweep, tiny, monkeypatch):
    cluster = SimpleNamespace(queues=True, in_parallel=True)
    monkeypatch.setattr("glue_bench.sweep.engine.Ray", lambda *_, **__: cluster)
    sweep(tiny(), dry_run=True, **NOWHERE)
    assert "computing on what the machine of each worker has" in sweep.said


@pytest.fixture
def half_finished(sweep, tiny) -> Store:
    """Results of CoLA in float32."""
    return Store(sweep(tiny(), only=["task=cola"], precision="float32").folder)


def test_finished_cells_of_another_precision_are_said_and_count_as_done(sweep, tiny, half_finished):
    assert len(half_finished.recorded()) == 2
    summary = sweep(tiny(), dry_run=True, precision="bf16")
    line = "computed on cpu in float32, and not on cpu in bf16 like this run: 2; they count as done"
    assert line in sweep.said
    assert summary.skipped == 2
    sweep(tiny(), dry_run=True, precision="float32")
    assert "count as done" not in sweep.said


def test_a_folder_that_a_driver_or_slurm_holds_can_still_be_looked_at(sweep, tiny, half_finished):
    half_finished.slurm_file.write_text('{"100": {}}')  # no Slurm is asked about this job
    with half_finished.lock():
        assert sweep(tiny(), dry_run=True).skipped == 2


def test_finished_cells_that_the_plan_leaves_out_are_said(sweep, tiny, half_finished):
    assert len(half_finished.recorded()) == 2
    sweep(tiny(tasks=["stsb"]), dry_run=True)
    assert "finished cells that this plan leaves out: 2; they are in no table" in sweep.said


@pytest.mark.parametrize(
    ("cores", "gpus", "needs", "expected"),
    [
        (8, 0, {}, 8),
        (8, 0, {"cpus": 3}, 2),
        (8, 0, {"cpus": 5}, None),
        (1, 0, {}, None),
        (8, 1, {}, None),
        (8, 1, {"gpus": 0.25}, 4),
        (8, 1, {"gpus": 1.0}, None),
        (8, 3, {"gpus": 0.7}, 3),
        (8, 2, {"gpus": 0.4}, 4),  # a share is one of a single GPU
        (8, 4, {"gpus": 1.0, "cpus": 4}, 2),
    ],
)
def test_a_worker_takes_its_cpus_and_its_share_of_a_gpu(monkeypatch, cores, gpus, needs, expected):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    compute = Compute(torch.device("cuda" if gpus else "cpu"), bf16=False, threads=cores)
    assert workers_with_room(Resources(**needs), compute) == expected
