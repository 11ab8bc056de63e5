"""Rows of tasks of one's own: every format gives the same examples, and bad input is one line."""

import csv
import json
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pytest
from helpers.folder import call_verb

from glue_bench.config.load import read_task
from glue_bench.data.own import read_own
from glue_bench.data.sources import describe_task
from glue_bench.data.task_data import TaskData, cluster_numbers, known_labels, limit_rows
from glue_bench.data.tasks import add_task
from glue_bench.errors import UserError

ROWS = {
    "text": ['it is "good", really', "so bad", "fine\u2028text", "awful; dull\tor worse"],
    "label": ["yes", "no", "yes", "no"],
}
HEAD = "text,label\n"
GOOD = HEAD + "a,yes\nb,no\n"


@pytest.fixture
def read(tmp_path):
    """Read a task whose files are in `tmp_path`; a text is the content of train.csv."""

    def read_files(train: str | bytes | None = None, **changes) -> TaskData:
        contents = {"train.csv": GOOD if train is None else train, "dev.csv": GOOD}
        for name, content in contents.items():
            if not (tmp_path / name).exists():
                raw = content.encode() if isinstance(content, str) else content
                (tmp_path / name).write_bytes(raw)
        values = {
            "name": "Mine",
            "files": {"train": "train.csv", "validation": "dev.csv"},
            "texts": "text",
            "labels": ["no", "yes"],
        }
        described = {key: value for key, value in (values | changes).items() if value is not None}
        task = read_task(described, folder=tmp_path).to_task()
        add_task(task)
        return read_own(task)

    return read_files


def write_as(suffix: str, path: Path) -> None:
    frame = pd.DataFrame(ROWS)
    if suffix == ".csv":
        frame.to_csv(path, index=False)
    elif suffix == ".parquet":
        frame.to_parquet(path)
    elif suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        tidy = frame.assign(text=frame["text"].str.replace("\t", " "))
        tidy.to_csv(path, index=False, sep="\t", quoting=csv.QUOTE_NONE)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_format_gives_the_rows_that_were_written(suffix, tmp_path, read):
    write_as(suffix, tmp_path / f"rows{suffix}")
    files = {"train": f"rows{suffix}", "validation": "dev.csv"}
    frame = read(files=files).splits["train"]
    assert frame["text_a"].tolist() == ROWS["text"]
    assert frame["label"].tolist() == [1, 0, 1, 0]


def test_tabs_separate_without_quotes(tmp_path, read):
    write_as(".tsv", tmp_path / "rows.tsv")
    frame = read(files={"train": "rows.tsv", "validation": "dev.csv"}).splits["train"]
    assert frame["text_a"].tolist()[:2] == ROWS["text"][:2]


def test_a_label_id_of_parquet_is_read_by_its_name(tmp_path, read):
    data = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]})
    names = datasets.ClassLabel(names=["yes", "no"])
    data.cast_column("label", names).to_parquet(tmp_path / "rows.parquet")
    frame = read(files={"train": "rows.parquet", "validation": "dev.csv"}).splits["train"]
    assert frame["label"].tolist() == [1, 0]


@pytest.mark.parametrize("labels", [[0, 1], ["0", "1"]])
def test_whole_numbers_are_classes(labels, read, tmp_path):
    (tmp_path / "dev.csv").write_text("text,label\na,1\nb,0\n")
    assert read("text,label\na,1\nb,0\n", labels=labels).splits["train"]["label"].tolist() == [1, 0]


def test_true_and_false_are_classes_in_every_spelling(tmp_path, read):
    (tmp_path / "dev.csv").write_text("text,label\na,True\nb,False\n")
    lines = [{"text": "a", "label": True}, {"text": "b", "label": False}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, lines)))
    files = {"train": "rows.jsonl", "validation": "dev.csv"}
    data = read(files=files, labels=[False, True])
    assert data.splits["train"]["label"].tolist() == [1, 0]
    assert data.splits["validation"]["label"].tolist() == [1, 0]


def test_a_template_joins_columns_and_leaves_braces_of_texts_alone(read):
    data = read("title,text,label\nA,b {title},yes\nC,d,no\n", texts=["{title}: {text}!", "text"])
    assert data.splits["train"]["text_a"].tolist() == ["A: b {title}!", "C: d!"]
    assert data.splits["train"]["text_b"].tolist() == ["b {title}", "d"]


@pytest.fixture(autouse=True)
def _dev_with_title(tmp_path, request):
    if "template" in request.node.name:
        (tmp_path / "dev.csv").write_text("title,text,label\nA,b,yes\nC,d,no\n")


