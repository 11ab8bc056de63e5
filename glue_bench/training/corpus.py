"""Text to pretrain on: files and folders, a hub dataset, or the demo's own sentences."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from glue_bench.benchmark.hub import quiet
from glue_bench.benchmark.sources import open_source
from glue_bench.errors import UserError
from glue_bench.remote import fetched, is_url

SUFFIXES = (".txt", ".text", ".tokens", ".raw")
LONGEST_LINE = 1_000_000  # characters; what is longer was not written as text
HUB = "hub:"

# A line that stops in mid-sentence and goes on in lower case was wrapped.
_WRAP = re.compile(r"(?<![.!?:;\"'\s])[ \t]*\n(?=[a-z])")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[.!?][\"'\u201d\u2019)\]])\s+")


@dataclass(frozen=True)
class Corpus:
    """Documents in a fixed order: `parts` are files, or lists of texts already in memory."""

    name: str
    parts: tuple[Path | list[str], ...]
    digest: str

    def documents(self) -> Iterator[list[str]]:
        """Each document as its sentences, in order; a file is one document. Documents without text are left out."""
        texts = chain.from_iterable([_read(part)] if isinstance(part, Path) else part for part in self.parts)
        return filter(None, map(sentences, texts))


def open_corpus(names: Sequence[str]) -> Corpus:
    """Find and check all text, before anything is tokenised.

    `names` are files, folders (their files with a text suffix, sorted by path), `hub:NAME[:CONFIG][@REVISION]`
    (a dataset's column `text`, split `train`, one document per row) or `demo`.

    Raises:
        UserError: nothing there, no text in it, not UTF-8 text, a huge line, or the hub is out of reach.
    """
    parts = [part for name in names for part in _parts(name)]
    total = hashlib.sha256()
    for part in parts:
        total.update(_digest(part))
    corpus = Corpus(", ".join(names), tuple(parts), total.hexdigest())
    if next(corpus.documents(), None) is None:
        raise UserError(f"corpus '{corpus.name}' has no text in it")
    return corpus


def sentences(text: str) -> list[str]:
    """The sentences of a text, by their final punctuation; a line ends one too, unless the line was only wrapped."""
    lines = _WRAP.sub(" ", text).splitlines()
    pieces = (piece.strip() for line in lines for piece in _SENTENCE_END.split(line))
    return [piece for piece in pieces if piece]


def _parts(name: str) -> Iterable[Path | list[str]]:
    if name == "demo":
        return [_demo_texts()]
    if name.startswith(HUB):
        return [_hub_texts(name.removeprefix(HUB))]
    path = fetched(name) if is_url(name) else Path(name).expanduser()
    if path.is_dir():
        found = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
        if not found:
            raise UserError(f"corpus folder '{path}' has no files that end in {', '.join(SUFFIXES)}")
        return found
    if not path.is_file():
        raise UserError(f"corpus '{name}' does not exist; give a text file, a folder, {HUB}NAME or demo")
    return [path]


def _demo_texts() -> list[str]:
    source = open_source("demo")
    frames = [source.load(task).splits["train"] for task in source.tasks() if task != "ax"]
    return [
        "\n".join(row)
        for frame in frames
        for row in frame[frame.columns.intersection(["text_a", "text_b"])].itertuples(index=False)
    ]


def _hub_texts(name: str) -> list[str]:
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
    texts = list(loaded["text"])
    bad = next((row for row, text in enumerate(texts) if not isinstance(text, str)), None)
    if bad is not None:
        raise UserError(f"corpus '{HUB}{name}', row {bad}: column 'text' holds {texts[bad]!r}; expected text")
    return texts


def _digest(part: Path | list[str]) -> bytes:
    if isinstance(part, Path):
        _read(part)
        with part.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    total = hashlib.sha256()
    for text in part:
        total.update(text.encode() + b"\0")
    return total.digest()


def _read(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"corpus file '{path}' is not UTF-8 text (byte {error.start}); convert or remove it") from error
    except OSError as error:
        raise UserError(f"cannot read corpus file '{path}': {error.strerror}") from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise UserError(f"corpus file '{path}', line {line}: a NUL byte; this is a binary file, remove it")
    longest, number = max(((len(line), index) for index, line in enumerate(text.split("\n"), 1)), default=(0, 0))
    if longest > LONGEST_LINE:
        raise UserError(
            f"corpus file '{path}', line {number}: {longest:,} characters without a line break (at most "
            f"{LONGEST_LINE:,}); break it into lines"
        )
    return text
