"""Text to pretrain on: files and folders, a hub dataset, or the demo's own sentences."""

import contextlib
import hashlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from glue_bench.data.hub import load_dataset
from glue_bench.data.sources import open_source
from glue_bench.errors import UserError, quoted
from glue_bench.files import check_file, file_digest
from glue_bench.remote import fetched, is_url

SUFFIXES = (".txt", ".text", ".tokens", ".raw")
LONGEST_LINE = 1_000_000  # characters; what is longer was not written as text
LONGEST_PARAGRAPH = (
    4_000  # characters; lines that together are longer are no wrapped paragraph, but a list
)
HUB = "hub:"
SENTENCE_END = re.compile(r"([.!?][\"'\u201d\u2019)\]]?)\s+")
LAST_OF_A_PARAGRAPH = tuple(".!?:;\"'")

Part = Path | Sequence[str]
"""A file, or texts that can be read one by one."""


@dataclass(frozen=True)
class Corpus:
    """Text in a fixed order, never in memory as a whole: `parts` are files, or texts that can be read one by one.

    A document is one of them, or with `blank_lines` what stands between two blank lines. Iterating gives sentences.
    """

    name: str
    parts: tuple[Part, ...]
    digest: str
    blank_lines: bool = False

    def __iter__(self) -> Iterator[str]:
        return (sentence for _, sentence in self.numbered())

    def numbered(self) -> Iterator[tuple[int, str]]:
        """Each sentence with the number of its document, from 0; documents without text have no number."""
        number = -1
        for lines in chain.from_iterable(map(documents_of, self.parts)):
            begins = True
            for paragraph in paragraphs(lines):
                begins |= self.blank_lines and not paragraph.strip()
                for piece in SENTENCE_END.sub(r"\1\n", paragraph).splitlines():
                    if sentence := piece.strip():
                        number, begins = number + begins, False
                        yield number, sentence

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """A block that reads all text. Raises UserError if the text is no longer that of `digest` when the block ends.

        The block may have failed because of the change: then this error takes the place of its own.
        """
        try:
            yield
        except Exception:
            self.check_unchanged()
            raise
        self.check_unchanged()

    def check_unchanged(self) -> None:
        """Raises UserError if the text is no longer that of `digest`."""
        if corpus_digest(map(part_digest, self.parts)) != self.digest:
            advice = "run again when nothing writes to it any more"
            raise UserError(f"corpus '{self.name}' has changed while it was in use; {advice}")


def open_corpus(names: Sequence[str], documents: str = "files") -> Corpus:
    """Find and check all text, before anything is tokenised.

    `names` are files, folders (files with a text suffix, sorted by path, also of folders below; links to folders are
    not followed), `hub:NAME[:CONFIG][@REVISION]` (a dataset's column `text`, split `train`) or `demo`. A document is a
    file, or a row of a dataset; where `documents` is blank_lines, blank lines part documents, too. A file that several
    names lead to is read once. Raises UserError where nothing is there, or no text; for what is not UTF-8, and a huge
    line; and where the hub is out of reach.
    """
    parts = tuple(each_once(part for name in names for part in find(name)))
    for part in parts:
        check_text(part)
    digest = corpus_digest(map(part_digest, parts))
    corpus = Corpus(", ".join(names), parts, digest, documents == "blank_lines")
    if next(iter(corpus), None) is None:
        raise UserError(f"corpus '{corpus.name}' has no text in it")
    return corpus


def each_once(parts: Iterable[Part]) -> Iterator[Part]:
    """The parts in their order, without files that were there before under another path, or through a link."""
    seen = set()
    for part in parts:
        place = None
        if isinstance(part, Path):
            with contextlib.suppress(OSError):  # `check_text` says what is wrong with it
                status = part.stat()
                place = status.st_dev, status.st_ino
        if place is None or place not in seen:
            yield part
        seen.add(place)


def documents_of(part: Part) -> Iterator[Iterable[str]]:
    """The lines of a file, or of each text. Raises UserError for a file that can no longer be opened."""
    if isinstance(part, Path):
        try:
            with part.open(
                encoding="utf-8-sig"
            ) as file:  # a byte-order mark is no part of the text
                yield file
        except OSError as error:
            raise UserError(f"cannot read corpus file '{part}': {error.strerror}") from error
    else:
        yield from (text.split("\n") for text in part)


