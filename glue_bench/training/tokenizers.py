"""Tokenizers: that of a checkpoint, or a WordPiece vocabulary trained for arms from scratch; and where words begin."""

import contextlib
import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from glue_bench.errors import IN_A_FILE, UserError, first_line
from glue_bench.files import cache_folder, check_file, check_json, kept_or_made, read_file
from glue_bench.model.locate import locate, read_json, unlike_a_checkpoint
from glue_bench.training.quiet import without_output

TRAINER_VERSION = 1  # of `train_tokenizer`: a part of the cache's key
LARGEST_VOCABULARY = 2**28  # bytes of a file of a tokenizer
MOST_VALUES = (
    2**22
)  # of a tokenizer's JSON: that of Gemma, with 256,000 tokens and 580,000 merges, has 2 million
MOST_TOKENS = 10**7
PROBE = (  # first and second texts of two pairs
    ["The café's 2 naïve owners, Zoë & Yûki, e-mailed <s> [MASK] 'today'...", "One"],
    [
        "Ünlike   them, 我们 went OUT!\tAgain? [SEP] </s>",
        "Another one was much longer than all that came before it.",
    ],
)
PROBE_LENGTH = 12
# Settings that say where a tokenizer was found, or how it was fetched.
PLACES = {"name_or_path", "is_local", "local_files_only", "cache_dir", "revision", "token"}
STARTS = ("Ġ", "▁")  # what a word begins with in byte-level and in SentencePiece vocabularies
CONTINUES = "##"  # what goes on with a word in WordPiece vocabularies
READS_PIECES = {
    "sentencepiece": "sentencepiece",
    "protobuf": "google.protobuf",
}  # packages and their modules
TIKTOKEN = "tiktoken.model"  # a vocabulary that is no SentencePiece model
NAME_ONE = f"name one with `tokenizer` {IN_A_FILE}"
FILES = ("tokenizer*", "vocab*", "*.model", "merges.txt", "*.codes")
"""Patterns of the files of a tokenizer."""
SPECIAL = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
Span = tuple[int, int]
"""A word's pieces in a sequence: [first, stop)."""


def load_tokenizer(name: str, revision: str | None = None) -> PreTrainedTokenizerBase:
    """The tokenizer beside a checkpoint, or of another hub id or folder; raises UserError where none can be used."""
    folder = locate(name, revision, weights=False)
    if not folder.is_dir():
        raise UserError(f"no tokenizer in '{name}', which is one file; {NAME_ONE}")
    try:
        for path in folder.iterdir():
            if path.suffix == ".json":
                check_json(read_file(path, LARGEST_VOCABULARY), MOST_VALUES)
            elif path.suffix in (".txt", ".model"):
                check_file(path, LARGEST_VOCABULARY)
            if path.name == "tokenizer.json" and re.search(rb'":\s*\d{9}', path.read_bytes()):
                raise ValueError(
                    f"ids beyond {MOST_TOKENS:,}"
                )  # tokenizers before 0.23 aborts where memory is short
        with without_output():
            tokenizer = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)
        tokenizer(
            *PROBE,
            truncation=True,
            max_length=PROBE_LENGTH,
            return_token_type_ids=True,
            verbose=False,
        )
        segment_types(
            tokenizer
        )  # without a length its own limit is compared, which may be no number
    except Exception as error:  # what transformers and tokenizers raise for a file that they did not expect is anything
        raise _no_tokenizer(name, folder, error) from error
    if tokenizer.pad_token_id is None and tokenizer.eos_token_id is not None:
        tokenizer.pad_token = (
            tokenizer.eos_token
        )  # as is done for GPT-2: padding is masked, and its token is not read
    special = set(tokenizer.all_special_tokens)
    has_words = not tokenizer.get_vocab().keys() <= special
    if not has_words and not _has_files(folder):
        raise UserError(_no_files(name, folder))
    if not has_words:  # what transformers makes up where the vocabulary's file is absent
        wrong = f"in '{name}' has {len(special)} special tokens and no words"
    elif tokenizer.pad_token_id is None:
        wrong = f"of '{name}' has no padding token"
    elif vocabulary_size(tokenizer) > MOST_TOKENS:
        wrong = f"of '{name}' has ids beyond {MOST_TOKENS:,}"
    else:
        return tokenizer
    raise UserError(f"the tokenizer {wrong}; {NAME_ONE}")


