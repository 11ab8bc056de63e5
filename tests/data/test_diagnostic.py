"""The labelled diagnostic set, in a file made up in its layout."""

import pytest

from glue_bench.data.diagnostic import CATEGORIES, check_same_sentences, read_diagnostic
from glue_bench.data.sources import open_source
from glue_bench.errors import UserError

HEADER = "\t".join([*CATEGORIES, "Domain", "Premise", "Hypothesis", "Label"])
ROWS = [
    "Morphological negation;Lexical entailment\t\tNegation\t\t\t"
    "It is unlike.\tIt is alike.\tcontradiction",
    '\tCore args\tNegation; Conjunction\t\t\tHe said "no\tHe spoke.\tentailment',
    "Lexical entailment\t\t\tCommon sense\t\tA dog ran.\tAn animal ran.\tneutral",
    "\t\t\t\tReddit\tOne.\tTwo.\tneutral",
]
PLAIN = "\n".join(
    ["index\tsentence1\tsentence2", *("\t".join(["0", *row.split("\t")[5:7]]) for row in ROWS)]
)
PHENOMENA = {
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


def full(*rows: str) -> str:
    return "\n".join([HEADER, *rows]) + "\n"


@pytest.mark.parametrize("place", ["", "AX", "ax", "AX/diagnostic-full.tsv", "diagnostic"])
def test_rows_labels_and_phenomena(place, write):
    above = place.split("/")[0] or "AX"
    folder = write({f"{above}/diagnostic-full.tsv": full(*ROWS), f"{above}/diagnostic.tsv": PLAIN})
    diagnostic = read_diagnostic(folder / place)
    unlabelled_data = open_source(str(folder)).load("ax")
    assert diagnostic.digest == unlabelled_data.digest
    assert diagnostic.pairs["label"].tolist() == [2, 0, 1, 1]
    assert diagnostic.pairs["text_a"].tolist()[1] == 'He said "no'
    rows_by_phenomenon = {}
    for phenomenon, mask in diagnostic.phenomena.items():
        rows_by_phenomenon[phenomenon] = mask.nonzero()[0].tolist()
    assert rows_by_phenomenon == PHENOMENA


BAD = {
    "unlabelled": (
        PLAIN,
        "full.tsv, line 1: 0 columns are called 'Premise', expected 1; found 'index', ",
    ),
    "no rows": (full(), "no rows; expected 1104"),
    "label": (
        full(ROWS[0], ROWS[2] + "?"),
        r"line 3: bad label 'neutral\?'; expected entailment or neutral or",
    ),
    "short": (full(*ROWS, "too\tshort"), "line 6: 2 fields; expected 8"),
    "no file": (None, r"no diagnostic-full\.tsv in .*; looked for .*AX/diagnostic-full\.tsv, "),
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_file_is_refused(write, case):
    content, error = BAD[case]
    files = {"AX/diagnostic-full.tsv": content} if content else {"RTE/train.tsv": ""}
    folder = write(files)
    with pytest.raises(UserError, match=error):
        read_diagnostic(folder)


def test_the_order_is_known_of_equal_sentences_or_by_the_file_beside(write):
    diagnostic = read_diagnostic(write({"AX/diagnostic-full.tsv": full(*ROWS)}))
    assert check_same_sentences(diagnostic, diagnostic.digest)
    assert not check_same_sentences(diagnostic, "other")
    with_blanks = full(*ROWS).replace("A dog ran.", " A dog  ran. ")
    folder = write({"AX/diagnostic-full.tsv": with_blanks})
    plain_folder = write({"AX/diagnostic.tsv": PLAIN})
    predicted_digest = open_source(str(plain_folder)).load("ax").digest
    diagnostic = read_diagnostic(folder)
    assert diagnostic.digest != predicted_digest
    assert check_same_sentences(diagnostic, predicted_digest)
    assert check_same_sentences(diagnostic, None)


@pytest.mark.parametrize(
    ("rows", "line"),
    [([ROWS[0], ROWS[2], ROWS[1], ROWS[3]], 3), (ROWS[:3], 5)],
    ids=["another order", "a missing row"],
)
def test_labels_of_other_sentences_are_refused(write, rows, line):
    folder = write({"AX/diagnostic-full.tsv": full(*rows), "AX/diagnostic.tsv": PLAIN})
    digest = open_source(str(folder)).load("ax").digest
    message = f"full.tsv, line {line}: not the sentences of that line in .*diagnostic.tsv"
    with pytest.raises(UserError, match=message):
        check_same_sentences(read_diagnostic(folder), digest)


def test_predictions_of_other_sentences_are_refused(write):
    folder = write({"AX/diagnostic-full.tsv": full(*ROWS), "AX/diagnostic.tsv": PLAIN})
    message = r"predicted other sentences than those of .*diagnostic.tsv; run MNLI again"
    with pytest.raises(UserError, match=message):
        check_same_sentences(read_diagnostic(folder), "stale")
