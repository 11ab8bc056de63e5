"""`glue-bench run` without a file: the line, the file that it writes, and the runs of both."""

import pytest

import glue_bench as library


@pytest.fixture
def checkpoint(make_bert):
    return make_bert(texts=("a b c d",), positions=130)


@pytest.fixture
def line(checkpoint):
    options = {
        "--checkpoint": checkpoint,
        "--task": "rte,mrpc",
        "--seed": "1,2",
        "--epochs": "1",
        "--learning-rate": "2e-5,5e-5",
        "--batch-size": "8",
        "--max-length": "32",
        "--name": "mine",
        "--data": "demo",
        "--set": "finetuning.warmup_ratio=0.1",
    }
    words = ["run"]
    for option, value in options.items():
        words += [option, value]
    return words


def test_a_line_and_the_file_that_it_writes_have_the_same_cells(glue_bench, line, tmp_path):
    file = tmp_path / "mine.yaml"
    written = glue_bench(*line, "--write", file)
    assert written.status == 0, written.err
    from_file = library.run(file, results=tmp_path, dry_run=True)
    described = library.describe(
        str(line[2]),
        tasks=["rte", "mrpc"],
        seeds=[1, 2],
        epochs=1,
        learning_rates=[2e-5, 5e-5],
        batch_size=8,
        max_length=32,
        name="mine",
        data="demo",
        settings={"finetuning.warmup_ratio": 0.1},
    )
    from_line = library.run(described, results=tmp_path, dry_run=True)
    assert len(from_file.waiting) == 8
    assert from_line.waiting == from_file.waiting


def test_a_file_that_is_there_is_not_overwritten(refused, line, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("mine\n")
    assert "is there already" in refused(*line, "--write", file)
    assert file.read_text() == "mine\n"


def test_a_line_that_does_not_fit_writes_no_file(refused, line, tmp_path):
    file = tmp_path / "mine.yaml"
    assert "epochs" in refused(*line, "--set", "finetuning.epoch=3", "--write", file)
    assert not file.exists()


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("--epochs", "3"), "--epochs"),
        (("--learning-rate", "2e-5"), "--learning-rate"),
        (("--set", "finetuning.epochs=3"), "--set"),
        (("--recipe", "bert"), "--recipe"),
        (("--write", "x.yaml"), "--write"),
        (("--seed", "1"), "--seed"),
    ],
)
def test_an_option_of_the_line_beside_a_file_is_refused(refused, words, option):
    message = refused("run", "some.yaml", *words)
    assert message.startswith(f"{option} describes an experiment without CONFIG")


def test_rates_that_are_no_numbers_are_refused(refused):
    message = refused("run", "--checkpoint", "a", "--learning-rate", "2e-5,fast")
    assert "--learning-rate 'fast' is no number" in message


@pytest.mark.parametrize("text", ["finetuning.epochs", "=3", "finetuning.epochs="])
def test_a_setting_that_is_no_pair_is_refused(refused, text):
    assert "--set takes KEY=VALUE" in refused("run", "--checkpoint", "a", "--set", text)


def test_a_setting_that_is_given_twice_is_refused(refused):
    message = refused("run", "--checkpoint", "a", "--set", "limit=2", "--set", "limit=3")
    assert "--set limit is given twice" in message


def test_a_recipe_is_printed_as_a_file_has_it(glue_bench):
    printed = glue_bench("recipes", "roberta").out
    assert "learning_rates:" in printed
    assert "differs:" in printed


def test_all_recipes_are_listed(glue_bench):
    printed = glue_bench("recipes").out
    assert "modernbert-large" in printed


def test_an_unknown_recipe_is_refused(refused):
    assert "did you mean 'electra'" in refused("recipes", "elctra")