def _no_tokenizer(name: str, folder: Path, error: Exception) -> UserError:
    """Why a folder's tokenizer cannot be used. What transformers says last is often not the cause."""
    if other := unlike_a_checkpoint(folder, name):
        return UserError(other)
    if _has_own_code(folder):
        return UserError(
            f"the tokenizer of '{name}' has code of its own, which is never run; {NAME_ONE}"
        )
    pieces = sorted(path.name for path in folder.glob("*.model") if path.name != TIKTOKEN)
    if pieces and not (folder / "tokenizer.json").exists():
        model = f"the tokenizer of '{name}' is the SentencePiece model {pieces[0]}"
        if absent := [
            package for package, module in READS_PIECES.items() if not is_installed(module)
        ]:
            packages = " and ".join(absent)
            return UserError(
                f"{model}, which needs {packages}; install it: pip install '.[sentencepiece]'"
            )
        return UserError(f"{model}, which cannot be read; the file may be damaged, copy it again")
    if not _has_files(folder):
        return UserError(_no_files(name, folder))
    return UserError(f"no tokenizer in '{name}' ({first_line(error)}); {NAME_ONE}")


def _has_files(folder: Path) -> bool:
    """Whether a folder has any file of a tokenizer."""
    return any(path.is_file() for pattern in FILES for path in folder.glob(pattern))


def _no_files(name: str, folder: Path) -> str:
    """What a folder without any file of a tokenizer lacks."""
    if not (folder / "config.json").exists():
        needs = "a checkpoint is a folder with config.json, weights and the files of its tokenizer"
        return f"'{name}' has no config.json and no tokenizer; {needs}"
    return f"no tokenizer in '{name}': none of its files is one; copy the tokenizer's files there, or {NAME_ONE}"


def _has_own_code(folder: Path) -> bool:
    """Whether a tokenizer comes with code, by which transformers would read it."""
    path = folder / "tokenizer_config.json"
    settings = read_json(path) if path.exists() else {}
    code = settings.get("auto_map")
    return isinstance(code, dict) and "AutoTokenizer" in code


def is_installed(module: str) -> bool:
    """Whether a module can be imported, which is not tried."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it is in
        return False


def save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write the files of a tokenizer, which are the same whatever it was used for before."""
    backend(tokenizer)
    tokenizer.save_pretrained(folder)


def vocabulary_size(tokenizer: PreTrainedTokenizerBase) -> int:
    """How many rows a table of its tokens has: one more than the largest id, whether or not all ids are in use."""
    return 1 + max(tokenizer.get_vocab().values())


def check_vocabulary(tokenizer: PreTrainedTokenizerBase, name: str, rows: int) -> None:
    """Raises UserError where an encoder has fewer `rows` than the tokenizer called `name` has tokens."""
    if (tokens := vocabulary_size(tokenizer)) > rows:
        has = f"the tokenizer of '{name}' has {tokens} tokens but the checkpoint embeds {rows}"
        raise UserError(f"{has}; give the tokenizer it was trained with (--tokenizer NAME)")


def segment_types(tokenizer: PreTrainedTokenizerBase) -> int:
    """How many segments the tokenizer tells apart: 2 for BERT's, 1 for RoBERTa's."""
    ids = tokenizer(*PROBE, return_token_type_ids=True, verbose=False)["token_type_ids"]
    return 1 + max(max(row) for row in ids)


def encode(tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> list[list[int]]:
    """The tokens of each text, without special ones around them."""
    library = backend(tokenizer)
    if library is None:
        return tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
    library.encode_special_tokens = tokenizer.split_special_tokens
    return [encoded.ids for encoded in library.encode_batch_fast(texts, add_special_tokens=False)]


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """An uncased WordPiece tokenizer as BERT's, trained on `texts`: equal texts give equal vocabularies."""
    texts = list(texts) if isinstance(texts, Iterator) else texts
    trained = wordpiece({})
    # The trainer numbers the characters that continue a word (`##c`) in the order of a hash map, which differs from run
    # to run and decides between equally frequent merges. Tokens given as special are numbered first, in their order.
    # No rule of BERT's looks beyond a space, so that what stands between two spaces is looked at once.
    chunks = {chunk for text in texts for chunk in text.split(" ")}
    normalize, split = trained.normalizer.normalize_str, trained.pre_tokenizer.pre_tokenize_str
    inner = {
        character
        for chunk in chunks
        for word, _ in split(normalize(chunk))
        for character in word[1:]
    }
    first = [*SPECIAL.values(), *sorted(f"##{character}" for character in inner)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size, special_tokens=first, show_progress=False
    )
    trained.train_from_iterator(texts, trainer)
    tokenizer = wordpiece(trained.get_vocab())  # in which inner characters are no special tokens
    ends = [
        (token, tokenizer.token_to_id(token))
        for token in (SPECIAL["cls_token"], SPECIAL["sep_token"])
    ]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", special_tokens=ends
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL)


