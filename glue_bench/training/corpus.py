"""Text to pretrain on: files and folders, a hub dataset, or the demo's own sentences."""

import codecs
import hashlib
import io
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glue_bench.data.hub import quiet
from glue_bench.data.sources import open_source
from glue_bench.errors import UserError, quoted
from glue_bench.remote import fetched, is_url

SUFFIXES = (".txt", ".text", ".tokens", ".raw")
LONGEST_LINE = 1_000_000  # characters; what is longer was not written as text
AT_ONCE = 2**20  # bytes or characters of a file that are in memory
HUB = "hub:"

# A line that stops in mid-sentence and goes on in lower case was wrapped. Patterns begin with what is rare: faster.
_WRAP = re.compile(r"\n(?=[a-z])(?<![.!?:;\"'\s]\n)")
_SENTENCE_END = re.compile(r"([.!?][\"'\u201d\u2019)\]]?)\s+")
# All up to the last line whose end is no wrap, so that no sentence goes on behind it.
_WHOLE_SENTENCES = re.compile(r".*(?:\n(?=[^a-z])|[.!?:;\"']\n(?=[a-z]))", re.DOTALL)
_BLANK_LINES = re.compile(r"(?:^|\n)[^\S\n]*\n")


@dataclass(frozen=True)
class Corpus:
    """Text in a fixed order: `parts` are files, or texts that can be read one by one.

    A document is one of them, or with `blank_lines` what stands between two blank lines. The text is never in memory
    as a whole; iterating reads it anew, and gives its sentences in order.
    """

    name: str
    parts: tuple[Path | Sequence[str], ...]
    digest: str
    blank_lines: bool = False

    def __iter__(self) -> Iterator[str]:
        return (sentence for _, sentence in self.numbered())

    def numbered(self) -> Iterator[tuple[int, str]]:
        """Each sentence with the number of its document, from 0; documents without text have no number."""
        number, begins = -1, True
        for text in self._texts():
            if text is None:
                begins = True
                continue
            for sentence in sentences(text):
                number, begins = number + begins, False
                yield number, sentence

    def _texts(self) -> Iterator[str | None]:
        """Pieces of text that end where a sentence does; None ends a document."""
        for part in self.parts:
            for text in (_blocks(part),) if isinstance(part, Path) else ((text,) for text in part):
                for block in text:
                    first, *others = _BLANK_LINES.split(block) if self.blank_lines else [block]
                    yield first
                    for other in others:
                        yield None
                        yield other
                yield None


def open_corpus(names: Sequence[str], documents: str = "files") -> Corpus:
    """Find and check all text, before anything is tokenised.

    `names` are files, folders (files with a text suffix, sorted by path, also of folders below and of those that are
    linked), `hub:NAME[:CONFIG][@REVISION]` (a dataset's column `text`, split `train`) or `demo`. A document is a file,
    or a row of a dataset; where `documents` is blank_lines, blank lines part documents, too.

    Raises:
        UserError: nothing there, no text in it, not UTF-8 text, a huge line, or the hub is out of reach.
    """
    parts = [part for name in names for part in _parts(name)]
    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            total.update(_checked(part))
        else:
            rows = hashlib.sha256()
            for text in part:
                rows.update(text.encode() + b"\0")
            total.update(rows.digest())
    corpus = Corpus(", ".join(names), tuple(parts), total.hexdigest(), documents == "blank_lines")
    if next(iter(corpus), None) is None:
        raise UserError(f"corpus '{corpus.name}' has no text in it")
    return corpus


def sentences(text: str) -> list[str]:
    """The sentences of a text, by their final punctuation; a line ends one too, unless the line was only wrapped."""
    if " \n" in text or "\t\n" in text:
        text = "\n".join([line.rstrip(" \t") for line in text.split("\n")])
    pieces = _SENTENCE_END.sub(r"\1\n", _WRAP.sub(" ", text)).splitlines()
    return [sentence for piece in pieces if (sentence := piece.strip())]


def _parts(name: str) -> Iterable[Path | Sequence[str]]:
    if name == "demo":
        return [_demo_texts()]
    if name.startswith(HUB):
        return [_hub_texts(name.removeprefix(HUB))]
    path = fetched(name) if is_url(name) else Path(name).expanduser()
    if path.is_dir():
        # A link that leads nowhere is among them, and refused when it is read.
        found = sorted(file for file in _files_in(path) if file.is_file() or not file.exists())
        if not found:
            raise UserError(f"corpus folder '{path}' has no files that end in {', '.join(SUFFIXES)}")
        return found
    if not path.is_file():
        raise UserError(f"corpus '{name}' does not exist; give a text file, a folder, {HUB}NAME or demo")
    return [path]


