"""Files of other harnesses, in their published forms, as one tidy frame."""

import json
import os

import pandas as pd
import pyarrow.parquet
import pytest

from glue_bench.board.foreign import read_frames
from glue_bench.errors import UserError


def tidy(path, rows, columns=("system", "task", "id", "outcome")):
    pd.DataFrame(rows, columns=list(columns)).to_csv(path, index=False)
    return path


def lines(path, documents):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))
    return path


def lm_eval_line(number, accuracy, **changes):
    """Return one line of `samples_TASK_DATE.jsonl`, with the keys that lm-eval logs."""
    document = {
        "doc_id": number,
        "doc": {"question": f"Is {number} even?"},
        "target": "yes",
        "arguments": [["Is it?", " yes"]],
        "resps": [[["-1.5", "False"]]],
        "filtered_resps": [["-1.5", "False"]],
        "filter": "none",
        "metrics": ["acc", "acc_norm"],
        "doc_hash": f"d{number}",
        "prompt_hash": f"p{number}",
        "target_hash": f"t{number}",
        "acc": accuracy,
        "acc_norm": 1.0,
    }
    return {**document, **changes}


def every_eval_line(number, score, model="org/model"):
    """Return one line of Every Eval Ever's instance-level file, single turn."""
    return {
        "schema_version": "0.3.0",
        "evaluation_id": "e1",
        "model_id": model,
        "evaluation_name": "GSM8K",
        "sample_id": f"gsm8k_{number}",
        "sample_hash": f"hash{number}",
        "interaction_type": "single_turn",
        "input": {"raw": "2 + 2?", "reference": ["4"]},
        "output": {"raw": ["4"]},
        "answer_attribution": [],
        "evaluation": {"score": score, "is_correct": bool(score)},
    }


def test_a_tidy_table_of_examples(tmp_path):
    frame = read_frames([tidy(tmp_path / "t.csv", [("a", "t", 1, 1), ("b", "t", 1, 0)])])
    assert frame["outcome"].tolist() == [1.0, 0.0]
    assert frame["system"].tolist() == ["a", "b"]
    assert frame["seed"].tolist() == ["1", "1"]


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
def test_one_table_in_every_format_is_one_frame(tmp_path, suffix):
    table = pd.DataFrame(
        {"system": ["a", "b"], "task": "t", "seed": [1, 2], "metric": "em", "score": [0.5, 0.25]}
    )

    path = tmp_path / f"t.{suffix}"
    if suffix == "csv":
        table.to_csv(path, index=False)
    elif suffix == "tsv":
        table.to_csv(path, index=False, sep="\t")
    elif suffix == "jsonl":
        table.to_json(path, orient="records", lines=True)
    else:
        table.to_parquet(path)

    frame = read_frames([path]).drop(columns="file")

    expected = {
        "system": ["a", "b"],
        "task": ["t", "t"],
        "metric": ["em", "em"],
        "seed": ["1", "2"],
        "score": [0.5, 0.25],
        "block": ["1", "1"],
    }
    assert frame.to_dict("list") == expected


def test_a_column_that_is_not_read_may_have_numbers_that_are_none(tmp_path):
    row = {"system": "a", "task": "t", "id": 1, "outcome": 1, "likelihood": float("-inf")}
    frame = read_frames([lines(tmp_path / "t.jsonl", [row])])
    assert frame["outcome"].tolist() == [1.0]


def test_a_whole_number_of_a_seed_or_an_id_may_be_written_as_a_fraction(tmp_path):
    row = {"system": "2.0", "task": "t", "seed": 1.0, "id": "7.0", "outcome": 1.0}
    frame = read_frames([lines(tmp_path / "t.jsonl", [row])])
    assert frame[["system", "seed", "id"]].iloc[0].tolist() == ["2.0", "1", "7"]


@pytest.mark.parametrize(("text", "outcome"), [("True", 1.0), ("FALSE", 0.0)])
def test_an_outcome_may_be_true_or_false(tmp_path, text, outcome):
    frame = read_frames([tidy(tmp_path / "t.csv", [("a", "t", 1, text)])])
    assert frame["outcome"].tolist() == [outcome]


def test_lines_may_end_as_in_old_spreadsheets(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"system,task,id,outcome\ra,t,1,1\rb,t,1,0\r")
    assert read_frames([path])["system"].tolist() == ["a", "b"]


@pytest.mark.parametrize("name", ["system", "id"])
@pytest.mark.parametrize("value", [["a"], {"a": 1}])
def test_a_name_that_is_a_list_or_an_object_is_refused(tmp_path, name, value):
    row = {"system": "a", "task": "t", "id": 1, "outcome": 1}
    path = lines(tmp_path / "t.jsonl", [row, {**row, name: value}])
    with pytest.raises(UserError, match=f"line 2: {name} is .*; give one value"):
        read_frames([path])


