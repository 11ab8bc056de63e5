"""Model cards: what they state to the hub, what they keep to themselves, and what is sent."""

import math
import time
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest
import yaml
from helpers.hubs import silent_hub, slow_hub
from helpers.stored import history_of
from huggingface_hub import EvalResultEntry, HfApi, ModelCard, parse_eval_result_entries

from glue_bench import card
from glue_bench.data.hub import PINNED
from glue_bench.errors import UserError
from glue_bench.publish.card import (
    NO_BENCHMARK,
    RESULTS_FILE,
    UNCHECKED_NOTE,
    Card,
)
from glue_bench.publish.card_output import push_card, write_card

RTE_MEDIAN = "add-rte-lr2e-05-s3"
MNLI_RUN = "add-mnli-lr2e-05-s1"


@pytest.fixture
def finished(bench):
    """RTE with three seeds, of which the third is the median, and MNLI with one."""
    hub = {"source": "hub", "digest": "d", "revision": PINNED}
    for seed, value in enumerate((0.60, 0.66, 0.63), 1):
        bench.record(bench.expect("rte", seed=seed), score=value, data=hub)
    scores = {
        "validation_matched": {"accuracy": 0.8},
        "validation_mismatched": {"accuracy": 0.7},
    }
    bench.finish("mnli", seed=1, score=scores)
    bench.plan()
    return bench


def stated_scores(model_card):
    """Return what the hub reads from the card: configuration, split and metric -> the values."""
    values = {}
    for result in ModelCard(model_card.text).data.eval_results:
        assert result.dataset_type == "nyu-mll/glue"
        place = result.dataset_config, result.dataset_split, result.metric_type
        values.setdefault(place, []).append((result.metric_value, result.metric_name))
    return values


def test_the_hub_reads_the_runs_score_and_the_mean_with_its_standard_error(finished):
    error = f"{0.03 / math.sqrt(3):.4f}"
    mean = (pytest.approx(0.63), f"Accuracy, mean of 3 seeds, standard error {error}")
    assert stated_scores(card(finished.path)) == {
        ("rte", "validation", "accuracy"): [(0.63, "Accuracy"), mean],
        ("mnli", "validation_matched", "accuracy"): [(0.8, "Accuracy")],
        ("mnli", "validation_mismatched", "accuracy"): [(0.7, "Accuracy")],
    }


def test_the_hub_reads_the_revision_of_a_task_if_it_is_known(finished):
    revisions = {}
    for result in ModelCard(card(finished.path).text).data.eval_results:
        revisions[result.dataset_config] = result.dataset_revision
    assert revisions == {"rte": PINNED, "mnli": None}


def results_of(model_card) -> list[EvalResultEntry]:
    """Return what the hub reads from `.eval_results` of a card."""
    return parse_eval_result_entries(yaml.safe_load(model_card.files[RESULTS_FILE]))


def test_the_hubs_results_have_the_score_of_each_model(finished):
    values = {entry.task_id: entry.value for entry in results_of(card(finished.path))}
    assert values == {"rte": 0.63, "mnli_matched": 0.8, "mnli_mismatched": 0.7}


def test_the_hubs_results_name_data_set_revision_metric_and_other_seeds(finished):
    (entry,) = [entry for entry in results_of(card(finished.path)) if entry.task_id == "rte"]
    assert entry.dataset_id == "nyu-mll/glue"
    assert entry.dataset_revision == PINNED
    error = f"{0.03 / math.sqrt(3):.4f}"
    means = f"mean of 3 seeds 0.6300, standard error {error}"
    assert entry.notes == f"Accuracy on the validation set; {means}"


def test_the_hubs_results_have_one_number_for_each_task(bench):
    """A task with two numbers would stand twice in a leaderboard of the hub."""
    bench.finish("mrpc", seed=1, score={"accuracy": 0.8, "f1": 0.9})
    (entry,) = results_of(card(bench.plan()))
    assert entry.value == 0.8


def test_the_hubs_results_are_written_beside_the_card(finished, tmp_path):
    write_card(card(finished.path), tmp_path / "out")
    assert (tmp_path / "out" / ".eval_results" / "glue.yaml").is_file()


def test_a_card_states_what_the_weights_of_the_last_epoch_score(bench):
    for seed, values in enumerate([(0.6, 0.7, 0.5), (0.6, 0.8, 0.6), (0.5, 0.6, 0.4)], start=1):
        history = history_of("validation", "accuracy", *values)
        bench.record(bench.expect("rte", seed=seed), score=values[-1], history=history)
    bench.finish("mrpc", seed=1, score=0.8)
    bench.finish("mrpc", seed=2, score=0.6)
    for seed, value in enumerate((0.5, None, 0.7), start=1):
        # The undefined score is not left out of the mean.
        bench.finish("cola", seed=seed, score=value)
    config = {"protocol": {"epoch": "best"}, "finetuning": {"keep": "best"}}
    scores = stated_scores(card(bench.plan(config=config)))
    assert scores["rte", "validation", "accuracy"] == [(0.5, "Accuracy")]
    assert len(scores["mrpc", "validation", "accuracy"]) == 2
    assert scores["cola", "validation", "matthews_correlation"] == [(0.5, "Matthews correlation")]