def test_a_share_of_train_becomes_validation(read):
    rows = "".join(f"text {number},{'yes' if number % 2 else 'no'}\n" for number in range(40))
    data = read(HEAD + rows, files={"train": "train.csv"}, validation_share=0.25)
    sizes = {split: len(frame) for split, frame in data.splits.items()}
    texts = pd.concat([frame["text_a"] for frame in data.splits.values()])
    assert sizes == {"train": 30, "validation": 10}
    assert texts.nunique() == 40


def test_a_test_file_needs_no_labels(tmp_path, read):
    (tmp_path / "test.csv").write_text("text\nc\nd\n")
    data = read(files={"train": "train.csv", "validation": "dev.csv", "test": "test.csv"})
    expected = [-1, -1]
    assert data.splits["test"]["label"].tolist() == expected


def test_a_score_of_minus_one_is_a_score(tmp_path, read):
    (tmp_path / "dev.csv").write_text("text,label\na,-1\nb,0.5\n")
    data = read("text,label\na,-1\nb,2\n", labels="regression")
    assert known_labels(data)["validation"].tolist() == [-1, 0.5]


def test_clusters_without_a_row_left_have_no_number(tmp_path, read):
    rows = (
        HEAD.strip()
        + ",page\n"
        + "".join(f"t{n},{'yes' if n % 2 else 'no'},p{n}\n" for n in range(9))
    )
    (tmp_path / "dev.csv").write_text(rows)
    numbers = cluster_numbers(limit_rows(read(rows, cluster="page"), 4))["validation"]
    assert numbers.tolist() == [0, 1, 2, 3]


def test_clusters_are_numbered_and_follow_a_limit(tmp_path, read):
    rows = "text,label,page\na,yes,p\nb,no,q\nc,yes,p\nd,no,r\n"
    (tmp_path / "dev.csv").write_text(rows)
    data = read(rows, cluster="page")
    assert data.clusters["validation"].tolist() == [0, 1, 0, 2]
    cut = limit_rows(data, 2)
    pages = dict(zip(data.splits["validation"]["text_a"], data.clusters["validation"], strict=True))
    expected = [pages[text] for text in cut.splits["validation"]["text_a"]]
    assert cut.clusters["validation"].tolist() == expected


def test_the_digest_covers_the_rows_and_the_definition(read):
    digest = read().digest
    assert read(name="Other").digest == digest
    assert read(metrics=["accuracy", "f1"]).digest != digest
    assert read(labels=["yes", "no"]).digest != digest


def test_scores_and_classes_of_equal_numbers_have_other_digests(tmp_path, read):
    (tmp_path / "dev.csv").write_text("text,label\na,1\nb,0\n")
    classes = read("text,label\na,1\nb,0\n", labels=[0, 1])
    scores = read(labels="regression")
    assert classes.digest != scores.digest


