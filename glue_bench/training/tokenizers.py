"""Tokenizers: that of a checkpoint, or a WordPiece vocabulary trained for arms that start from scratch."""

import contextlib
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from glue_bench.errors import UserError, first_line
from glue_bench.files import (
    cache_folder,
    cache_written_to,
    check_checksums,
    check_file,
    set_aside,
    whole_folder,
    write_checksums,
)
from glue_bench.model.locate import locate
from glue_bench.training.quiet import without_output

TRAINER_VERSION = 1
LARGEST_VOCABULARY = 2**28
"""Bytes of a file of a tokenizer, at most."""
MOST_TOKENS = 10**7
MOST_KEPT = 500_000  # parts of texts whose words or tokens are in memory
PROBE = (
    ["The café's 2 naïve owners, Zoë & Yûki, e-mailed <s> [MASK] 'today'...", "One"],
    ["Ünlike   them, 我们 went OUT!\tAgain? [SEP] </s>", "Another one was much longer than all that came before it."],
)
"""First and second texts of two pairs."""
PROBE_LENGTH = 12
_PLACES = {"name_or_path", "is_local", "local_files_only", "cache_dir", "revision", "token"}
"""Settings that say where a tokenizer was found, or how it was fetched."""
SPECIAL = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}


def load_tokenizer(name: str, revision: str | None = None) -> PreTrainedTokenizerBase:
    """The tokenizer beside a checkpoint, or of another hub id or folder.

    Raises:
        UserError: there is none that can be used, it has no padding token, or ids beyond MOST_TOKENS.
    """
    folder = locate(name, revision, weights=False)
    if not folder.is_dir():
        raise UserError(f"no tokenizer in '{name}', which is one file; name one with `tokenizer`")
    try:
        for path in folder.iterdir():
            if path.suffix in (".json", ".txt", ".model"):
                check_file(path, LARGEST_VOCABULARY)
        with without_output():
            tokenizer = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)
        tokenizer(*PROBE, truncation=True, max_length=PROBE_LENGTH, return_token_type_ids=True, verbose=False)
        segment_types(tokenizer)  # without a length its own limit is compared, which may be no number
    except Exception as error:  # what transformers and tokenizers raise for a file that they did not expect is anything
        raise UserError(f"no tokenizer in '{name}' ({first_line(error)}); name one with `tokenizer`") from error
    # Where the files are absent transformers invents a tokenizer of the special tokens alone.
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        raise UserError(f"no tokenizer in '{name}' (no vocabulary file); name one with `tokenizer`")
    if tokenizer.pad_token_id is None:
        raise UserError(f"the tokenizer of '{name}' has no padding token; name another with `tokenizer`")
    if vocabulary_size(tokenizer) > MOST_TOKENS:
        raise UserError(f"the tokenizer of '{name}' has ids beyond {MOST_TOKENS:,}; name another with `tokenizer`")
    return tokenizer


def vocabulary_size(tokenizer: PreTrainedTokenizerBase) -> int:
    """How many rows a table of its tokens has: one more than the largest id, whether or not all ids are in use."""
    return 1 + max(tokenizer.get_vocab().values())


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """An uncased WordPiece tokenizer as BERT's, trained on `texts`; the same texts give the same vocabulary.

    `texts` that can be read twice are never in memory as a whole.
    """
    texts = list(texts) if isinstance(texts, Iterator) else texts
    # The trainer numbers the characters that continue a word (`##c`) in the order of a hash map, which differs from run
    # to run and decides between equally frequent merges. Tokens given as special are numbered first, in their order.
    words = _Words()
    for text in texts:
        words.of(text)
    first = [*SPECIAL.values(), *sorted(f"##{character}" for character in words.inner)]
    trained = Tokenizer(models.WordPiece(unk_token=SPECIAL["unk_token"]))
    trained.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trained.train_from_iterator(
        map(words.of, texts),
        trainers.WordPieceTrainer(vocab_size=vocab_size, special_tokens=first, show_progress=False),
    )
    tokenizer = _wordpiece(trained.get_vocab())
    ends = [(token, tokenizer.token_to_id(token)) for token in (SPECIAL["cls_token"], SPECIAL["sep_token"])]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", special_tokens=ends
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL)


