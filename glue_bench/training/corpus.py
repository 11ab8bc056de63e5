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

TEXT_SUFFIXES = (".txt", ".text", ".tokens", ".raw")
MAX_LINE = 1_000_000  # characters; a longer line was not written as text
MAX_PARAGRAPH = 4_000  # characters; longer lines together are no wrapped paragraph, but a list
HUB_PREFIX = "hub:"
SENTENCE_END = re.compile(r"([.!?][\"'\u201d\u2019)\]]?)\s+")
LAST_OF_A_PARAGRAPH = tuple(".!?:;\"'")

Part = Path | Sequence[str]
"""A file, or texts that can be read one by one."""


@dataclass(frozen=True)
class Corpus:
    """Text in a fixed order, which is never in memory as a whole. Iteration yields sentences.

    - `parts`: files, or texts that can be read one by one.
    - `blank_lines`: whether blank lines separate documents. If not, each file or text is one
      document.
    """

    name: str
    parts: tuple[Part, ...]
    digest: str
    blank_lines: bool = False

    def __iter__(self) -> Iterator[str]:
        return (sentence for _, sentence in self.numbered())

    def numbered(self) -> Iterator[tuple[int, str]]:
        """Yield each sentence after the number of its document, from 0.

        Documents without text have no number.
        """
        number = -1
        for lines in chain.from_iterable(map(documents_of, self.parts)):
            begins = True
            for paragraph in paragraphs(lines):
                begins |= self.blank_lines and not paragraph.strip()
                for piece in SENTENCE_END.sub(r"\1\n", paragraph).splitlines():
                    if sentence := piece.strip():
                        if begins:
                            number += 1
                            begins = False
                        yield number, sentence

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Check after this block, which reads all text, that the text has not changed.

        Raises UserError if the text has another digest when the block ends. The block may have
        failed because of the change: then this error takes the place of the block's own.
        """
        try:
            yield
        except Exception:
            self.check_unchanged()
            raise
        self.check_unchanged()

    def check_unchanged(self) -> None:
        """Raise UserError if the text has another digest now."""
        if corpus_digest(map(part_digest, self.parts)) != self.digest:
            advice = "run again when nothing writes to it any more"
            raise UserError(f"corpus '{self.name}' has changed while it was in use; {advice}")


def open_corpus(names: Sequence[str], documents: str = "files") -> Corpus:
    """Find and check all text, before anything is tokenised.

    A file that several names lead to is read once.

    Args:
        names: files, folders (files with a text suffix, sorted by path, also of folders below;
            links to folders are not followed), `hub:NAME[:CONFIG][@REVISION]` (a dataset's column
            `text`, split `train`) or `demo`.
        documents: `files` if each file, or each row of a dataset, is a document; `blank_lines` if
            blank lines separate documents inside a file, too.

    Raises:
        UserError: a name leads to nothing, or to no text, to bytes that are not UTF-8, or to a huge
            line, or the hub is out of reach.
    """
    parts_of_names = chain.from_iterable(map(corpus_parts, names))
    parts = tuple(without_repeats(parts_of_names))
    for part in parts:
        check_text(part)
    digest = corpus_digest(map(part_digest, parts))
    corpus = Corpus(", ".join(names), parts, digest, documents == "blank_lines")
    if next(iter(corpus), None) is None:
        raise UserError(f"corpus '{corpus.name}' has no text in it")
    return corpus


def without_repeats(parts: Iterable[Part]) -> Iterator[Part]:
    """Yield the parts in their order, but a file only once, whatever paths and links lead to it."""
    earlier: set[tuple[int, int]] = set()
    for part in parts:
        if isinstance(part, Path):
            with contextlib.suppress(OSError):  # `check_text` reports it
                status = part.stat()
                file_key = (status.st_dev, status.st_ino)
                if file_key in earlier:
                    continue
                earlier.add(file_key)
        yield part


def documents_of(part: Part) -> Iterator[Iterable[str]]:
    """Yield the lines of each document of a part.

    Raises UserError if a file can no longer be opened.
    """
    if isinstance(part, Path):
        try:
            # A byte-order mark is no part of the text.
            with part.open(encoding="utf-8-sig") as file:
                yield file
        except OSError as error:
            raise UserError(f"cannot read corpus file '{part}': {error.strerror}") from error
    else:
        yield from (text.split("\n") for text in part)


def paragraphs(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines. Wrapped lines are joined to one of up to MAX_PARAGRAPH characters.

    A line is wrapped if it stops in mid-sentence and the next one begins with a small letter.
    """
    wrapped = [""]
    size = 0
    for raw in lines:
        line = raw.rstrip(" \t\n")
        last = wrapped[-1]
        ends = (
            not last
            or last.endswith(LAST_OF_A_PARAGRAPH)
            or last[-1].isspace()
            or size > MAX_PARAGRAPH
        )
        if ends or not "a" <= line[:1] <= "z":
            yield " ".join(wrapped)
            wrapped = []
            size = 0
        wrapped.append(line)
        size += len(line)
    yield " ".join(wrapped)


