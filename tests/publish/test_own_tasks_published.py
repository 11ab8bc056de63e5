"""What leaves the house of an experiment whose only task is the user's own."""

import json
from pathlib import Path

import pytest
import yaml

import glue_bench
from glue_bench.board.compare import open_comparison
from glue_bench.errors import UserError
from glue_bench.pages.files import next_step
from glue_bench.pages.method import method_part

ROWS = "text,label\n" + "".join(f"{word} {word},{word}\n" for word in ("yes", "no") * 8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny) -> Path:
    place = tmp_path_factory.mktemp("own")
    for name in ("train.csv", "dev.csv"):
        (place / name).write_text(ROWS)
    task = {
        "name": "Yes-No",
        "files": {"train": str(place / "train.csv"), "validation": str(place / "dev.csv")},
        "texts": "text",
        "labels": ["no", "yes"],
        "metrics": ["accuracy", "f1"],
    }
    experiment = tiny(
        tasks=[task], arms=["add"], data=None, seeds=[1, 2, 3], finetuning={"keep": "best"}
    )
    glue_bench.run(experiment, results=place)
    return place / "tiny"


def front_matter(folder: Path) -> dict:
    return yaml.safe_load(glue_bench.card(folder).text.split("---")[1])


def test_the_card_names_the_task_and_not_glue(folder):
    header = front_matter(folder)
    (entry,) = header["model-index"][0]["results"]
    assert entry["dataset"]["name"] == "Yes-No"
    assert "glue" not in header["tags"]
    assert "datasets" not in header
    assert "fine-tuned on Yes-No by glue-bench" in glue_bench.card(folder).text


def test_the_results_file_of_the_hub_has_tasks_of_glue_alone(folder):
    assert not [name for name in glue_bench.card(folder).files if name.startswith(".eval_results")]


def test_the_kept_model_names_the_labels(folder):
    config = json.loads(Path(glue_bench.card(folder).files["config.json"]).read_text())
    assert config["id2label"] == {"0": "no", "1": "yes"}


def test_what_comes_next_is_no_table_of_a_paper(folder):
    step = next_step(open_comparison(folder), "toy")
    assert step == "glue-bench card toy  # a model card with these scores"


def test_its_report_asks_for_no_folder_with_glue(folder):
    commands = method_part(open_comparison(folder)).listing
    assert "glue-bench run tiny.yaml --data hub" in commands


def test_a_submission_of_it_is_refused(folder, tmp_path):
    with pytest.raises(UserError, match="no task of GLUE, so that there is nothing to submit"):
        glue_bench.submit(folder, tmp_path / "x.zip")


def test_its_bundle_is_verified(folder, tmp_path):
    glue_bench.export(folder, tmp_path / "x.zip")
    assert not [fault for part in glue_bench.verify(tmp_path / "x.zip") for fault in part.faults]


def test_the_log_for_every_eval_ever_says_that_the_rows_are_files(folder, tmp_path):
    written = glue_bench.export(folder, tmp_path / "logs", format="eee", organization="my-lab")
    log = json.loads((tmp_path / "logs" / written["files"][0]).read_text())
    source = log["evaluation_results"][0]["source_data"]
    assert source["dataset_name"] == "Yes-No"
    assert source["source_type"] == "other"