def test_an_example_with_pairs_of_two_metrics_is_refused(tmp_path):
    columns = ("system", "task", "metric", "id", "prediction", "label")
    path = tidy(tmp_path / "t.csv", [("a", "t", metric, 1, 1, 1) for metric in "xy"], columns)
    with pytest.raises(UserError, match="id '1' is there twice"):
        read_frames([path])


def test_a_column_of_parquet_that_is_there_twice_is_refused(tmp_path):
    path = tmp_path / "t.parquet"
    columns = [pyarrow.array(["a"]), pyarrow.array(["b"])]
    table = pyarrow.Table.from_arrays(columns, names=["system", "system"])
    pyarrow.parquet.write_table(table, path)
    with pytest.raises(UserError, match="two columns are called 'system'"):
        read_frames([path])


def test_a_pipe_is_refused(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(UserError, match="is a pipe or a device; write its rows to a file"):
        read_frames([path])


def test_columns_may_have_the_names_that_others_use(tmp_path):
    columns = ("model", "task", "example", "correct")
    frame = read_frames([tidy(tmp_path / "t.csv", [("a", "t", "x", 1)], columns)])
    assert frame[["system", "id", "outcome"]].iloc[0].tolist() == ["a", "x", 1.0]


def test_samples_of_lm_eval_are_found_in_the_folders_of_their_models(tmp_path):
    for model in ("org__one", "org__two"):
        name = "samples_arc_easy_2026-06-11T10-20-30.123456.jsonl"
        lines(tmp_path / "out" / model / name, [lm_eval_line(1, 1.0), lm_eval_line(2, 0.0)])
    frame = read_frames([tmp_path / "out"])
    assert frame["system"].unique().tolist() == ["org__one", "org__two"]
    assert frame["task"].unique().tolist() == ["arc_easy"]
    assert frame["metric"].unique().tolist() == ["acc", "acc_norm"]
    assert frame.query("system == 'org__one' and metric == 'acc'")["outcome"].tolist() == [1, 0]


def test_a_metric_of_lm_eval_is_named_with_its_filter(tmp_path):
    line = lm_eval_line(1, 1.0, filter="strict-match", metrics=["acc"])
    path = lines(tmp_path / "m" / "samples_gsm8k.jsonl", [line])
    assert read_frames([path])["metric"].tolist() == ["acc,strict-match"]


def test_a_document_of_lm_eval_without_a_filter_has_none(tmp_path):
    first = lm_eval_line(1, 1.0, metrics=["acc"])
    second = lm_eval_line(2, 1.0, metrics=["acc"])
    del second["filter"]
    path = lines(tmp_path / "m" / "samples_t.jsonl", [first, second])
    assert read_frames([path])["metric"].tolist() == ["acc", "acc"]


def test_parts_of_a_corpus_metric_of_lm_eval_are_left_out(tmp_path):
    line = lm_eval_line(1, 1.0, metrics=["acc", "f1"], f1=[1, 0])
    path = lines(tmp_path / "m" / "samples_t.jsonl", [line])
    assert read_frames([path])["metric"].tolist() == ["acc"]


def test_a_document_of_lm_eval_may_be_long(tmp_path):
    line = lm_eval_line(1, 1.0, doc={"context": "word " * 250_000})
    path = lines(tmp_path / "m" / "samples_ruler.jsonl", [line])
    assert read_frames([path])["outcome"].tolist()[0] == 1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"doc_id": None}, "line 2: doc_id is None"),
        ({"metrics": "acc"}, "line 2: metrics is 'acc'"),
        ({"acc": float("nan")}, r"line 2: the outcome is no number \(nan\)"),
    ],
)
def test_a_damaged_document_of_lm_eval_is_refused(tmp_path, changes, message):
    path = lines(
        tmp_path / "m" / "samples_t.jsonl", [lm_eval_line(1, 1.0), lm_eval_line(2, 1.0, **changes)]
    )
    with pytest.raises(UserError, match=message):
        read_frames([path])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"evaluation": 1.0}, "line 1: evaluation is 1.0"),
        ({"evaluation": {}}, r"line 1: the outcome is no number \(None\)"),
        ({"evaluation": {"score": 10**400}}, "line 1: the outcome is no number"),
        ({"model_id": None}, "line 1: model_id is None"),
    ],
)
def test_a_damaged_sample_of_every_eval_ever_is_refused(tmp_path, changes, message):
    path = lines(tmp_path / "e.jsonl", [{**every_eval_line(1, 1.0), **changes}])
    with pytest.raises(UserError, match=message):
        read_frames([path])