def paragraphs(lines: Iterable[str]) -> Iterator[str]:
    """Lines; wrapped ones, which stop in mid-sentence and go on in lower case, in one of up to LONGEST_PARAGRAPH."""
    wrapped, size = [""], 0
    for raw in lines:
        line, last = raw.rstrip(" \t\n"), wrapped[-1]
        ends = (
            not last
            or last.endswith(LAST_OF_A_PARAGRAPH)
            or last[-1].isspace()
            or size > LONGEST_PARAGRAPH
        )
        if ends or not "a" <= line[:1] <= "z":
            yield " ".join(wrapped)
            wrapped, size = [], 0
        wrapped.append(line)
        size += len(line)
    yield " ".join(wrapped)


def find(name: str) -> Sequence[Part]:
    """The parts that one of the names stands for; see `open_corpus`, errors included."""
    if name == "demo":  # the training texts of all its tasks, a row a document
        demo = open_source("demo")
        frames = [demo.load(task).splits["train"] for task in demo.tasks() if task != "ax"]
        texts = (frame[frame.columns.intersection(["text_a", "text_b"])] for frame in frames)
        return [["\n".join(row) for frame in texts for row in frame.itertuples(index=False)]]
    if name.startswith(HUB):
        return [hub_texts(name.removeprefix(HUB))]
    path = fetched(name) if is_url(name) else Path(name).expanduser()
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UserError(
            f"corpus '{name}' does not exist; give a text file, a folder, {HUB}NAME or demo"
        )

    def refuse(error: OSError) -> None:  # text would be missing without a word
        raise UserError(
            f"cannot read corpus folder '{error.filename}': {error.strerror}"
        ) from error

    paths = (
        Path(place, file) for place, _, files in os.walk(path, onerror=refuse) for file in files
    )
    if text_files := sorted(file for file in paths if file.suffix.lower() in SUFFIXES):
        return text_files
    raise UserError(f"corpus folder '{path}' has no files that end in {', '.join(SUFFIXES)}")


def hub_texts(name: str) -> Sequence[str]:
    """The column `text` of a hub dataset, NAME[:CONFIG][@REVISION]."""
    repository, _, config = name.partition("@")[0].partition(":")
    where, instead = f"corpus '{HUB}{name}'", "give text files or a folder instead"
    options = {"revision": name.partition("@")[2] or None, "split": "train"}
    loaded = load_dataset(where, instead, repository, config or None, **options)
    if "text" not in loaded.column_names:
        raise UserError(f"{where} has no column 'text', only {', '.join(loaded.column_names)}")
    texts: Sequence[str] = loaded["text"]  # read from the disk row by row
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise UserError(
                f"{where}, row {row}: column 'text' holds {quoted(text)}; expected text"
            )
    return texts


def check_text(part: Part) -> None:
    """Raises UserError for a file that cannot be read, or is not text throughout."""
    if not isinstance(part, Path):
        return
    about = f"corpus file '{part}'"
    try:
        check_file(part, sys.maxsize)
        with part.open(encoding="utf-8") as file:
            while line := file.readline(LONGEST_LINE + 1):
                if "\0" in line:
                    raise UserError(f"{about} has a NUL byte; this is a binary file, remove it")
                if len(line) > LONGEST_LINE and not line.endswith("\n"):
                    most = f"more than {LONGEST_LINE:,} characters"
                    raise UserError(f"{about} has {most} without a line break; break it into lines")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{about} is not UTF-8 text ({error.reason}); convert or remove it"
        ) from error
    except OSError as error:
        raise UserError(f"cannot read {about}: {error.strerror}") from error


def part_digest(part: Part) -> bytes:
    """The SHA-256 of a file, or of texts. Raises UserError for a file that cannot be read."""
    if isinstance(part, Path):
        try:
            return bytes.fromhex(file_digest(part))
        except OSError as error:
            raise UserError(f"cannot read corpus file '{part}': {error.strerror}") from error
    total = hashlib.sha256()
    for text in part:
        total.update(text.encode() + b"\0")
    return total.digest()


def corpus_digest(digests: Iterable[bytes]) -> str:
    """The SHA-256 of a corpus from the digests of its parts."""
    return hashlib.sha256(b"".join(digests)).hexdigest()
