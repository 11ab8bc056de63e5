"""The labelled diagnostic set, in a file made up in its layout."""

from pathlib import Path

import pytest

from glue_bench.data.diagnostic import CATEGORIES, check_order, read_diagnostic
from glue_bench.data.sources import open_source
from glue_bench.errors import UserError

HEADER = "\t".join([*CATEGORIES, "Domain", "Premise", "Hypothesis", "Label"])
ROWS = [
    ("Morphological negation;Lexical entailment", "", "Negation", "", "News", "It is unlike.", "It is alike.", 2),
    ("", "Core args", "Negation; Conjunction", "", "News", 'He said "no', "He spoke.", 0),
    ("Lexical entailment", "", "", "Common sense", "", "A dog ran.", "An animal ran.", 1),
    ("", "", "", "", "Reddit", "One.", "Two.", 1),
]
LABELS = ("entailment", "neutral", "contradiction")


def line(row) -> str:
    return "\t".join([*row[:-1], LABELS[row[-1]]])


FULL = "\n".join([HEADER, *map(line, ROWS)]) + "\n"
PLAIN = "index\tsentence1\tsentence2\n" + "".join(f"{i}\t{row[5]}\t{row[6]}\n" for i, row in enumerate(ROWS))


@pytest.fixture
def folder(write) -> Path:
    return write({"AX/diagnostic-full.tsv": FULL, "AX/diagnostic.tsv": PLAIN})


@pytest.mark.parametrize("place", ["", "AX", "AX/diagnostic-full.tsv"])
def test_rows_labels_and_phenomena(place, folder):
    found = read_diagnostic(folder / place)
    assert found.digest == open_source(str(folder)).load("ax").digest  # of the data without labels
    assert found.pairs["label"].tolist() == [2, 0, 1, 1]
    assert found.pairs["text_a"].tolist()[1] == 'He said "no'
    assert {place: mask.nonzero()[0].tolist() for place, mask in found.phenomena.items()} == {
        ("", ""): [0, 1, 2, 3],
        ("Lexical Semantics", ""): [0, 2],
        ("Lexical Semantics", "Lexical entailment"): [0, 2],
        ("Lexical Semantics", "Morphological negation"): [0],
        ("Predicate-Argument Structure", ""): [1],
        ("Predicate-Argument Structure", "Core args"): [1],
        ("Logic", ""): [0, 1],
        ("Logic", "Conjunction"): [1],
        ("Logic", "Negation"): [0, 1],
        ("Knowledge", ""): [2],
        ("Knowledge", "Common sense"): [2],
    }


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (PLAIN, "line 1: no column 'Lexical Semantics', .* expected the labelled diagnostic-full.tsv"),
        (HEADER + "\n", "no rows; expected 1104"),
        (FULL.replace("\tneutral", "\tmaybe", 1), "line 4: bad label 'maybe'; expected entailment or neutral or"),
        (FULL + "too\tshort\n", "line 6: 2 fields; expected 8"),
        ("", "the file is empty"),
    ],
    ids=["unlabelled", "no rows", "label", "short", "empty"],
)
def test_a_wrong_file_is_refused(write, content, error):
    folder = write({"AX/diagnostic-full.tsv": content})
    with pytest.raises(UserError, match=error):
        read_diagnostic(folder)


# The order of what was predicted


def test_equal_sentences_are_known_by_their_digest_and_others_are_unknown(write):
    found = read_diagnostic(write({"AX/diagnostic-full.tsv": FULL}))
    assert check_order(found, found.digest)
    assert not check_order(found, "other")


def test_other_blanks_are_the_same_sentences(write):
    folder = write({"AX/diagnostic-full.tsv": FULL.replace("A dog ran.", " A dog  ran. "), "AX/diagnostic.tsv": PLAIN})
    predicted = open_source(str(folder)).load("ax").digest
    assert read_diagnostic(folder).digest != predicted
    assert check_order(read_diagnostic(folder), predicted)
    assert check_order(read_diagnostic(folder), None)


@pytest.mark.parametrize(
    ("full", "error"),
    [
        ("\n".join([HEADER, *map(line, [ROWS[0], ROWS[2], ROWS[1], ROWS[3]])]), "line 3: not the sentences of that"),
        ("\n".join([HEADER, *map(line, ROWS[:3])]), "has 3 rows, .* 4; expected the same sentences"),
    ],
    ids=["order", "rows"],
)
def test_other_sentences_are_refused(write, full, error):
    folder = write({"AX/diagnostic-full.tsv": full, "AX/diagnostic.tsv": PLAIN})
    with pytest.raises(UserError, match=error):
        check_order(read_diagnostic(folder), open_source(str(folder)).load("ax").digest)


def test_predictions_of_other_data_are_refused(folder):
    changed = read_diagnostic(folder)
    changed.pairs.loc[0, "text_a"] = "Another."
    with pytest.raises(UserError, match=r"predicted other sentences than those of .*diagnostic.tsv; run MNLI again"):
        check_order(changed, "stale")
