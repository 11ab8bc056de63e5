"""Text to pretrain on: sentences without loss, files in a fixed order, and one message about each
bad input.
"""

import os
import shutil
from pathlib import Path
from unittest.mock import Mock, call

import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glue_bench.data.demo import generate
from glue_bench.errors import UserError
from glue_bench.training import corpus as corpus_module
from glue_bench.training.corpus import Corpus, open_corpus


def opened(*names):
    return open_corpus([str(name) for name in names])


def documents(corpus) -> list[list[str]]:
    documents: dict[int, list[str]] = {}
    for number, sentence in corpus.numbered():
        documents.setdefault(number, []).append(sentence)
    return list(documents.values())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A cat sat. A dog ran!  Why? Because.", ["A cat sat.", "A dog ran!", "Why?", "Because."]),
        (
            "A line that was\nwrapped twice  \nand ends. Here.",
            ["A line that was wrapped twice and ends.", "Here."],
        ),
        ("No wrap here.\nit begins anew", ["No wrap here.", "it begins anew"]),
        ("A line\nAnother line", ["A line", "Another line"]),
        ("Chapter 1\n\nit began. So.", ["Chapter 1", "it began.", "So."]),
        ("= Heading =\nText of it.", ["= Heading =", "Text of it."]),
        ("\n\n  one  \n \t \n\ntwo\n", ["one", "two"]),
        ('"Stop!" he said. "No." She left.', ['"Stop!"', "he said.", '"No."', "She left."]),
        ("(It rained.) We slept.", ["(It rained.)", "We slept."]),
        ("\u201cWhy?\u201d I asked.", ["\u201cWhy?\u201d", "I asked."]),
        ("Wait... what?! 3.50.", ["Wait...", "what?!", "3.50."]),
        ("first\r\nSecond", ["first", "Second"]),
        (" \n\t\n", []),
    ],
    ids=repr,
)
def test_sentences(text, expected):
    assert list(Corpus("one", ([text],), "")) == expected


@given(
    st.text(st.sampled_from("aB.!?\"'\u201d) \t\n\r\x0b\x85\u2028\u00a0:;1"), max_size=60)
    | st.text(max_size=60)
)
def test_no_character_but_spaces_is_lost(text):
    sentences = list(Corpus("one", ([text],), ""))
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert "" not in sentences
    assert sentences == [sentence.strip() for sentence in sentences]


def test_files_come_sorted_from_folders_and_in_their_order_by_name(write):
    texts = {
        "b.txt": "Two.",
        "a/z.text": "One.",
        "c.tokens": "Three.",
        "d.raw": "Four.",
        "e.TXT": "Five.",
    }
    folder = write(texts | {"f.md": "no", "txt": "no"})
    expected = [["One."], ["Two."], ["Three."], ["Four."], ["Five."]]
    assert documents(opened(folder)) == expected
    write({"b.md": "B.", "empty.md": "\n \n", "a.txt": "A. And more."})
    corpus = opened(folder / "b.md", folder / "empty.md", folder / "a.txt")
    assert documents(corpus) == documents(corpus) == [["B."], ["A.", "And more."]]
    assert [number for number, _ in corpus.numbered()] == [0, 1, 1]
    assert corpus.name == f"{folder / 'b.md'}, {folder / 'empty.md'}, {folder / 'a.txt'}"
    (folder / "a.txt").unlink()
    with pytest.raises(UserError, match=r"cannot read corpus file '.*a\.txt': No such file"):
        documents(corpus)


def spellings(folder):
    """Ways to name the same two files more than once."""
    return {
        "a slash at the end": [folder, f"{folder}/"],
        "a file of the folder": [folder, folder / "b.txt"],
        "a folder within": [folder, folder / "a"],
        "dots": [folder, folder / "a" / ".."],
        "a link to the folder": [folder, folder.with_name("link")],
        "a link to a file": [folder, folder.with_name("link.txt")],
    }


@pytest.mark.parametrize("spelling", spellings(Path("folder")))
def test_a_file_counts_once_however_often_it_is_named(spelling, write):
    """If a text were there twice, it could be in train and in validation."""
    folder = write({"a/z.txt": "One.", "b.txt": "Two."})
    folder.with_name("link").symlink_to(folder, target_is_directory=True)
    folder.with_name("link.txt").symlink_to(folder / "b.txt")
    corpus = opened(*spellings(folder)[spelling])
    expected = [["One."], ["Two."]]
    assert documents(corpus) == expected
    assert corpus.digest == opened(folder).digest


def test_files_of_equal_content_are_two_files(write):
    expected = [["One."], ["One."]]
    assert documents(opened(write({"a.txt": "One.", "b.txt": "One."}))) == expected


def test_a_byte_order_mark_and_the_kind_of_line_ends_are_no_part_of_the_text(write):
    lines = "One.\nTwo that is\nwrapped.\n"
    texts = {
        "b.txt": f"\ufeff{lines}",
        "c.txt": lines.replace("\n", "\r\n"),
        "d.txt": f"\ufeff{lines}".replace("\n", "\r"),
    }
    expected = [["One.", "Two that is wrapped."]] * 4
    assert documents(opened(write({"a.txt": lines, **texts}))) == expected


