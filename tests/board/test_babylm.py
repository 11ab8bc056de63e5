"""BabyLM's `predictions.json` with its evaluation data; both are made up in the published form."""

import json

import pytest

from glue_bench.board.foreign import read_frames
from glue_bench.board.versus import compare_paths
from glue_bench.errors import UserError

BLIMP = {
    "sentence_good": "Who is talking?",
    "sentence_bad": "Who are talking?",
    "field": "syntax",
    "UID": "wh_island",
    "linguistics_term": "island_effects",
}
SUPPLEMENT = {"sentence_good": "Is she here?", "sentence_bad": "Is here she?"}
EWOK = {"Domain": "social-relations", "Target1": "Ann helps.", "Target2": "Ann is helped."}
TRACKING = {"numops": 2, "input_prefix": "Box 1 has", "options": [" the key.", " nothing."]}
COMPS = {
    "prefix_acceptable": "a robin",
    "prefix_unacceptable": "a stone",
    "property_phrase": "can fly.",
}
RTE = {"sentence1": "It rains.", "sentence2": "It is wet.", "label": 0}
KINDS = {
    "blimp": ("wh_island.jsonl", BLIMP, "wh_island", "Who is talking?", "Who are talking?"),
    "supplement": ("hypernym.jsonl", SUPPLEMENT, "hypernym", "Is she here?", "Is here she?"),
    "ewok": (
        "social-relations.jsonl",
        EWOK,
        "social-relations",
        " Ann helps.",
        " Ann is helped.",
    ),
    "entity tracking": ("regular.jsonl", TRACKING, "regular_2_ops", " the key.", " nothing."),
    "comps": (
        "comps_wugs_dist-before.jsonl",
        COMPS,
        "wugs_dist_before",
        "a robin can fly.",
        "a stone can fly.",
    ),
    "glue": ("rte.valid.jsonl", RTE, "rte", 0, 1),
}
"""By task: the name of a file, a row of it, its subtask, the right answer, and a wrong answer."""


def write_gold(folder, name, row, count):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(count * (json.dumps(row) + "\n"))
    return folder


def write_predictions(folder, subtask, answers):
    folder.mkdir(parents=True, exist_ok=True)
    predictions = [
        {"id": f"{subtask}_{number}", "pred": answer} for number, answer in enumerate(answers)
    ]
    path = folder / "predictions.json"
    path.write_text(json.dumps({subtask: {"predictions": predictions}}))
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_right_or_wrong_by_the_evaluation_data(tmp_path, kind):
    name, row, subtask, right, wrong = KINDS[kind]
    gold = write_gold(tmp_path / "gold", name, row, 2)
    place = tmp_path / "results/my-model/main/zero_shot/mlm/task/data"
    path = write_predictions(place, subtask, [right, wrong])
    frame = read_frames([path], gold=gold)
    assert frame["outcome"].tolist() == [1.0, 0.0]
    assert frame["task"].tolist() == [subtask, subtask]
    assert frame["system"].tolist() == ["my-model", "my-model"]
    expected = [f"{subtask}_0", f"{subtask}_1"]
    assert frame["id"].tolist() == expected


@pytest.mark.parametrize(
    ("place", "system"),
    [
        ("results/m/main/finetune/rte", "m"),
        ("results/m/chck_10M/zero_shot/causal/blimp/blimp_fast", "m chck_10M"),
        ("elsewhere/m", "m"),
    ],
)
def test_the_system_is_the_model_and_its_revision(tmp_path, place, system):
    gold = write_gold(tmp_path / "gold", "rte.valid.jsonl", RTE, 1)
    path = write_predictions(tmp_path / place, "rte", [0])
    assert read_frames([path], gold=gold)["system"].tolist() == [system]


def test_models_in_one_folder_of_results_are_compared(tmp_path):
    gold = write_gold(tmp_path / "gold", "rte.valid.jsonl", RTE, 40)
    write_predictions(tmp_path / "results/a/main/finetune/rte", "rte", 40 * [0])
    write_predictions(tmp_path / "results/b/main/finetune/rte", "rte", 20 * [0, 1])
    versus = compare_paths([tmp_path / "results"], reference="a", gold=gold)
    assert versus.contrasts["difference"].tolist() == [-50.0]
    assert versus.contrasts["verdict"].tolist() == ["worse"]


def test_other_rows_than_those_of_the_evaluation_data_are_refused(tmp_path):
    gold = write_gold(tmp_path / "gold", "rte.valid.jsonl", RTE, 3)
    path = write_predictions(tmp_path / "m", "rte", [0, 1])
    with pytest.raises(UserError, match="has 2 predictions of 'rte', and "):
        read_frames([path], gold=gold)


def test_predictions_without_evaluation_data_ask_for_it(tmp_path):
    path = write_predictions(tmp_path / "m", "rte", [0, 1])
    with pytest.raises(UserError, match="no right answers; give --gold FOLDER"):
        read_frames([path])


@pytest.mark.parametrize("text", ["[1]", "{}", '{"rte": [1]}', '{"blimp": {"a": {}}}', "{"])
def test_other_json_is_refused(tmp_path, text):
    path = tmp_path / "predictions.json"
    path.write_text(text)
    with pytest.raises(UserError, match="is no file of BabyLM's predictions"):
        read_frames([path])


def test_a_prediction_without_an_answer_is_refused_with_its_place(tmp_path):
    path = tmp_path / "predictions.json"
    path.write_text('{"rte": {"predictions": [{"id": "rte_0"}]}}')
    with pytest.raises(UserError, match=r"rte\.predictions\.0\.pred: Field required"):
        read_frames([path])


@pytest.mark.parametrize("content", ["", '{"ratio": 0.5, "sentences": "a\\tb"}\n'])
def test_a_folder_without_right_answers_is_refused(tmp_path, content):
    gold = tmp_path / "gold"
    gold.mkdir()
    if content:
        (gold / "wug.jsonl").write_text(content)
    path = write_predictions(tmp_path / "m", "wug", ["a"])
    with pytest.raises(UserError, match=r"no \.jsonl file|no row with a right answer"):
        read_frames([path], gold=gold)