def cached_tokenizer(key: str, texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerBase:
    """`train_tokenizer`, kept in the cache under `key`, which stands for the texts and the size.

    What is damaged in the cache is made anew.

    Raises:
        DiskError: the cache is full or cannot be written.
    """
    folder = cache_folder() / "tokenizers" / f"v{TRAINER_VERSION}-{key}"
    if folder.is_dir():
        try:
            check_checksums(folder)
            return load_tokenizer(str(folder))
        except Exception:  # what a damaged file raises is anything
            with cache_written_to(folder):
                set_aside(folder)
    with cache_written_to(folder), whole_folder(folder) as aside:
        train_tokenizer(texts, vocab_size).save_pretrained(aside)
        write_checksums(aside)
    return load_tokenizer(str(folder))


class _Words(dict[str, str]):
    """What stands between two spaces -> its words by BERT's rules, with spaces between them; each is looked at once.

    `inner` are all characters that have stood inside a word.
    """

    def __init__(self) -> None:
        bert = _wordpiece({})
        self._normalize, self._split = bert.normalizer.normalize_str, bert.pre_tokenizer.pre_tokenize_str
        self.inner: set[str] = set()

    def of(self, text: str) -> str:
        """The words of a text, with spaces between them."""
        return " ".join(map(self.__getitem__, text.split(" ")))

    def __missing__(self, chunk: str) -> str:
        found = [word for word, _ in self._split(self._normalize(chunk))]
        self.inner.update(*(word[1:] for word in found))
        if len(self) >= MOST_KEPT:
            self.clear()
        return self.setdefault(chunk, " ".join(found))


def encoder(tokenizer: PreTrainedTokenizerBase) -> Callable[[list[str]], list[list[int]]]:
    """Texts -> their tokens, without special ones.

    No rule of BERT's WordPiece looks beyond a space, so that what stands between two spaces is encoded once.
    """

    def encode(texts: list[str]) -> list[list[int]]:
        # verbose: not a word about texts longer than the tokenizer's model takes.
        quiet = {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False}
        return tokenizer(texts, add_special_tokens=False, **quiet)["input_ids"] if texts else []

    known: dict[str, list[int]] = {}

    def encode_once(texts: list[str]) -> list[list[int]]:
        parts = [text.split(" ") for text in texts]
        if len(known) >= MOST_KEPT:
            known.clear()
        new = list(set(chain.from_iterable(parts)) - known.keys())
        known.update(zip(new, encode(new), strict=True))
        return [list(chain.from_iterable(map(known.__getitem__, chunks))) for chunks in parts]

    return encode_once if _parts_at_spaces(tokenizer) else encode


def _parts_at_spaces(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether a text's tokens are those of what stands between its spaces: BERT's rules, and no token with a space."""
    state = json.loads(_backend_state(tokenizer) or "{}")
    kinds = [(state.get(part) or {}).get("type") for part in ("normalizer", "pre_tokenizer", "model")]
    plain = not any(" " in token.content for token in tokenizer.added_tokens_decoder.values())
    return plain and kinds == ["BertNormalizer", "BertPreTokenizer", "WordPiece"]


def _wordpiece(vocabulary: dict[str, int]) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=SPECIAL["unk_token"]))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def recipe_1_tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """The digest in the ids of recipe 1, which leaves out some of what `tokenizer_digest` has."""
    content = _backend_state(tokenizer)
    if content is None:
        content = json.dumps([type(tokenizer).__name__, sorted(tokenizer.get_vocab().items())])
    return hashlib.sha256(content.encode()).hexdigest()


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """SHA-256 of all that decides which ids a text becomes, and of nothing that does not.

    Padding is always on the right and lengths are always given, so that `padding_side` and `model_max_length` decide
    nothing. What the tokenizer's own Python code does shows in a few encoded pairs, cut short.
    """
    encoded = tokenizer(*PROBE, truncation=True, max_length=PROBE_LENGTH, return_token_type_ids=True, verbose=False)
    content = {
        "probe": [encoded["input_ids"], encoded["token_type_ids"]],
        "truncation_side": tokenizer.truncation_side,
        "split_special_tokens": tokenizer.split_special_tokens,
        "special": {name: getattr(tokenizer, f"{name}_id") for name in SPECIAL},
        "all_special_ids": sorted(tokenizer.all_special_ids),
        "state": _backend_state(tokenizer) or _slow_state(tokenizer),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _backend_state(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """What a tokenizer of the library `tokenizers` is made of, wherever its files lie; None for one in Python."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    # Earlier calls leave their truncation and padding behind; every call sets its own.
    backend.no_truncation()
    backend.no_padding()
    return backend.to_str()


def _slow_state(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Of a tokenizer in Python: its class, settings, tokens, and the content of the files that hold its vocabulary."""
    settings = {
        name: repr(value)
        for name, value in tokenizer.init_kwargs.items()
        if name not in _PLACES and not name.endswith("_file")
    }
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.suppress(NotImplementedError):  # of characters or bytes, without a file
            tokenizer.save_vocabulary(folder)
        files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in Path(folder).iterdir()}
    return {
        "class": f"{type(tokenizer).__module__}.{type(tokenizer).__qualname__}",
        "settings": settings,
        "vocabulary": sorted(tokenizer.get_vocab().items()),
        "added": {number: repr(token) for number, token in tokenizer.added_tokens_decoder.items()},
        "files": files,
    }


def segment_types(tokenizer: PreTrainedTokenizerBase) -> int:
    """How many segments the tokenizer tells apart: 2 for BERT's, 1 for RoBERTa's."""
    ids = tokenizer(*PROBE, return_token_type_ids=True, verbose=False)["token_type_ids"]
    return 1 + max(max(row) for row in ids)
