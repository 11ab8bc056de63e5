"""Cells and their ids, and what is known before any compute: a dry run refuses what a run refuses, and says it."""

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
from glue_bench.sweep.worker import room_here
from glue_bench.training.device import Compute

pytestmark = pytest.mark.usefixtures("small_demo")


def ids(values) -> list[str]:
    return [cell.id for cell in plan(values).cells]


@pytest.fixture
def one(tiny):
    """The id of the only cell of a tiny experiment, with changes."""
    return lambda **changes: ids(tiny(**{"arms": ["add"], "tasks": ["cola"]} | changes))[0]


@pytest.fixture
def texts() -> tuple[str, ...]:
    return tuple(generate("cola")["train"]["text_a"])


def test_the_plan_says_what_each_encoder_is_and_hides_where_data_and_text_are(
    tiny, make_bert, texts, tmp_path
):
    """The vocabulary is that of the tokenizer, which may lack words that were asked for."""
    arms = ["add", {"variant": "concat-split", "name": "split"}]
    arms.append({"variant": "untied", "checkpoint": str(make_bert(texts=texts))})
    found = plan(tiny(arms=arms, tasks=["cola"], scratch={"vocab_size": 5000})).arms
    assert found["untied"].shape.document() == SIZES | {"embedding_size": 16, "vocab_size": 250}
    assert found["add"].shape == found["split"].shape != found["untied"].shape
    assert found["add"].shape.vocab_size < 5000
    assert found["split"].parameters - found["split"].added_over_add == found["add"].parameters
    (tmp_path / "secret.txt").write_text("\n".join(texts))
    pretraining = {
        "corpus": str(tmp_path / "secret.txt"),
        "steps": 2,
        "batch_tokens": 64,
        "length": 32,
    }
    whole = plan(tiny(pretraining=pretraining | {"validation_share": 0.1}))
    assert "secret" not in whole.model_dump_json()
    assert {cell.origin for cell in whole.cells} == {"pretrained"}


def test_whatever_changes_the_outcome_changes_the_id_and_nothing_else_does(
    tiny, one, small_demo, write_plugin
):
    same, plugin = one(), write_plugin()
    for changes in (
        {"name": "other"},
        {"plugins": [str(plugin)]},
        *({"finetuning": {"tasks": each}} for each in ({"cola": {"epochs": 1}}, {"rte": {}})),
        {"arms": [{"variant": "add", "options": {"segments": "input"}}]},  # which is the default
    ):
        assert one(**changes) == same
    assert same in ids(tiny(arms=["none", "add"], tasks=["cola"], seeds=[3, 1]))
    for changes in (
        *(
            {"arms": [arm]}
            for arm in ({"variant": "none", "name": "add"}, {"variant": "add", "name": "other"})
        ),
        *(
            {"arms": [{"variant": "add", "options": {"segments": each}}]}
            for each in ("none", "scores")
        ),
        *(
            {"scratch": each}
            for each in ({"hidden_size": 32}, {"hidden_dropout_prob": 0.0}, {"vocab_size": 150})
        ),
    ):
        assert one(**changes) != same
    mine = one(arms=["mine"], plugins=[str(plugin)])
    plugin.write_text(plugin.read_text() + "# edited")
    assert one(arms=["mine"], plugins=[str(plugin)]) != mine
    small_demo(validation=25)
    assert one() != same


def test_a_checkpoint_and_a_tokenizer_count_by_content_and_their_folders_do_not(
    one, make_bert, texts, tmp_path
):
    first, other = make_bert("first", texts=texts), make_bert("other", seed=1, texts=texts[:10])
    shutil.copytree(first, tmp_path / "moved")
    id_of = one(checkpoint=str(first))
    assert id_of == one(checkpoint=str(tmp_path / "moved")) != one(checkpoint=str(other))
    assert id_of == one(checkpoint=str(first), tokenizer=str(tmp_path / "moved"))
    assert id_of != one(checkpoint=str(first), tokenizer=str(other))
    assert id_of == one(checkpoint=str(first), scratch={"hidden_size": 64})
    config = tmp_path / "moved" / "config.json"
    config.write_text(
        config.read_text().replace('"hidden_dropout_prob": 0.1', '"hidden_dropout_prob": 0.2')
    )
    assert id_of != one(checkpoint=str(tmp_path / "moved"))


