"""Tokenizers: the one beside a checkpoint, or a WordPiece vocabulary for arms from scratch."""

import contextlib
import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

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
from glue_bench.files import cache_folder, check_file, check_json, read_file, read_or_make
from glue_bench.model.locate import explain_no_checkpoint, locate, read_json
from glue_bench.training.quiet import without_output

TRAINER_VERSION = 1  # the version of `train_tokenizer`, a part of the cache's key
MAX_VOCABULARY_BYTES = 2**28  # the largest size of a tokenizer's file
# The largest number of values in a tokenizer's JSON. Gemma's, with 256,000 tokens and 580,000
# merges, has 2 million.
MAX_FILE_VALUES = 2**22
MAX_VOCABULARY = 10**7
PROBE_TEXTS = (  # the first texts and the second texts of two pairs
    ["The café's 2 naïve owners, Zoë & Yûki, e-mailed <s> [MASK] 'today'...", "One"],
    [
        "Ünlike   them, 我们 went OUT!\tAgain? [SEP] </s>",
        "Another one was much longer than all that came before it.",
    ],
)
PROBE_LENGTH = 12
# Settings that say where a tokenizer was found, or how it was fetched.
PLACE_KEYS = {"name_or_path", "is_local", "local_files_only", "cache_dir", "revision", "token"}
# The packages that read a SentencePiece model, and their modules.
READS_PIECES = {"sentencepiece": "sentencepiece", "protobuf": "google.protobuf"}
TIKTOKEN = "tiktoken.model"  # a vocabulary that is no SentencePiece model
NAME_ONE = (
    f"name one with `tokenizer` {IN_A_FILE}, "
    "or by the option `tokenizer` of evaluate, convert and analyse"
)
FILE_PATTERNS = ("tokenizer*", "vocab*", "*.model", "merges.txt", "*.codes")
"""Patterns of the files of a tokenizer."""
BERT_TOKENS = {
    f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")
}


def load_tokenizer(name: str, revision: str | None = None) -> PreTrainedTokenizerBase:
    """Load the tokenizer beside a checkpoint, or of another hub id or folder.

    Raises UserError if there is none that can be used.
    """
    folder = locate(name, revision, weights=False)
    if not folder.is_dir():
        raise UserError(f"no tokenizer in '{name}', which is one file; {NAME_ONE}")

    try:
        for path in folder.iterdir():
            _check_tokenizer_file(path)
        with without_output():
            tokenizer = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)
        encode_probe(tokenizer)
        # Without a length, the tokenizer's own limit is compared, and it may be no number.
        segment_types(tokenizer)
    except Exception as error:  # transformers and tokenizers may raise anything for strange files
        raise _no_tokenizer(name, folder, error) from error

    if tokenizer.pad_token_id is None and tokenizer.eos_token_id is not None:
        # This is usual for GPT-2: padding is masked, so its token is not read.
        tokenizer.pad_token = tokenizer.eos_token

    special = set(tokenizer.all_special_tokens)
    has_words = not tokenizer.get_vocab().keys() <= special
    if not has_words and not _has_files(folder):
        raise UserError(_no_files(name, folder))
    if not has_words:  # transformers makes up such a tokenizer if the vocabulary's file is absent
        fault = f"in '{name}' has {len(special)} special tokens and no words"
    elif tokenizer.pad_token_id is None:
        fault = f"of '{name}' has no padding token"
    elif vocabulary_size(tokenizer) > MAX_VOCABULARY:
        fault = f"of '{name}' has ids beyond {MAX_VOCABULARY:,}"
    else:
        return tokenizer
    raise UserError(f"the tokenizer {fault}; {NAME_ONE}")


def _check_tokenizer_file(path: Path) -> None:
    """Refuse a file of a tokenizer that is too large or too deep, or has ids that are too large."""
    if path.suffix == ".json":
        check_json(read_file(path, MAX_VOCABULARY_BYTES), MAX_FILE_VALUES)
    elif path.suffix in (".txt", ".model"):
        check_file(path, MAX_VOCABULARY_BYTES)
    if path.name == "tokenizer.json" and re.search(rb'":\s*\d{9}', path.read_bytes()):
        # tokenizers before 0.23 aborts the process if memory is short.
        raise ValueError(f"ids beyond {MAX_VOCABULARY:,}")