def wordpiece(vocabulary: dict[str, int]) -> Tokenizer:
    """BERT's uncased tokenizer with this vocabulary; it adds no special tokens."""
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=SPECIAL["unk_token"]))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def cached_tokenizer(
    key: str, train: Callable[[], PreTrainedTokenizerBase]
) -> PreTrainedTokenizerBase:
    """The tokenizer that `train` returns, kept in the cache under `key`, which stands for the texts and the size."""
    return kept_or_made(
        cache_folder() / "tokenizers" / f"{TRAINER_VERSION}-{key}",
        make=lambda folder: save_tokenizer(train(), folder),
        read=lambda folder: load_tokenizer(str(folder)),
    )


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """SHA-256 of all that decides which ids a text becomes, and of nothing that does not.

    Padding is always on the right and lengths are always given, so that `padding_side` and `model_max_length` decide
    nothing. What the tokenizer's own Python code does shows in a few encoded pairs, cut short; where all of it is in
    Python, its files have the rest.
    """
    encoded = tokenizer(
        *PROBE, truncation=True, max_length=PROBE_LENGTH, return_token_type_ids=True, verbose=False
    )
    library = backend(tokenizer)
    content = {
        "probe": [encoded["input_ids"], encoded["token_type_ids"]],
        "truncation_side": tokenizer.truncation_side,
        "split_special_tokens": tokenizer.split_special_tokens,
        "special": {name: getattr(tokenizer, f"{name}_id") for name in SPECIAL},
        "all_special_ids": sorted(tokenizer.all_special_ids),
    }
    if library:
        content["state"] = library.to_str()
    else:
        with tempfile.TemporaryDirectory() as folder:
            with contextlib.suppress(
                NotImplementedError
            ):  # of characters or bytes, without a vocabulary
                tokenizer.save_pretrained(folder)
            files = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
        settings = json.loads(files.pop("tokenizer_config.json"))
        digests = {name: hashlib.sha256(file).hexdigest() for name, file in files.items()}
        content["state"] = digests | {
            name: value for name, value in settings.items() if name not in PLACES
        }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def backend(tokenizer: PreTrainedTokenizerBase) -> Tokenizer | None:
    """The tokenizer of the library `tokenizers` inside it, if there is one, without what earlier calls left behind."""
    library = getattr(tokenizer, "backend_tokenizer", None)
    if library is not None:
        library.no_truncation()
        library.no_padding()
    return library


@dataclass(frozen=True)
class WordRule:
    """What a vocabulary says of each token: bool (vocabulary,).

    `starts` is true where a token begins a word; `joins` where one without such a mark goes on with a word that was
    begun: letters and digits do, a punctuation mark is a word of its own. `separates` is true of [CLS], [SEP], padding
    and [MASK], between which a text lies; `regular` of what is no special token.
    """

    starts: np.ndarray
    joins: np.ndarray
    separates: np.ndarray
    regular: np.ndarray

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase) -> "WordRule":
        """The rule of a WordPiece, byte-level or SentencePiece vocabulary; in any other, each token is a word."""
        size = vocabulary_size(tokenizer)
        tokens = [token or "" for token in tokenizer.convert_ids_to_tokens(list(range(size)))]
        special = np.zeros(size, dtype=bool)
        special[list(tokenizer.all_special_ids)] = True
        separates = special.copy()
        if tokenizer.unk_token_id is not None:
            separates[tokenizer.unk_token_id] = False  # it stands for a word
        # The mark itself is in many vocabularies.
        mark = next(
            (mark for mark in STARTS if sum(token.startswith(mark) for token in tokens) > 1), None
        )
        starts = [
            token.startswith(mark) if mark else not token.startswith(CONTINUES) for token in tokens
        ]
        bare = [token.lstrip("".join(STARTS)).removeprefix(CONTINUES) for token in tokens]
        # Bytes of other scripts count as letters.
        joins = [
            any(character.isalnum() or ord(character) > 127 for character in token)
            for token in bare
        ]
        return cls(special | np.array(starts), np.array(joins) & ~special, separates, ~special)

    def stretches(self, ids: np.ndarray) -> list[list[Span]]:
        """The words of a sequence (l,), in order, those between two separators in a list of their own."""
        inside = ~self.separates[ids]
        before = np.concatenate([[False], inside[:-1] & self.joins[ids[:-1]]])
        begins = inside & (self.starts[ids] | ~self.joins[ids] | ~before)
        edges = np.flatnonzero(begins | ~inside).tolist()
        stretches: list[list[Span]] = [[]]
        for first, stop in zip(edges, [*edges[1:], len(ids)], strict=True):
            if inside[first]:
                stretches[-1].append((first, stop))
            elif stretches[-1]:
                stretches.append([])
        return [words for words in stretches if words]
