"""The page on errors has the messages of `evaluate` as they are."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.classifiers import save_classifier
from helpers.tiny_models import edit_weights

from glue_bench import evaluate
from glue_bench.data.tasks import NLI_3
from glue_bench.errors import UserError

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "errors.md"
SECTION = PAGE.read_text(encoding="utf-8").split("## Errors of evaluate")[1].split("\n## ")[0]
DOCUMENTED = re.findall(r"^\| `([^`]+)` \|", SECTION, flags=re.MULTILINE)
NUMBERED = ("LABEL_0", "LABEL_1", "LABEL_2")
MNLI = {"tasks": ["mnli"]}
FITTING = MNLI | {"max_length": 32}


def remove_head(folder: Path) -> None:
    """Take the weights of the head away from a classifier."""

    def remove(weights) -> None:
        del weights["classifier.weight"], weights["classifier.bias"]

    edit_weights(folder, remove)


def remove_tokenizer(folder: Path) -> None:
    """Take the tokenizer away from a classifier."""
    for path in folder.glob("tokenizer*"):
        path.unlink()


def keep(folder: Path) -> None:
    """Leave a classifier as it is."""
    del folder


CASES: dict[str, tuple[tuple[str, ...], Callable[[Path], None], dict[str, object]]] = {
    "no trained head": (NLI_3, remove_head, FITTING),
    "numbers its outputs": (NUMBERED, keep, FITTING),
    "names its outputs": (("good", "bad", "ugly"), keep, FITTING),
    "has 2 outputs": (("LABEL_0", "LABEL_1"), keep, FITTING),
    "is one number": (NLI_3, keep, {"tasks": ["stsb"]}),
    "do not name each class": (NUMBERED, keep, FITTING | {"labels": NLI_3[:2]}),
    "no tokenizer": (NLI_3, remove_tokenizer, FITTING),
    "exceeds the 64 positions": (NLI_3, keep, MNLI),
    "no checkpoint folder": ((), keep, MNLI),
    "give the tasks": (NLI_3, keep, {}),
}
"""The outputs of a classifier, what is done to it, and the options of `evaluate`, by a part of the
message.
"""


def documented(part: str) -> str:
    """Return the message on the page that has these words."""
    (message,) = [message for message in DOCUMENTED if part in message]
    return message


def test_each_message_of_the_page_is_tried():
    assert {documented(part) for part in CASES} == set(DOCUMENTED)


@pytest.mark.parametrize("part", CASES)
def test_a_message_is_as_the_page_has_it(tmp_path, monkeypatch, part):
    outputs, change, options = CASES[part]
    monkeypatch.chdir(tmp_path)
    if outputs:
        change(save_classifier(Path("NAME"), outputs))
    with pytest.raises(UserError) as refused:
        evaluate("NAME" if outputs else "./NAME", data="demo", limit=24, dry_run=True, **options)
    assert documented(part) in str(refused.value)