@pytest.mark.parametrize("facts", [{"source": "demo"}, {"partial": True}])
def test_of_data_that_are_no_benchmark_nothing_is_stated(bench, facts):
    bench.finish("rte", seed=1, score=0.6, **facts)
    model_card = card(bench.plan())
    text = model_card.text
    assert RESULTS_FILE not in model_card.files
    assert "model-index" not in text
    assert f"**{NO_BENCHMARK}**" in text
    assert "nyu-mll" not in text


def test_of_a_split_that_was_not_compared_with_the_official_one_the_hub_is_told_nothing(bench):
    tsv = {"source": "tsv", "digest": "d"}
    bench.record(bench.expect("rte"), score=0.6)
    bench.record(bench.expect("qqp"), score=0.7, data={**tsv, "unchecked": ("validation",)})
    bench.record(bench.expect("sst2"), score=0.8, data={**tsv, "unchecked": ("test",)})
    model_card = card(bench.plan())
    assert {task for task, *_ in stated_scores(model_card)} == {"rte", "sst2"}
    assert UNCHECKED_NOTE.format(tasks="QQP") in model_card.text
    assert NO_BENCHMARK not in model_card.text


def test_a_card_of_official_rows_says_nothing_of_other_rows(finished):
    assert UNCHECKED_NOTE[-30:] not in card(finished.path).text


def test_of_rows_that_are_not_the_official_ones_nothing_is_stated(bench):
    data = {
        "source": "tsv",
        "digest": "d",
        "partial": True,
        "differences": {"validation": "other rows"},
    }
    bench.record(bench.expect("rte"), score=0.6, data=data)
    text = card(bench.plan()).text
    assert "nyu-mll" not in text
    assert "or not exactly the official rows" in text


def test_a_card_names_the_tasks_of_missing_runs(finished):
    finished.expect("cola", seed=1)
    finished.plan()
    assert "- Planned runs of CoLA are missing." in card(finished.path).text


def test_a_card_of_all_planned_runs_names_none(finished):
    assert "missing" not in card(finished.path).text


def test_a_model_without_one_of_its_files_is_refused_by_the_name_of_the_file(two_models):
    next(two_models.path.glob("cells/*/model/model.safetensors")).unlink()
    with pytest.raises(
        UserError, match=r"model/model\.safetensors: No such file or directory; del"
    ):
        card(two_models.path)


def test_a_card_without_models_has_text_and_scores_alone(finished):
    model_card = card(finished.path)
    assert set(model_card.files) == {"README.md", RESULTS_FILE}
    assert model_card.without == ("rte", "mnli")


def test_a_card_without_models_cannot_be_pushed(finished):
    with pytest.raises(UserError, match="has kept no model to push"):
        push_card(card(finished.path), "me/it")


def test_a_single_model_lies_beside_the_card(finished):
    finished.kept.add(RTE_MEDIAN)
    model_card = card(finished.plan())
    assert set(model_card.files) == {"README.md", RESULTS_FILE, "config.json", "model.safetensors"}
    assert 'from_pretrained("REPOSITORY")' in model_card.text


@pytest.fixture
def two_models(finished):
    """An experiment that has kept a model of two tasks."""
    finished.kept |= {RTE_MEDIAN, MNLI_RUN}
    finished.plan()
    return finished


def test_several_models_lie_in_folders_of_their_tasks(two_models, tmp_path):
    write_card(card(two_models.path), tmp_path / "out")
    assert (tmp_path / "out" / "rte" / "model.safetensors").read_bytes() == RTE_MEDIAN.encode()
    assert 'subfolder="rte"' in (tmp_path / "out" / "README.md").read_text()


