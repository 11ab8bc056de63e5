"""Model cards: what they state to the hub, what they keep to themselves, and what is sent."""

import math
from pathlib import Path
from unittest.mock import create_autospec

import pytest
from helpers.stored import history_of
from huggingface_hub import HfApi, ModelCard

from glue_bench import card
from glue_bench.data.hub import PINNED
from glue_bench.errors import UserError
from glue_bench.publish.card import NO_BENCHMARK, UNCHECKED, Card, push_card, write_card


@pytest.fixture
def finished(bench):
    """RTE with three seeds, of which the third is the median, and MNLI with one."""
    hub = {"source": "hub", "digest": "d", "revision": PINNED}
    for seed, value in enumerate((0.60, 0.66, 0.63), 1):
        bench.record(bench.expect("rte", seed), value, data=hub)
    bench.finish(
        "mnli",
        1,
        {"validation_matched": {"accuracy": 0.8}, "validation_mismatched": {"accuracy": 0.7}},
    )
    bench.plan()
    return bench


def stated(made):
    """What the hub reads from the card: configuration, split and metric -> the values."""
    found = {}
    for result in ModelCard(made.text).data.eval_results:
        assert result.dataset_type == "nyu-mll/glue"
        place = result.dataset_config, result.dataset_split, result.metric_type
        found.setdefault(place, []).append((result.metric_value, result.metric_name))
    return found


def test_the_hub_reads_the_runs_score_and_the_mean_with_its_standard_error(finished):
    made = card(finished.path)
    mean = (
        pytest.approx(0.63),
        f"Accuracy, mean of 3 seeds, standard error {0.03 / math.sqrt(3):.4f}",
    )
    assert stated(made) == {
        ("rte", "validation", "accuracy"): [(0.63, "Accuracy"), mean],
        ("mnli", "validation_matched", "accuracy"): [(0.8, "Accuracy")],
        ("mnli", "validation_mismatched", "accuracy"): [(0.7, "Accuracy")],
    }
    revisions = {
        result.dataset_config: result.dataset_revision
        for result in ModelCard(made.text).data.eval_results
    }
    assert revisions == {"rte": PINNED, "mnli": None}


def test_a_card_states_what_the_weights_of_the_last_epoch_score(bench):
    for seed, values in enumerate([(0.6, 0.7, 0.5), (0.6, 0.8, 0.6), (0.5, 0.6, 0.4)], start=1):
        bench.record(
            bench.expect("rte", seed),
            values[-1],
            history=history_of("validation", "accuracy", *values),
        )
    bench.finish("mrpc", 1, 0.8)
    bench.finish("mrpc", 2, 0.6)
    for seed, value in enumerate(
        (0.5, None, 0.7), start=1
    ):  # the undefined score is not left out of the mean
        bench.finish("cola", seed, value)
    found = stated(
        card(bench.plan(config={"protocol": {"epoch": "best"}, "finetuning": {"keep": "best"}}))
    )
    assert found["rte", "validation", "accuracy"] == [(0.5, "Accuracy")]
    assert len(found["mrpc", "validation", "accuracy"]) == 2
    assert found["cola", "validation", "matthews_correlation"] == [(0.5, "Matthews correlation")]


@pytest.mark.parametrize("spoilt", [{"source": "demo"}, {"partial": True}], ids=str)
def test_of_data_that_are_no_benchmark_nothing_is_stated(bench, spoilt):
    bench.finish("rte", 1, 0.6, **spoilt)
    made = card(bench.plan())
    assert "model-index" not in made.text
    assert f"**{NO_BENCHMARK}**" in made.text
    assert "nyu-mll" not in made.text


def test_of_a_split_that_was_not_compared_with_the_official_one_the_hub_is_told_nothing(bench):
    bench.record(bench.expect("rte"), 0.6)
    bench.record(
        bench.expect("qqp"),
        0.7,
        data={"source": "tsv", "digest": "d", "unchecked": ("validation",)},
    )
    bench.record(
        bench.expect("sst2"), 0.8, data={"source": "tsv", "digest": "d", "unchecked": ("test",)}
    )
    made = card(bench.plan())
    assert {task for task, *_ in stated(made)} == {"rte", "sst2"}
    assert UNCHECKED.format(tasks="QQP") in made.text
    assert NO_BENCHMARK not in made.text


def test_a_card_of_official_rows_says_nothing_of_others(finished):
    assert UNCHECKED[-30:] not in card(finished.path).text


def test_of_rows_that_are_not_the_official_ones_nothing_is_stated(bench):
    others = {
        "source": "tsv",
        "digest": "d",
        "partial": True,
        "differences": {"validation": "other rows"},
    }
    bench.record(bench.expect("rte"), 0.6, data=others)
    made = card(bench.plan())
    assert "nyu-mll" not in made.text
    assert "or not exactly the official rows" in made.text