BAD_ROWS = {
    "label unknown": (
        HEAD + "a,yes\nb,mayb\n",
        "train.csv, line 3: label 'mayb' is none of no, yes",
    ),
    "class that train lacks": (HEAD + "a,yes\nb,yes\n", "every row of train has the label 'yes'"),
    "text column": ("txt,label\na,yes\nb,no\n", "no column 'text' (text); did you mean 'txt'?"),
    "label column": (
        "text,lable\na,yes\nb,no\n",
        "no column 'label' (label); did you mean 'lable'?",
    ),
    "empty text": (HEAD + "a,yes\n ,no\n,no\n", "line 3: text is empty, as in 1 more rows"),
    "label empty": (HEAD + "a,yes\nb,\n", "line 3: no label in column 'label'"),
    "fractions": (HEAD + "a,1.0\nb,0.0\n", "for scores set `labels: regression`"),
    "columns twice": ("text,text,label\na,b,yes\n", "2 columns are called 'text'"),
    "semicolons": ("text;label\na;yes\n", "semicolons separate the columns 'text;label'"),
    "tabs": ("text\tlabel\na\tyes\n", "or let its name end in .tsv"),
    "no header": ("so good,yes\nso bad,no\n", "the first line has to name the columns"),
    "no UTF-8": ("text,label\ncaf\xe9,yes\n".encode("latin-1"), "save it as UTF-8"),
    "commas in texts": (HEAD + "a, b,yes\n", "3 fields, where the first line has 2"),
    "open quote": (HEAD + '"a,yes\n', "fields with commas or quotes need quotes around them"),
    "long text": (
        HEAD + f"a,yes\n{'b ' * 500_001},no\n",
        "line 3: more than 1,000,000 characters; expected a row of a task",
    ),
    "no rows": (HEAD, "no rows; expected at least one"),
    "empty": ("", "expected a first line with the names of the columns"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_bad_rows_are_refused_in_a_line_that_names_the_file(case, read):
    content, message = BAD_ROWS[case]
    with pytest.raises(UserError) as caught:
        read(content)
    assert message in str(caught.value)
    assert "train.csv" in str(caught.value)


def test_a_class_that_train_lacks_is_named(read):
    with pytest.raises(UserError, match=r"no row of train has the label 'maybe'.*it has no, yes"):
        read(labels=["no", "yes", "maybe"])


def test_validation_needs_labels(tmp_path, read):
    (tmp_path / "dev.csv").write_text("text\na\nb\n")
    with pytest.raises(UserError, match="validation needs labels, only a test file may lack them"):
        read()


def test_quotes_of_csv_in_a_file_with_tabs_are_refused(tmp_path, read):
    (tmp_path / "rows.tsv").write_text('text\tlabel\n"say ""a"""\tyes\nb\tno\n')
    with pytest.raises(UserError, match=r"line 2: .* has the quotes of CSV"):
        read(files={"train": "rows.tsv", "validation": "dev.csv"})


@pytest.mark.parametrize(
    ("line", "message"),
    [("[1]", "expected one object a line"), ("{", "no JSON"), ('{"text": 1.5}', "expected a text")],
)
def test_bad_json_lines_are_named(line, message, tmp_path, read):
    (tmp_path / "rows.jsonl").write_text(f'{{"text": "a", "label": "yes"}}\n{line}\n')
    with pytest.raises(UserError, match=f"rows.jsonl, line 2: .*{message}"):
        read(files={"train": "rows.jsonl", "validation": "dev.csv"})


@pytest.mark.parametrize(("label", "wrong"), [("high", "'high'"), ("nan", "'nan'"), ("", "''")])
def test_a_regression_has_a_number_in_every_row(label, wrong, read):
    with pytest.raises(UserError, match=f"line 3: label {wrong}.*number in every row"):
        read(f"text,label\na,1\nb,{label}\n", labels="regression")


@pytest.mark.parametrize(
    ("name", "message"),
    [("rows.xlsx", "files end in .csv, .tsv, .jsonl, .parquet"), ("no.csv", "does not exist")],
)
def test_a_file_of_another_kind_or_place_is_refused(name, message, read):
    with pytest.raises(UserError, match=message):
        read(files={"train": name, "validation": "dev.csv"})


@pytest.fixture
def hub(monkeypatch):
    """Answer for the hub with the rows of a data set, and note what was asked for."""
    asked = []

    def load_dataset(*names, **options):
        asked.append((names, options))
        features = datasets.Features(
            {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])}
        )
        rows = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [1, 0]}, features)
        return datasets.DatasetDict({"train": rows, "dev": rows})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return asked


HUB = {
    "name": "org/data",
    "config": "small",
    "revision": "abc",
    "splits": {"train": "train", "validation": "dev"},
}


def test_a_data_set_of_the_hub_is_read_at_its_revision(hub, read):
    data = read(files=None, hub=HUB)
    expected = [(("org/data", "small"), {"revision": "abc"})]
    assert hub == expected
    assert data.splits["train"]["label"].tolist() == [1, 0]
    assert data.revision == "abc"


@pytest.mark.usefixtures("hub")
def test_a_split_that_the_hub_lacks_is_named(read):
    with pytest.raises(UserError, match="no split 'validation'; it has train, dev"):
        read(files=None, hub={"name": "org/data"})


def test_labels_of_scores_are_floats(read, tmp_path):
    (tmp_path / "dev.csv").write_text("text,label\na,1\nb,2\n")
    data = read("text,label\na,1\nb,2\n", labels="regression")
    assert data.splits["train"]["label"].dtype == np.float64


def test_a_description_counts_rows_and_labels(read):
    frame = describe_task(read())
    assert frame["split"].tolist() == ["train", "validation"]
    assert frame["labels"].tolist() == ["no 50% / yes 50%"] * 2
    assert set(frame["status"]) == {"own"}


def test_a_description_counts_rows_whose_texts_are_in_train(tmp_path, read):
    (tmp_path / "dev.csv").write_text(HEAD + "a,no\nnew,yes\na,yes\n")
    frame = describe_task(read())
    assert frame["difference"].tolist() == ["", "2 of 3 rows have texts that are in train, too"]


def test_the_verb_describes_a_task_file(tmp_path, read):
    read()
    files = "{train: train.csv, validation: dev.csv}"
    text = f"name: Mine\nfiles: {files}\ntexts: text\nlabels: ['no', 'yes']\n"
    (tmp_path / "mine.yaml").write_text(text)
    assert "no 50% / yes 50%" in call_verb("data", tmp_path / "mine.yaml")