def test_what_cannot_run_is_refused(tiny, pretrained, make_bert, texts, tmp_path):
    small, dead, other = (
        make_bert("a", vocab_size=20),
        make_bert("dead", texts=texts),
        make_bert("b", texts=texts[:9]),
    )
    edit_weights(dead, lambda weights: weights["embeddings.position_embeddings.weight"].fill_(1))
    (tmp_path / "glue" / "RTE").mkdir(parents=True)
    rows = "index\tsentence1\tsentence2\tlabel\n0\ta cat\ta dog\tentailment\n"
    (tmp_path / "glue" / "RTE" / "train.tsv").write_text(rows)
    glue, alive = (
        {"data": str(tmp_path / "glue")},
        {"checkpoint": str(dead), "arms": ["none", "alibi"]},
    )
    plan(
        tiny(**alive)
    )  # the variant of the next one is alive in the contract; these weights are not
    start = {"from": "checkpoint"}
    two = [
        {"variant": "none", "checkpoint": str(dead)},
        {"variant": "alibi", "checkpoint": str(other)},
    ]
    for values, said in (
        (
            tiny(**alive | {"arms": ["none", {"variant": "add", "name": "b"}]}),
            r"arm 'b' \(.*: position is dead",
        ),
        (
            tiny(checkpoint=str(small), tokenizer=str(dead)),
            r"'add': the tokenizer has \d+ tokens but .* embeds 20",
        ),
        (
            tiny(**alive, finetuning={"max_length": 33}),
            "arm 'none': max_length 33 of task 'cola' exceeds the 32 posit",
        ),
        (
            tiny(**glue, tasks=["rte", "cola"]),
            r"has no cola; complete it, or name what it has: `tasks: \[rte\]`",
        ),
        (tiny(**glue, tasks=["rte"]), "task 'rte' has no validation split"),
        (
            pretrained({"seeds": [*range(500)], "validation_share": 0.5}),
            "seeds has 500 seeds, but the text gives only",
        ),
        (
            pretrained(start | {"length": 33}, **alive),
            "arm 'none': pretraining.length 33 exceeds the 32 positions",
        ),
        (
            pretrained(start, arms=two),
            "arms 'none' and 'alibi' have different tokenizers, so they cannot be",
        ),
    ):
        with pytest.raises(UserError, match=said):
            plan(values)


def test_only_keeps_the_cells_that_match(tiny):
    cells = plan(
        tiny(arms=["add", "none"], seeds=[1, 2], finetuning={"learning_rates": [1e-3, 2e-5]})
    ).cells
    (found,) = select(cells, ["task=cola", "seed=2", "learning_rate=0.00002", "variant=none"])
    assert (found.arm, found.task, found.settings.learning_rate, found.seed) == (
        "none",
        "cola",
        2e-5,
        2,
    )
    for count, only in (
        (16, []),
        (8, ["task=cola", "task=stsb", "arm=add"]),
        (8, ["learning_rate=2e-5"]),
    ):
        assert len(select(cells, only)) == count
    with pytest.raises(UserError, match="unknown learning_rate 'fast' in --only; known: "):
        select(cells, ["learning_rate=fast"])
    with pytest.raises(UserError, match="--only: no cell has all of task=cola, seed=2"):
        select(
            [cell for cell in cells if (cell.task, cell.seed) != ("cola", 2)],
            ["task=cola", "seed=2"],
        )