def test_every_eval_ever_is_paired_by_the_hash_of_a_sample(tmp_path):
    path = lines(tmp_path / "e.jsonl", [every_eval_line(1, 1.0), every_eval_line(2, 0.0)])
    frame = read_frames([path])
    assert frame["id"].tolist() == ["hash1", "hash2"]
    assert frame["system"].unique().tolist() == ["org/model"]
    assert frame["outcome"].tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        ([("a", 1, 1)], ("system", "id", "outcome"), "lacks the column task"),
        ([("a", "t", 1)], ("system", "task", "outcome"), "lacks the column id"),
        ([("a", "t", 1)], ("system", "task", "value"), "give one of the columns score"),
        ([("a", "t", 1, 1, 1)], ("system", "task", "id", "outcome", "score"), "give one of"),
        ([("a", "t", 1, "x")], ("system", "task", "id", "outcome"), r"line 2.*no number \('x'\)"),
        ([("a", "t", 1, "nan")], ("system", "task", "id", "outcome"), "no number"),
        ([("", "t", 1, 1)], ("system", "task", "id", "outcome"), "line 2: there is no system"),
        ([("a", "t", 1, 1)], ("system", "task", "id", "prediction"), "lacks the column label"),
        (
            [("a", "t", 1, 1), ("a", "t", 1, 0)],
            ("system", "task", "id", "outcome"),
            "id '1' is there twice",
        ),
    ],
)
def test_a_table_that_cannot_be_compared_is_refused(tmp_path, rows, columns, message):
    with pytest.raises(UserError, match=message):
        read_frames([tidy(tmp_path / "t.csv", rows, columns)])


def test_a_row_without_a_cluster_is_refused(tmp_path):
    columns = ("system", "task", "id", "outcome", "text")
    path = tidy(tmp_path / "t.csv", [("a", "t", 1, 1, "x"), ("a", "t", 2, 1, None)], columns)
    with pytest.raises(UserError, match="line 3: there is no text"):
        read_frames([path], cluster="text")


def test_systems_of_one_name_in_two_files_are_refused_with_both_files(tmp_path):
    paths = [tidy(tmp_path / f"{name}.csv", [("a", "t", 1, 1)]) for name in ("x", "y")]
    with pytest.raises(UserError, match=r"twice, in '.*x\.csv' and '.*y\.csv'"):
        read_frames(paths)


def test_files_of_different_kinds_are_refused(tmp_path):
    scores = tidy(tmp_path / "s.csv", [("a", "t", 0.5)], ("system", "task", "score"))
    examples = tidy(tmp_path / "e.csv", [("b", "t", 1, 1)])
    with pytest.raises(UserError, match="compare files of one kind"):
        read_frames([scores, examples])


def test_a_file_that_is_half_of_two_formats_is_refused_with_the_line(tmp_path):
    path = lines(tmp_path / "m" / "samples_t.jsonl", [lm_eval_line(1, 1.0), every_eval_line(1, 1)])
    with pytest.raises(UserError, match="line 2: doc_id is None; is this row of another format"):
        read_frames([path])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.jsonl", "{\n", "line 1: no JSON"),
        ("t.jsonl", "[1]\n", "expected one object a line"),
        ("t.txt", "x", "files end in .csv, .tsv, .jsonl, .parquet"),
        ("t.parquet", "x", "expected a Parquet file"),
        ("t.csv", "system,task,id,outcome\n", "there is no row"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        read_frames([path])


def test_a_path_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        read_frames([tmp_path / "nothing.csv"])


def test_a_folder_without_samples_is_refused(tmp_path):
    with pytest.raises(UserError, match="has no samples_"):
        read_frames([tmp_path])


def test_more_rows_than_can_be_compared_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("glue_bench.board.foreign.MAX_ROWS", 1)
    path = tidy(tmp_path / "t.csv", [("a", "t", 1, 1), ("b", "t", 1, 0)])
    with pytest.raises(UserError, match="3 lines; give 2 at most"):
        read_frames([path])


@pytest.mark.parametrize("name", ["prediction", "label"])
def test_an_example_without_prediction_or_label_is_refused(tmp_path, name):
    row = {"system": "a", "task": "t", "id": 1, "prediction": 1, "label": 0}
    path = tmp_path / "t.csv"
    pd.DataFrame([row, {**row, "id": 2, name: None}]).to_csv(path, index=False)
    with pytest.raises(UserError, match=f"line 3: there is no {name}"):
        read_frames([path])


def test_a_run_in_two_files_is_refused(tmp_path):
    """Two systems have the same name, and other examples."""
    first = tidy(tmp_path / "x.csv", [("a", "t", 1, 1)])
    second = tidy(tmp_path / "y.csv", [("a", "t", 2, 1)])
    with pytest.raises(UserError, match=r"is in two files, '.*x\.csv' and '.*y\.csv'"):
        read_frames([first, second])


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_large_file_is_refused_before_it_is_read(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr("glue_bench.board.foreign.MAX_ROWS", 2)
    table = pd.DataFrame({"system": ["a"] * 9, "broken": 1})
    path = tmp_path / f"t.{suffix}"
    if suffix == "csv":
        table.to_csv(path, index=False)
    elif suffix == "jsonl":
        table.to_json(path, orient="records", lines=True)
    else:
        table.to_parquet(path)
    with pytest.raises(UserError, match=r"(9 rows; give 2|(9|10) lines; give 3) at most"):
        read_frames([path])
