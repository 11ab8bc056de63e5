"""The page of an analysis: what follows from each number beside its baseline, in words."""

import pytest

from glue_bench.reporting.analysis_figures import file_name
from glue_bench.reporting.analysis_page import analysis_page, reasons
from glue_bench.reporting.analysis_questions import QUESTIONS, side
from glue_bench.reporting.formats import render_page


def document(**overlaps: float | None) -> dict:
    checkpoints = {
        label: {"subspaces": {"overlap": value, "overlap_random": [0.9, 1.1]}}
        | ({} if value is not None else {"subspaces": {"overlap": None, "left_out": "no position enters"}})
        for label, value in overlaps.items()
    }
    return {"text": "a text", "sequences_asked": 9, "checkpoints": checkpoints}


def test_each_checkpoint_has_the_number_its_baseline_and_what_follows():
    page = render_page(analysis_page(document(apart=0.2, chance=1.0, near=1.0, shared=4.0)))
    assert "| apart      |                            0.2 |" in page
    assert "0.9 to 1.1" in page
    assert "apart: Words and positions share fewer directions than chance gives" in page
    assert "chance, near: Words and positions share as many directions" in page
    assert "shared: Words and positions share more directions" in page
    assert page.count("## ") == 2  # the question, and the notes


def test_what_is_left_out_is_said_once_with_its_reason():
    found = document(apart=0.2, one=None, other=None)
    for label in ("one", "other"):
        found["checkpoints"][label]["dimensions"] = {"left_out": "no position enters"}
    page = render_page(analysis_page(found))
    assert page.count("Left out") == 1
    assert "Left out of one, other: subspaces, dimensions (no position enters)." in page
    assert "apart: Words" not in page  # the only one needs no name
    assert reasons({"a": {"b": {"left_out": "why"}, "left_out": "so"}}) == [("a", "so"), ("a.b", "why")]


@pytest.mark.parametrize(
    ("value", "baseline", "interval", "expected"),
    [
        (1.0, [0.9, 1.1], None, "inside"),
        (0.8, [0.9, 1.1], None, "below"),
        (1.2, [0.9, 1.1], [0.5, 1.3], "above"),
        (0.6, 0.5, [0.45, 0.75], "inside"),
        (0.6, 0.5, [0.55, 0.65], "above"),
        (0.4, 0.5, [0.35, 0.45], "below"),
    ],
)
def test_a_number_lies_below_inside_or_above(value, baseline, interval, expected):
    assert side(value, baseline, interval) == expected


def test_every_question_says_three_things_in_sentences():
    for question in QUESTIONS:
        assert question.title.endswith("?")
        for sentence in (question.below, question.inside, question.above, question.but):
            assert sentence[0].isupper()
            assert sentence.endswith(".")


def test_a_label_is_a_file_name():
    assert file_name("add, seed 2/step-9") == "add--seed-2-step-9"