def _files_in(folder: Path) -> Iterator[Path]:
    """What has a text suffix in a folder and in all below it, those that links lead to included, each of them once.

    Raises:
        UserError: one of them cannot be read.
    """

    def refuse(error: OSError) -> None:
        raise UserError(f"cannot read corpus folder '{error.filename}': {error.strerror}") from error

    root, seen = folder.resolve(), set[Path]()
    for place, folders, names in os.walk(folder, onerror=refuse, followlinks=True):
        folders.sort()  # so that of two links to one folder the same is followed everywhere
        real, here = Path(place).resolve(), Path(place)
        is_by_link = real != root / here.relative_to(folder)
        if real in seen or (is_by_link and real.is_relative_to(root)):
            folders.clear()
            continue
        seen.add(real)
        yield from (here / name for name in names if Path(name).suffix.lower() in SUFFIXES)


def _demo_texts() -> list[str]:
    source = open_source("demo")
    frames = [source.load(task).splits["train"] for task in source.tasks() if task != "ax"]
    return [
        "\n".join(row)
        for frame in frames
        for row in frame[frame.columns.intersection(["text_a", "text_b"])].itertuples(index=False)
    ]


def _hub_texts(name: str) -> Sequence[str]:
    import datasets

    name, _, revision = name.partition("@")
    repository, _, config = name.partition(":")
    try:
        with quiet():
            loaded: Any = datasets.load_dataset(repository, config or None, revision=revision or None, split="train")
    except Exception as error:  # httpx, huggingface_hub, datasets and OSError: no common base
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"cannot read corpus '{HUB}{name}' ({first}); give text files or a folder instead") from error
    if "text" not in loaded.column_names:
        raise UserError(f"corpus '{HUB}{name}' has no column 'text', only {', '.join(loaded.column_names)}")
    texts: Sequence[str] = loaded["text"]  # read from the disk row by row
    bad = next((row for row, text in enumerate(texts) if not isinstance(text, str)), None)
    if bad is not None:
        raise UserError(f"corpus '{HUB}{name}', row {bad}: column 'text' holds {quoted(texts[bad])}; expected text")
    return texts


def _checked(path: Path) -> bytes:
    """The SHA-256 of a file that is text throughout.

    Raises:
        UserError: it cannot be read, is not UTF-8, has a NUL byte, or a line longer than LONGEST_LINE.
    """
    total, decoder = hashlib.sha256(), codecs.getincrementaldecoder("utf-8")()
    newlines = io.IncrementalNewlineDecoder(None, translate=True)
    read, line, column = 0, 1, 0  # bytes before this block; where in the text it begins
    try:
        with path.open("rb") as file:
            while True:
                block = file.read(AT_ONCE)
                left = len(decoder.getstate()[0])  # bytes of a character that the last block ended in
                text = newlines.decode(decoder.decode(block, final=not block), final=not block)
                lengths = list(map(len, text.split("\n")))
                lengths[0] += column
                if "\0" in text:
                    line += text.count("\n", 0, text.index("\0"))
                    raise UserError(f"corpus file '{path}', line {line}: a NUL byte; this is a binary file, remove it")
                if max(lengths) > LONGEST_LINE:
                    line += next(index for index, length in enumerate(lengths) if length > LONGEST_LINE)
                    raise UserError(
                        f"corpus file '{path}', line {line}: more than {LONGEST_LINE:,} characters without a line "
                        "break; break it into lines"
                    )
                if not block:
                    return total.digest()
                total.update(block)
                read, line, column = read + len(block), line + len(lengths) - 1, lengths[-1]
    except UnicodeDecodeError as error:
        byte = read - left + error.start
        raise UserError(f"corpus file '{path}' is not UTF-8 text (byte {byte}); convert or remove it") from error
    except OSError as error:
        raise UserError(f"cannot read corpus file '{path}': {error.strerror}") from error


def _blocks(path: Path) -> Iterator[str]:
    """A file's text in pieces of about AT_ONCE characters, none of which ends within a sentence.

    Only where wrapped lines go on for longer than LONGEST_LINE does a piece end at any of them.
    """
    rest = ""
    with path.open(encoding="utf-8") as file:
        while text := file.read(AT_ONCE):
            rest += text
            found = _WHOLE_SENTENCES.match(rest)
            end = found.end() if found else (len(rest) > LONGEST_LINE and rest.rfind("\n") + 1)
            if end:
                yield rest[:end]
                rest = rest[end:]
    yield rest