NOWHERE = {"address": "127.0.0.1:1"}  # whose workers look for the device themselves
FAULTS = {
    "no ray": (
        {"workers": 2},
        "--workers and --address needs ray; install it: pip install '.[ray]'",
    ),
    "no cluster": (
        NOWHERE | {"device": "cuda"},
        "cannot use the Ray cluster at 127.0.0.1:1: ConnectionRefusedError",
    ),
    "no device": (NOWHERE | {"device": "gpu"}, "device 'gpu' is none of auto, cpu"),
    "cache is a file": ({}, "cannot write to"),
    "cache is a URL": ({}, "the cache (GLUE_BENCH_CACHE)"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_dry_run_and_a_run_refuse_alike_and_leave_no_trace(
    sweep, tiny, monkeypatch, tmp_path, fault
):
    options, expected = FAULTS[fault]
    if fault == "no ray":
        monkeypatch.setitem(sys.modules, "ray", None)
    elif fault == "no cluster":
        pytest.importorskip("ray")
    elif "cache" in fault:
        (tmp_path / "cache").write_text("in the way")
        monkeypatch.setenv(
            "GLUE_BENCH_CACHE", "s3://bucket/cache" if "URL" in fault else str(tmp_path / "cache")
        )
    before, said = contents(tmp_path), []
    for dry_run in (True, False):
        with pytest.raises(UserError) as caught:
            sweep(tiny(), dry_run=dry_run, **options)
        said.append(str(caught.value))
        assert contents(tmp_path) == before
    assert expected in said[0]
    assert said[0] == said[1]


def test_a_dry_run_writes_nothing_and_says_what_would_run_and_where(
    sweep, tiny, monkeypatch, texts, make_bert
):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    summary = sweep(tiny(), only=["arm=none"], dry_run=True)
    assert [cell.split("-lr")[0] for cell in summary.waiting] == ["none-cola", "none-stsb"]
    assert (summary.reasons, sweep.ended) == ({"not run yet": 2}, [])
    assert not summary.folder.exists()
    assert sweep.said.splitlines()[0] == "computing on cpu in float32"
    assert (
        "this machine has 3 cores: --workers auto runs 2 at once (it needs Ray: pip install '.[ray]')"
        in sweep.said
    )
    for changes, only in (({}, ["arm=add", "task=cola"]), ({"scratch": {"hidden_size": 256}}, [])):
        sweep(tiny(**changes), dry_run=True, only=only)
        assert "--workers" not in sweep.said
    sweep(tiny(checkpoint=str(make_bert(texts=texts, segment_types=1)), arms=["add"]), dry_run=True)
    assert "both texts of a pair are segment 0, because the encoder has no other: add" in sweep.said
    monkeypatch.setattr(
        "glue_bench.sweep.engine.Ray",
        lambda *_, **__: SimpleNamespace(queues=True, in_parallel=True),
    )
    sweep(tiny(), dry_run=True, **NOWHERE)
    assert "computing on what the machine of each worker has" in sweep.said


def test_finished_cells_of_another_precision_are_said_and_count_as_done(sweep, tiny):
    folder = sweep(tiny(), only=["task=cola"], precision="float32").folder
    Store(folder).slurm_file.write_text('{"100": {}}')  # of which no Slurm is asked
    with Store(folder).lock():  # a store that another driver holds can still be looked at
        summary = sweep(tiny(), dry_run=True, precision="bf16")
    line = (
        "computed on cpu in float32, not on cpu in bf16 as this run: 2 finished; they count as done"
    )
    assert line in sweep.said
    assert summary.skipped == 2
    sweep(tiny(tasks=["stsb"]), dry_run=True)
    assert "finished cells that this plan leaves out: 2; they are in no table" in sweep.said
    sweep(tiny(), dry_run=True, precision="float32")
    assert "count as done" not in sweep.said


@pytest.mark.parametrize(
    ("cores", "gpus", "needs", "expected"),
    [
        *[
            (8, 0, {}, 8),
            (8, 0, {"cpus": 3}, 2),
            (8, 0, {"cpus": 5}, None),
            (1, 0, {}, None),
            (8, 1, {}, None),
        ],
        *[(8, 1, {"gpus": 0.25}, 4), (8, 1, {"gpus": 1.0}, None), (8, 3, {"gpus": 0.7}, 3)],
        (8, 2, {"gpus": 0.4}, 4),  # a share is one of a single GPU
        (8, 4, {"gpus": 1.0, "cpus": 4}, 2),
    ],
)
def test_a_worker_takes_its_cpus_and_its_share_of_a_gpu(monkeypatch, cores, gpus, needs, expected):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    compute = Compute(torch.device("cuda" if gpus else "cpu"), False, cores)
    assert room_here(Resources(**needs), compute) == expected
