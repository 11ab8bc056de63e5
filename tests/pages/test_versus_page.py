"""The page of a comparison of anyone's systems: it says which conclusions the data allow."""

import json

import numpy as np
import pandas as pd
import pytest

import glue_bench
from glue_bench.board.versus import compare_paths
from glue_bench.errors import UserError
from glue_bench.pages.numbers import MISSING
from glue_bench.pages.render import render
from glue_bench.pages.versus import noise_table, versus_page
from glue_bench.pages.versus_figures import versus_figures


@pytest.fixture
def write_answers(tmp_path):
    """Write answers of two systems, and return the file."""

    def write(*, seeds=1, scores=False, blocks=1, strength=0.8):
        generator = np.random.default_rng(3)
        difficulty = generator.normal(size=200)
        rows = []
        for system in ("one", "two"):
            for block in range(blocks):
                for seed in range(seeds):
                    chance = 1 / (1 + np.exp(-(0.2 + strength * (system == "two") + difficulty)))
                    right = (generator.random(200) < chance).astype(int)
                    run = {"system": system, "task": "t", "block": block, "seed": seed}
                    if scores:
                        rows.append({**run, "score": right.mean()})
                    else:
                        rows += [
                            {**run, "id": i, "outcome": value} for i, value in enumerate(right)
                        ]
        path = tmp_path / "answers.csv"
        pd.DataFrame(rows).to_csv(path, index=False)
        return path

    return write


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "One run of each system. **Intervals cover other examples of this kind alone.**"),
        ({"seeds": 3, "scores": True}, "Scores of runs, without examples. **Intervals cover"),
        ({"seeds": 3}, "Intervals cover other seeds and other examples."),
    ],
)
def test_the_first_line_says_what_the_intervals_cover(write_answers, options, sentence):
    page = versus_page(compare_paths([write_answers(**options)]))
    assert page.tables[0].caption.startswith(sentence)


def test_a_system_that_is_worse_than_the_best_is_called_so(write_answers):
    text = render(versus_page(compare_paths([write_answers()])))
    assert "| two      |" in text
    assert "| worse" in text


def test_a_system_that_does_not_differ_from_the_best_is_marked(write_answers):
    text = render(versus_page(compare_paths([write_answers(strength=0.0)])))
    assert "not told from the best" in text


def test_with_one_run_each_all_noise_comes_from_examples(write_answers):
    versus = compare_paths([write_answers()])
    row = noise_table(versus).frame.iloc[0]
    assert row["examples"] == "100%"
    assert row["finetuning"] == MISSING
    assert row["needed"].endswith(" examples")


def test_clusters_are_needed_where_they_count_as_one(write_answers, tmp_path):
    frame = pd.read_csv(write_answers())
    path = tmp_path / "clusters.csv"
    frame.assign(text=frame["id"] // 4).to_csv(path, index=False)
    row = noise_table(compare_paths([path], cluster="text")).frame.iloc[0]
    assert row["needed"].endswith(" clusters")


@pytest.mark.parametrize("seeds", [1, 3])
def test_systems_that_never_differ_need_nothing(write_answers, tmp_path, seeds):
    frame = pd.read_csv(write_answers(seeds=seeds)).assign(outcome=0.5)
    path = tmp_path / "equal.csv"
    frame.to_csv(path, index=False)
    row = noise_table(compare_paths([path])).frame.iloc[0]
    assert row["needed"] == ""


def test_with_scores_alone_all_noise_comes_from_seeds(write_answers):
    row = noise_table(compare_paths([write_answers(seeds=4, scores=True)])).frame.iloc[0]
    assert row["examples"] == MISSING
    assert row["finetuning"] == "100%"


@pytest.mark.parametrize(("blocks", "names"), [(1, 2), (4, 3)])
def test_the_shares_of_the_noise_add_up(write_answers, blocks, names):
    row = noise_table(compare_paths([write_answers(seeds=3, blocks=blocks)])).frame.iloc[0]
    columns = ["pretraining", "finetuning", "examples"]
    shares = [int(row[name][:-1]) for name in columns if str(row.get(name)).endswith("%")]
    assert len(shares) == names
    assert sum(shares) == pytest.approx(100, abs=1)


def test_examples_that_are_left_out_are_counted(write_answers, tmp_path):
    frame = pd.read_csv(write_answers()).query("not (system == 'two' and id < 5)")
    path = tmp_path / "partly.csv"
    frame.to_csv(path, index=False)
    page = versus_page(compare_paths([path], is_common=True))
    assert "5 examples that a system lacks are left out" in page.tables[0].caption


@pytest.mark.parametrize("format", ["markdown", "csv", "json", "latex", "html"])
def test_the_page_is_written_in_every_format(write_answers, format):
    assert "two" in render(versus_page(compare_paths([write_answers()])), format)


def test_the_function_and_the_verb_give_the_same_contrasts(glue_bench_verb, write_answers):
    path = write_answers()
    printed = json.loads(glue_bench_verb("compare", path, "--format", "json").out)
    frame = glue_bench.compare(path)
    assert printed["rows"][0]["difference"] == pytest.approx(frame["difference"].iloc[0], abs=1e-6)


@pytest.fixture
def glue_bench_verb(request):
    return request.getfixturevalue("glue_bench")


def test_a_margin_that_is_not_above_0_is_refused(write_answers):
    with pytest.raises(UserError, match="give a difference above 0"):
        glue_bench.compare(write_answers(), equivalent=0.0)


def test_a_mistake_on_the_command_line_is_one_line(refused, write_answers):
    message = refused("compare", write_answers(), "--reference", "three")
    assert message.startswith("unknown system 'three'")


def test_html_has_a_forest_and_other_formats_have_none(glue_bench_verb, write_answers):
    path = write_answers()
    assert glue_bench_verb("compare", path, "--format", "html").out.count("data:image/svg") == 1
    assert "svg" not in glue_bench_verb("compare", path).out


def test_figures_are_written_to_a_folder(glue_bench_verb, write_answers, tmp_path):
    glue_bench_verb("compare", write_answers(), "--figures", tmp_path / "figures")
    names = sorted(file.name for file in (tmp_path / "figures").iterdir())
    assert names == ["contrasts.pdf", "contrasts.png", "contrasts.svg"]


def test_the_forest_has_a_row_for_each_contrast_and_dots_for_seeds(write_answers):
    versus = compare_paths([write_answers(seeds=4)])
    (drawing,) = versus_figures(versus)
    (axes,) = drawing.figure.axes
    assert len(axes.get_yticks()) == len(versus.contrasts)
    dots = [line for line in axes.lines if line.get_marker() == "."]
    assert len(dots[0].get_xdata()) == 4


def test_the_average_needs_so_many_times_the_examples(write_answers, tmp_path):
    frame = pd.read_csv(write_answers())
    path = tmp_path / "two.csv"
    pd.concat([frame, frame.assign(task="other")]).to_csv(path, index=False)
    row = noise_table(compare_paths([path])).frame.iloc[0]
    assert row["task"] == "Average"
    assert row["needed"].endswith(" times the examples")