def corpus_parts(name: str) -> Sequence[Part]:
    """Return the parts that a name of `open_corpus` stands for. It raises the same errors."""
    if name == "demo":
        return [demo_texts()]
    if name.startswith(HUB_PREFIX):
        return [hub_texts(name.removeprefix(HUB_PREFIX))]
    path = fetched(name) if is_url(name) else Path(name).expanduser()
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UserError(
            f"corpus '{name}' does not exist; give a text file, a folder, {HUB_PREFIX}NAME or demo"
        )

    def refuse(error: OSError) -> None:  # without this error, text would be missing silently
        raise UserError(
            f"cannot read corpus folder '{error.filename}': {error.strerror}"
        ) from error

    text_files: list[Path] = []
    for folder, _, names in os.walk(path, onerror=refuse):
        files = (Path(folder, file_name) for file_name in names)
        text_files += [file for file in files if file.suffix.lower() in TEXT_SUFFIXES]
    if not text_files:
        raise UserError(
            f"corpus folder '{path}' has no files that end in {', '.join(TEXT_SUFFIXES)}"
        )
    return sorted(text_files)


def demo_texts() -> list[str]:
    """Return the training texts of all tasks of the demo, a row a document."""
    demo = open_source("demo")
    texts: list[str] = []
    for task in demo.tasks():
        if task != "ax":
            frame = demo.load(task).splits["train"]
            columns = frame.columns.intersection(["text_a", "text_b"])
            texts += ["\n".join(row) for row in frame[columns].itertuples(index=False)]
    return texts


def hub_texts(name: str) -> Sequence[str]:
    """Return the column `text` of a hub dataset, NAME[:CONFIG][@REVISION]."""
    dataset, _, revision = name.partition("@")
    repository, _, config = dataset.partition(":")
    title = f"corpus '{HUB_PREFIX}{name}'"
    loaded = load_dataset(
        title,
        "give text files or a folder instead",
        repository,
        config or None,
        revision=revision or None,
        split="train",
    )

    if "text" not in loaded.column_names:
        raise UserError(f"{title} has no column 'text', only {', '.join(loaded.column_names)}")

    texts: Sequence[str] = loaded["text"]  # read from the disk row by row
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise UserError(
                f"{title}, row {row}: column 'text' holds {quoted(text)}; expected text"
            )
    return texts


def check_text(part: Part) -> None:
    """Raise UserError if a file cannot be read, or is not text throughout."""
    if not isinstance(part, Path):
        return

    about = f"corpus file '{part}'"
    try:
        check_file(part, sys.maxsize)
        with part.open(encoding="utf-8") as file:
            while line := file.readline(MAX_LINE + 1):
                if "\0" in line:
                    raise UserError(f"{about} has a NUL byte; this is a binary file, remove it")
                if len(line) > MAX_LINE and not line.endswith("\n"):
                    raise UserError(
                        f"{about} has more than {MAX_LINE:,} characters without a line break; "
                        "break it into lines"
                    )
    except UnicodeDecodeError as error:
        raise UserError(
            f"{about} is not UTF-8 text ({error.reason}); convert or remove it"
        ) from error
    except OSError as error:
        raise UserError(f"cannot read {about}: {error.strerror}") from error


def part_digest(part: Part) -> bytes:
    """Return the SHA-256 of a file, or of texts. Raises UserError if a file cannot be read."""
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
    """Return the SHA-256 of a corpus from the digests of its parts."""
    return hashlib.sha256(b"".join(digests)).hexdigest()