def test_a_card_says_where_its_models_lie(finished, tmp_path):
    made = card(finished.path)
    assert (set(made.files), made.without) == ({"README.md"}, ("rte", "mnli"))
    with pytest.raises(UserError, match="has kept no model to push"):
        push_card(made, "me/it")
    finished.kept.add("add-rte-lr2e-05-s3")
    made = card(finished.plan())
    assert set(made.files) == {"README.md", "config.json", "model.safetensors"}
    assert 'from_pretrained("REPOSITORY")' in made.text
    finished.kept.add("add-mnli-lr2e-05-s1")
    write_card(card(finished.plan()), tmp_path / "repository")
    assert (
        tmp_path / "repository" / "rte" / "model.safetensors"
    ).read_bytes() == b"add-rte-lr2e-05-s3"
    assert 'subfolder="rte"' in (tmp_path / "repository" / "README.md").read_text()
    with pytest.raises(
        UserError, match="repository' is not empty; give a folder that does not exist yet"
    ):
        write_card(made, tmp_path / "repository")
    finished.file("add-mnli-lr2e-05-s1", "model/config.json").write_text("{ }")
    with pytest.raises(UserError, match=r"model/config\.json: changed since the run wrote it"):
        card(finished.path)


def test_a_file_that_no_record_knows_is_never_published(refused, finished, tmp_path):
    """The hub's endpoints execute a handler.py."""
    finished.kept.add("add-rte-lr2e-05-s3")
    handler = finished.plan() / "cells" / "add-rte-lr2e-05-s3" / "model" / "handler.py"
    handler.write_text("")
    line = "cells/add-rte-lr2e-05-s3/model/handler.py: no file of the model that the run has kept; take it away"
    assert line in refused("card", finished.path, "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_is_hidden_beside_a_model_is_not_published(finished, tmp_path):
    finished.kept.add("add-rte-lr2e-05-s3")
    (finished.plan() / "cells" / "add-rte-lr2e-05-s3" / "model" / ".DS_Store").write_text("")
    write_card(card(finished.path), tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "README.md",
        "config.json",
        "model.safetensors",
    }


def test_the_base_model_is_named_where_it_is_the_hubs_and_no_folder(bench, monkeypatch, tmp_path):
    """Without a revision the cache of the hub tells; where an arm lies on the disk is no one's business."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    (tmp_path / "models--org--cached").mkdir()
    starts = {
        "pinned": "org/pinned",
        "cached": "org/cached",
        "folder": "mine/bert",
        "fresh": "scratch",
    }
    for arm in starts:
        bench.finish(arm=arm)
    revisions = {"pinned": {"revision": "main"}}
    bench.plan(config={"arms": [{"name": arm, "checkpoint": start, **revisions.get(arm, {})}
                                for arm, start in starts.items()]})  # fmt: skip
    texts = {arm: card(bench.path, arm).text for arm in starts}
    named = {arm: ModelCard(text).data.base_model for arm, text in texts.items()}
    assert named == {"pinned": "org/pinned", "cached": "org/cached", "folder": None, "fresh": None}
    assert "mine/bert" not in texts["folder"]


def test_a_push_is_one_commit_of_card_and_models_and_a_refusal_is_one_line(
    glue_bench, refused, finished, monkeypatch
):
    hub = create_autospec(HfApi, instance=True)
    hub.create_commit.return_value.commit_url = "https://huggingface.co/me/it/commit/1"
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: hub)
    finished.kept |= {"add-rte-lr2e-05-s3", "add-mnli-lr2e-05-s1"}
    said = glue_bench("card", finished.plan(), "--push", "me/it")
    assert (said.out, said.err) == ("pushed: https://huggingface.co/me/it/commit/1\n", "")
    hub.create_repo.assert_called_once_with("me/it", private=True, exist_ok=True)
    (repository, operations), _ = hub.create_commit.call_args
    files, made = (
        {each.path_in_repo: each.path_or_fileobj for each in operations},
        card(finished.path),
    )
    assert (repository, set(files)) == ("me/it", set(made.files))
    assert files["README.md"].decode() == made.text.replace("REPOSITORY", "me/it") != made.text
    assert Path(files["rte/model.safetensors"]).read_bytes() == b"add-rte-lr2e-05-s3"
    hub.create_repo.side_effect = OSError("401 Client Error\nInvalid token")
    assert "cannot push to 'me/it': 401 Client Error" in refused(
        "card", finished.path, "--push", "me/it"
    )


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
        "README.md",
        "mnli",
        "rte",
    ]