def encode_probe(tokenizer: PreTrainedTokenizerBase) -> Mapping[str, list[list[int]]]:
    """Encode the pairs of PROBE_TEXTS, cut to PROBE_LENGTH tokens."""
    return tokenizer(
        *PROBE_TEXTS,
        truncation=True,
        max_length=PROBE_LENGTH,
        return_token_type_ids=True,
        verbose=False,
    )


def _no_tokenizer(name: str, folder: Path, error: Exception) -> UserError:
    """Say why a folder's tokenizer cannot be used. Errors of transformers often do not."""
    if fault := explain_no_checkpoint(folder, name):
        return UserError(fault)
    if _has_own_code(folder):
        return UserError(
            f"the tokenizer of '{name}' has code of its own, which is never run; {NAME_ONE}"
        )
    pieces = sorted(path.name for path in folder.glob("*.model") if path.name != TIKTOKEN)
    if pieces and not (folder / "tokenizer.json").exists():
        model = f"the tokenizer of '{name}' is the SentencePiece model {pieces[0]}"
        absent = [name for name, module in READS_PIECES.items() if not is_installed(module)]
        if absent:
            packages = " and ".join(absent)
            return UserError(
                f"{model}, which needs {packages}; install it: pip install '.[sentencepiece]'"
            )
        return UserError(f"{model}, which cannot be read; the file may be damaged, copy it again")
    if not _has_files(folder):
        return UserError(_no_files(name, folder))
    return UserError(f"no tokenizer in '{name}' ({first_line(error)}); {NAME_ONE}")


def _has_files(folder: Path) -> bool:
    """Return whether a folder has any file of a tokenizer."""
    return any(path.is_file() for pattern in FILE_PATTERNS for path in folder.glob(pattern))


def _no_files(name: str, folder: Path) -> str:
    """Say which files are absent in a folder without any file of a tokenizer."""
    if not (folder / "config.json").exists():
        return (
            f"'{name}' has no config.json and no tokenizer; "
            "a checkpoint is a folder with config.json, weights and the files of its tokenizer"
        )
    return (
        f"no tokenizer in '{name}': none of its files is a tokenizer's; "
        f"copy the tokenizer's files there, or {NAME_ONE}"
    )


def _has_own_code(folder: Path) -> bool:
    """Return whether a tokenizer comes with code of its own that transformers would have to run."""
    path = folder / "tokenizer_config.json"
    settings = read_json(path) if path.exists() else {}
    code = settings.get("auto_map")
    return isinstance(code, dict) and "AutoTokenizer" in code


def is_installed(module: str) -> bool:
    """Return whether a module is installed. It is not imported."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package around the module is missing
        return False


def save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write the files of a tokenizer. Earlier uses of it do not change them."""
    backend(tokenizer)
    tokenizer.save_pretrained(folder)


def vocabulary_size(tokenizer: PreTrainedTokenizerBase) -> int:
    """Return how many rows a table of its tokens has.

    It is one more than the largest id, even if some ids are not in use.
    """
    return 1 + max(tokenizer.get_vocab().values())


def check_vocabulary(tokenizer: PreTrainedTokenizerBase, name: str, rows: int) -> None:
    """Raise UserError if a tokenizer has more tokens than an encoder has rows.

    Args:
        tokenizer: the tokenizer.
        name: the name of the tokenizer, for the error.
        rows: how many tokens the encoder embeds.
    """
    tokens = vocabulary_size(tokenizer)
    if tokens > rows:
        raise UserError(
            f"the tokenizer of '{name}' has {tokens} tokens but the checkpoint embeds {rows}; "
            "give the tokenizer it was trained with (--tokenizer NAME)"
        )


def segment_types(tokenizer: PreTrainedTokenizerBase) -> int:
    """Return how many segments the tokenizer tells apart: 2 for BERT's, 1 for RoBERTa's."""
    ids = tokenizer(*PROBE_TEXTS, return_token_type_ids=True, verbose=False)["token_type_ids"]
    return 1 + max(max(row) for row in ids)