def test_the_digest_is_of_the_content_and_not_of_the_place(write, tmp_path):
    folder = write({"a.txt": "One.", "b.txt": "Two."})
    first = opened(folder).digest
    shutil.copytree(folder, tmp_path / "moved")
    assert opened(tmp_path / "moved").digest == first
    (tmp_path / "moved" / "b.txt").write_text("Two!")
    assert opened(tmp_path / "moved").digest != first
    assert opened(folder / "b.txt", folder / "a.txt").digest != first
    write({"b.txt": "O", "a.txt": "ne.Two."})
    assert opened(folder).digest != first


def test_wrapped_lines_that_do_not_end_are_parted_at_a_line(write, monkeypatch):
    monkeypatch.setattr(corpus_module, "MAX_PARAGRAPH", 6)
    assert list(opened(write({"a.txt": "one\ntwo\nsix\nfour\nfive"}))) == [
        "one two six",
        "four five",
    ]


def test_blank_lines_part_documents_if_asked_to(write):
    text = "\nOne. Two.\nThree.\n \t\n\n\nfour\r\n\r\nFive.\n\n"
    folder = write({"a.txt": text, "b.txt": "Six.\n\n\n", "c.txt": "\n\n"})
    parted = open_corpus([str(folder)], "blank_lines")
    assert documents(parted) == [["One.", "Two.", "Three."], ["four"], ["Five."], ["Six."]]
    assert [number for number, _ in parted.numbered()] == [0, 0, 0, 1, 2, 3]
    assert documents(opened(folder)) == [["One.", "Two.", "Three.", "four", "Five."], ["Six."]]


def test_the_demo_is_its_own_training_texts(small_demo):
    first = opened("demo")
    words = {word for sentence in first for word in sentence.split()}
    for task, column in (("cola", "text_a"), ("rte", "text_b")):
        assert {word for text in generate(task)["train"][column] for word in text.split()} <= words
    small_demo(train=40)
    assert opened("demo").digest != first.digest


@pytest.fixture
def hub(monkeypatch):
    """The requests to a hub that answers with columns of a dataset, or with an error."""
    load = Mock()
    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)

    def answering(answer):
        failed = isinstance(answer, Exception)
        load.side_effect = answer if failed else None
        load.return_value = None if failed else datasets.Dataset.from_dict(answer)
        return load.call_args_list

    return answering


def test_a_hub_datasets_rows_are_documents(hub):
    asked = hub({"text": ["One. Two.", "", "Three."], "id": [1, 2, 3]})
    corpus = opened("hub:a/b:c@d0")
    expected = [["One.", "Two."], ["Three."]]
    assert documents(corpus) == expected
    assert asked == [call("a/b", "c", revision="d0", split="train")]
    opened("hub:a/b")
    assert asked[1] == call("a/b", None, revision=None, split="train")
    hub({"text": ["One. Two.Three."]})
    assert opened("hub:a/b:c@d0").digest != corpus.digest


TEXTS: dict[str, str | bytes] = {
    "NUL.txt": b"fine\nnot \0 here\n",
    "latin-1.txt": "caf\u00e9\n".encode("latin-1"),
    "cut.txt": "caf\u00e9".encode()[:-1],
    "long.txt": "y" * 20 + "\n" + "x" * 21,
    "blank.txt": " \n\t\n\u00a0 \n",
    "none/a.md": "text",
    "links/a.txt": "One.",
    "pipes/a.txt": "One.",
}
PATHS = {
    "NUL.txt": "corpus file 'NUL.txt' has a NUL byte; this is a binary file, remove it",
    "latin-1.txt": "corpus file 'latin-1.txt' is not UTF-8 text (invalid continuation byte); "
    "convert or remove it",
    "cut.txt": "corpus file 'cut.txt' is not UTF-8 text (unexpected end of data); convert or "
    "remove it",
    "long.txt": "corpus file 'long.txt' has more than 20 characters without a line break; break "
    "it into lines",
    "nowhere": "corpus 'nowhere' does not exist; give a text file, a folder, hub:NAME or demo",
    "none": "corpus folder 'none' has no files that end in .txt, .text, .tokens, .raw",
    "blank.txt": "corpus 'blank.txt' has no text in it",
    # The link leads nowhere, and reading the pipe would wait forever.
    "links": "cannot read corpus file 'links/b.txt': No such file or directory",
    "pipes": "cannot read corpus file 'pipes/b.txt': not a plain file",
}
HUB: dict[str, tuple[object, str]] = {
    "no route": (
        ConnectionError("no route\nto host"),
        "cannot read corpus 'hub:a/b' (no route); give text files or a",
    ),
    "no column": (
        {"sentence": ["One."], "id": [1]},
        "corpus 'hub:a/b' has no column 'text', only sentence, id",
    ),
    "no text": (
        {"text": ["One.", None]},
        "corpus 'hub:a/b', row 1: column 'text' holds None; expected text",
    ),
    "blank": ({"text": [" ", ""]}, "corpus 'hub:a/b' has no text in it"),
}


@pytest.mark.parametrize("case", [*PATHS, *HUB])
def test_what_is_no_text_is_refused_in_one_line(case, write, hub, monkeypatch):
    monkeypatch.setattr(corpus_module, "MAX_LINE", 20)
    folder = write(TEXTS)
    (folder / "links" / "b.txt").symlink_to(folder / "gone.txt")
    (folder / "links" / "up").symlink_to(folder)
    os.mkfifo(folder / "pipes" / "b.txt")
    monkeypatch.chdir(folder)
    answer, message = HUB.get(case) or (None, PATHS.get(case))
    hub(answer or {})
    with pytest.raises(UserError) as caught:
        opened("hub:a/b" if case in HUB else case)
    assert str(caught.value).startswith(message)
