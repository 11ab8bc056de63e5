"""The labelled diagnostic set, in a file made up in its layout."""

import pytest

from glue_bench.data.diagnostic import CATEGORIES, check_order, read_diagnostic
from glue_bench.data.sources import open_source
from glue_bench.errors import UserError

HEADER = "\t".join([*CATEGORIES, "Domain", "Premise", "Hypothesis", "Label"])
SPELLED = ("Morphological negation;Lexical entailment", "", "Negation", "", "")
ROWS = [
    (*SPELLED, "It is unlike.", "It is alike.", "contradiction"),
    ("", "Core args", "Negation; Conjunction", "", "", 'He said "no', "He spoke.", "entailment"),
    ("Lexical entailment", "", "", "Common sense", "", "A dog ran.", "An animal ran.", "neutral"),
    ("", "", "", "", "Reddit", "One.", "Two.", "neutral"),
]
FULL = "\n".join([HEADER, *map("\t".join, ROWS)]) + "\n"
PLAIN = "index\tsentence1\tsentence2\n" + "".join(f"{i}\t{row[5]}\t{row[6]}\n" for i, row in enumerate(ROWS))


@pytest.mark.parametrize("place", ["", "AX", "AX/diagnostic-full.tsv", "diagnostic"])
def test_rows_labels_and_phenomena(place, write):
    above = place.split("/")[0] or "AX"
    folder = write({f"{above}/diagnostic-full.tsv": FULL, f"{above}/diagnostic.tsv": PLAIN})
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
        (None, r"no diagnostic-full\.tsv in .*; looked for .*AX/diagnostic-full\.tsv, "),
    ],
    ids=["unlabelled", "no rows", "label", "short", "no file"],
)
def test_a_wrong_file_is_refused(write, content, error):
    with pytest.raises(UserError, match=error):
        read_diagnostic(write({"AX/diagnostic-full.tsv": content} if content else {"RTE/train.tsv": ""}))


def test_the_order_is_known_of_equal_sentences_or_by_the_file_beside(write):
    found = read_diagnostic(write({"AX/diagnostic-full.tsv": FULL}))
    assert (check_order(found, found.digest), check_order(found, "other")) == (True, False)
    folder = write({"AX/diagnostic-full.tsv": FULL.replace("A dog ran.", " A dog  ran. "), "AX/diagnostic.tsv": PLAIN})
    predicted, blanks = open_source(str(folder)).load("ax").digest, read_diagnostic(folder)
    assert blanks.digest != predicted
    assert check_order(blanks, predicted)
    assert check_order(blanks, None)


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ([ROWS[0], ROWS[2], ROWS[1], ROWS[3]], "line 3: not the sentences of that"),
        (ROWS[:3], "has 3 rows, .* 4; expected the same sentences"),
    ],
    ids=["order", "rows"],
)
def test_other_sentences_are_refused(write, rows, error):
    folder = write({"AX/diagnostic-full.tsv": "\n".join([HEADER, *map("\t".join, rows)]), "AX/diagnostic.tsv": PLAIN})
    with pytest.raises(UserError, match=error):
        check_order(read_diagnostic(folder), open_source(str(folder)).load("ax").digest)
    with pytest.raises(UserError, match=r"predicted other sentences than those of .*diagnostic.tsv; run MNLI again"):
        check_order(read_diagnostic(folder), "stale")