def encode(tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> list[list[int]]:
    """Return the tokens of each text, without special ones around them."""
    library = backend(tokenizer)
    if library is None:
        return tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
    library.encode_special_tokens = tokenizer.split_special_tokens
    return [encoded.ids for encoded in library.encode_batch_fast(texts, add_special_tokens=False)]


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Train an uncased WordPiece tokenizer like BERT's. Equal texts give equal vocabularies."""
    if isinstance(texts, Iterator):  # the texts are read twice
        texts = list(texts)

    trained = wordpiece({})
    # The trainer numbers the characters that continue a word (`##c`) in the order of a hash map,
    # which differs from run to run and decides between equally frequent merges. Tokens given as
    # special are numbered first, in their order.
    inner = inner_characters(trained, texts)
    continuing = sorted(f"##{character}" for character in inner)

    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        special_tokens=[*BERT_TOKENS.values(), *continuing],
        show_progress=False,
    )

    trained.train_from_iterator(texts, trainer)
    tokenizer = wordpiece(trained.get_vocab())  # here inner characters are no special tokens
    cls = BERT_TOKENS["cls_token"]
    sep = BERT_TOKENS["sep_token"]

    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(cls, tokenizer.token_to_id(cls)), (sep, tokenizer.token_to_id(sep))],
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **BERT_TOKENS)


def inner_characters(tokenizer: Tokenizer, texts: Iterable[str]) -> set[str]:
    """Return the characters that stand in words of the texts after a first character."""
    # No rule of BERT's looks beyond a space, so each string between two spaces is read once.
    chunks: set[str] = set()
    for text in texts:
        chunks.update(text.split(" "))
    normalize = tokenizer.normalizer.normalize_str  # the library makes a new object at each access
    split = tokenizer.pre_tokenizer.pre_tokenize_str
    characters: set[str] = set()
    for chunk in chunks:
        for word, _ in split(normalize(chunk)):
            characters.update(word[1:])
    return characters


def wordpiece(vocabulary: dict[str, int]) -> Tokenizer:
    """Return BERT's uncased tokenizer with this vocabulary. It adds no special tokens."""
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=BERT_TOKENS["unk_token"]))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def cached_tokenizer(
    key: str, train: Callable[[], PreTrainedTokenizerBase]
) -> PreTrainedTokenizerBase:
    """Return the tokenizer that `train` returns, which is kept in the cache.

    Args:
        key: identifies the texts and the size of the vocabulary.
        train: trains the tokenizer, if it is not in the cache.
    """
    return read_or_make(
        cache_folder() / "tokenizers" / f"{TRAINER_VERSION}-{key}",
        make=lambda folder: save_tokenizer(train(), folder),
        read=lambda folder: load_tokenizer(str(folder)),
    )


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return the SHA-256 of everything that decides which ids a text becomes, and of nothing else.

    Padding is always on the right and lengths are always given, so `padding_side` and
    `model_max_length` decide nothing. The tokenizer's own Python code shows in a few encoded pairs,
    cut short. If all of the tokenizer is Python code, its files have the rest.
    """
    encoded = encode_probe(tokenizer)
    library = backend(tokenizer)
    content = {
        "probe": [encoded["input_ids"], encoded["token_type_ids"]],
        "truncation_side": tokenizer.truncation_side,
        "split_special_tokens": tokenizer.split_special_tokens,
        "special": {name: getattr(tokenizer, f"{name}_id") for name in BERT_TOKENS},
        "all_special_ids": sorted(tokenizer.all_special_ids),
    }
    content["state"] = library.to_str() if library else _saved_state(tokenizer)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _saved_state(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Return the digests of a tokenizer's files, and its settings without PLACE_KEYS."""
    with tempfile.TemporaryDirectory() as folder:
        # A tokenizer of characters or bytes has no vocabulary to save.
        with contextlib.suppress(NotImplementedError):
            tokenizer.save_pretrained(folder)
        files = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
    settings = json.loads(files.pop("tokenizer_config.json"))
    state: dict[str, Any] = {}
    for name, file in files.items():
        state[name] = hashlib.sha256(file).hexdigest()
    for name, value in settings.items():
        if name not in PLACE_KEYS:
            state[name] = value
    return state


def backend(tokenizer: PreTrainedTokenizerBase) -> Tokenizer | None:
    """Return the tokenizer of the library `tokenizers` inside a tokenizer, if there is one.

    Earlier calls may have set its truncation and padding; these are reset.
    """
    library = getattr(tokenizer, "backend_tokenizer", None)
    if library is not None:
        library.no_truncation()
        library.no_padding()
    return library