def test_a_folder_with_files_is_refused(finished, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").touch()
    line = "out' is not empty; give a folder that does not exist yet"
    with pytest.raises(UserError, match=line):
        write_card(card(finished.path), tmp_path / "out")


def test_a_changed_model_is_refused(two_models):
    two_models.file(MNLI_RUN, "model/config.json").write_text("{ }")
    with pytest.raises(UserError, match=r"model/config\.json: changed since the run wrote it"):
        card(two_models.path)


def test_a_file_that_no_record_knows_is_never_published(refused, finished, tmp_path):
    """The hub's endpoints execute a handler.py."""
    finished.kept.add(RTE_MEDIAN)
    name = f"cells/{RTE_MEDIAN}/model/handler.py"
    (finished.plan() / name).write_text("")
    line = f"{name}: no file of the model that the run has kept; take it away"
    assert line in refused("card", finished.path, "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_is_hidden_beside_a_model_is_not_published(finished, tmp_path):
    finished.kept.add(RTE_MEDIAN)
    finished.plan()
    finished.file(RTE_MEDIAN, "model/.DS_Store").write_text("")
    write_card(card(finished.path), tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"README.md", ".eval_results", "config.json", "model.safetensors"}


def test_the_base_model_is_named_where_it_is_the_hubs_and_no_folder(bench, monkeypatch, tmp_path):
    """Without a revision the cache of the hub tells; where an arm lies on the disk is private."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    (tmp_path / "models--org--cached").mkdir()

    arms = [
        {"name": "pinned", "checkpoint": "org/pinned", "revision": "main"},
        {"name": "cached", "checkpoint": "org/cached"},
        {"name": "folder", "checkpoint": "mine/bert"},
        {"name": "fresh", "checkpoint": "scratch"},
    ]

    for arm in arms:
        bench.finish(arm=arm["name"])
    bench.plan(config={"arms": arms})

    base_models = {}
    for arm in arms:
        text = card(bench.path, arm["name"]).text
        base_models[arm["name"]] = ModelCard(text).data.base_model
        assert "mine/bert" not in text

    expected = {
        "pinned": "org/pinned",
        "cached": "org/cached",
        "folder": None,
        "fresh": None,
    }
    assert base_models == expected


@pytest.fixture
def hub(monkeypatch):
    """A stand-in for the hub."""
    api = create_autospec(HfApi, instance=True)
    api.create_commit.return_value.commit_url = "https://huggingface.co/me/it/commit/1"
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: api)
    with slow_hub(0, monkeypatch):
        yield api


def test_a_push_to_a_hub_where_connections_hang_is_given_up(two_models, monkeypatch):
    started = time.monotonic()
    with silent_hub(monkeypatch), pytest.raises(UserError, match=r"'me/it': http://127.*timed out"):
        push_card(card(two_models.path), "me/it")
    assert time.monotonic() - started < 5


def test_a_push_makes_a_private_repository_and_prints_the_commit(glue_bench, two_models, hub):
    result = glue_bench("card", two_models.path, "--push", "me/it")
    hub.create_repo.assert_called_once_with("me/it", private=True, exist_ok=True)
    assert result.out == "pushed: https://huggingface.co/me/it/commit/1\n"
    assert result.err == ""


@pytest.fixture
def pushed_files(glue_bench, two_models, hub) -> dict[str, Any]:
    """The files of the one commit of a push to `me/it`, by their paths in the repository."""
    glue_bench("card", two_models.path, "--push", "me/it")
    hub.create_commit.assert_called_once()
    (repository, operations), _ = hub.create_commit.call_args
    assert repository == "me/it"
    return {operation.path_in_repo: operation.path_or_fileobj for operation in operations}


def test_a_push_has_the_files_of_the_card_and_its_models(pushed_files, two_models):
    assert set(pushed_files) == set(card(two_models.path).files)
    assert Path(pushed_files["rte/model.safetensors"]).read_bytes() == RTE_MEDIAN.encode()


def test_the_card_of_a_push_names_its_repository(pushed_files, two_models):
    text = card(two_models.path).text
    assert "REPOSITORY" in text
    assert pushed_files["README.md"].decode() == text.replace("REPOSITORY", "me/it")


def test_a_refused_push_is_one_line(refused, two_models, hub):
    hub.create_repo.side_effect = OSError("401 Client Error\nInvalid token")
    error = refused("card", two_models.path, "--push", "me/it")
    assert "cannot push to 'me/it': 401 Client Error" in error


@pytest.mark.parametrize("folder_exists", [False, True])
def test_a_card_whose_model_cannot_be_read_leaves_no_file(tmp_path, folder_exists):
    gone = tmp_path / "gone.safetensors"
    half = Card(
        arm="add",
        text="",
        files={"rte/config.json": b"{}", "rte/model.safetensors": gone, "README.md": b""},
        without=(),
    )
    if folder_exists:
        (tmp_path / "out").mkdir()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match="cannot write to"):
        write_card(half, tmp_path / "out")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_card_fills_an_empty_folder_that_may_be_a_link(finished, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    finished.kept |= {"add-rte-lr2e-05-s3", "add-mnli-lr2e-05-s1"}
    write_card(card(finished.plan()), tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "disk").iterdir()) == [
        ".eval_results",
        "README.md",
        "mnli",
        "rte",
    ]
