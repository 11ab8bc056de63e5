"""Whether a checkpoint of another library computes here what it computes in transformers: compared once, then known."""

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import AutoModel, AutoModelForMaskedLM
from transformers import __version__ as TRANSFORMERS

from glue_bench.errors import UserError, first_line
from glue_bench.files import cache_folder
from glue_bench.model.bars import transformers_quiet
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.fresh import drawing, on_meta
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.model.locate import fingerprint
from glue_bench.remote import is_url

TOLERANCE = 1e-4  # of the largest value; rounding alone makes 2e-6 of it in 24 random blocks of width 256
SEQUENCES, LENGTH, SEED = 2, 32, 1


class _Tokens(NamedTuple):
    """What both read: token and segment ids (b, l), and the mask, 1 on real tokens, where some are padding."""

    ids: Tensor
    segments: Tensor
    mask: Tensor | None


def check_against_transformers(
    folder: Path, config: EncoderConfig, weights: Mapping[str, Tensor], head: Mapping[str, Tensor], name: str
) -> None:
    """Compare hidden states, and the logits where there is a masked-LM head, with those of transformers' own model.

    Both read the same random tokens, padded and not, in float32. Agreement is noted in the cache by the digest of the
    files, of this package's model code and the versions it runs on; where the cache cannot be written it is found anew
    each time. Draws nothing from torch's global generator.

    Raises:
        UserError: they differ by more than TOLERANCE, are not finite, or transformers cannot compute the checkpoint.
    """
    digest = hashlib.sha256(" ".join((fingerprint(folder), _code(), TRANSFORMERS, torch.__version__)).encode())
    note = cache_folder() / "agrees-with-transformers" / digest.hexdigest()[:32]
    with contextlib.suppress(OSError):
        if note.exists():
            return
    with _undisturbed(), torch.no_grad():
        theirs, ours = _theirs(folder, bool(head), name), _ours(config, weights, head)
        for padded in (False, True):
            tokens = _tokens(config, padded)
            with failing_in_one_line(name):
                given: dict[str, Any] = {"token_type_ids": tokens.segments} if config.type_vocab_size else {}
                given |= {"input_ids": tokens.ids, "attention_mask": tokens.mask}
                output = theirs(**given, output_hidden_states=True, return_dict=True)
                expected = _named(output.hidden_states, output.get("logits"))
            states = ours.base.hidden_states(tokens.ids, tokens.mask, tokens.segments)
            found = _named(states, ours.predict(states[-1]) if head else None)
            _compare(found, expected, tokens.mask, name)
    if not is_url(note):
        with contextlib.suppress(OSError):
            note.parent.mkdir(parents=True, exist_ok=True)
            note.touch()


@cache
def _code() -> str:
    """A digest of all that reads a checkpoint and computes with it."""
    room = Path(__file__).parent
    total = hashlib.sha256()
    for path in sorted(room.rglob("*.py")):
        total.update(f"{path.relative_to(room)}\0".encode() + path.read_bytes() + b"\0")
    return total.hexdigest()


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """transformers says nothing, products are not rounded to bf16, and what torch drew before and draws next stays."""
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with transformers_quiet(), drawing():
            yield
    finally:
        torch.set_float32_matmul_precision(precision)


def _theirs(folder: Path, has_head: bool, name: str) -> Any:
    """transformers' own model of the folder, with its masked-LM head if it has one."""
    kind = AutoModelForMaskedLM if has_head else AutoModel
    with failing_in_one_line(name):
        model, found = kind.from_pretrained(
            str(folder),
            local_files_only=True,
            trust_remote_code=False,
            dtype=torch.float32,
            attn_implementation="eager",
            chunk_size_feed_forward=0,  # another order of the same work, which not every length permits
            output_loading_info=True,
        )
    lacking = [key for key in sorted(found["missing_keys"]) if "pooler." not in key]
    if lacking:
        raise UserError(f"checkpoint '{name}': transformers finds no weights for {lacking[0]} in '{folder}'")
    return model.eval()


@contextlib.contextmanager
def failing_in_one_line(name: str) -> Iterator[None]:
    """Whatever transformers, safetensors or torch raise, which have no common base, is a UserError."""
    try:
        yield
    except Exception as error:
        said = f"({type(error).__name__}: {first_line(error)})"
        raise UserError(f"checkpoint '{name}': transformers itself cannot compute it {said}") from error


def _ours(config: EncoderConfig, weights: Mapping[str, Tensor], head: Mapping[str, Tensor]) -> EncoderForMaskedLM:
    """Our model around the weights, of which none is copied; what the checkpoint lacks has no values."""
    model = on_meta(EncoderForMaskedLM, config).eval()
    state = {f"base.{name}": tensor for name, tensor in weights.items()} | dict(head)
    model.load_state_dict(state, strict=False, assign=True)
    model.decoder.weight = model.base.variant.words.weight
    return model


def _tokens(config: EncoderConfig, padded: bool) -> _Tokens:
    """Any tokens but padding in two segments; padded, the last sequence has half of its length."""
    generator = torch.Generator().manual_seed(SEED)
    length = min(LENGTH, config.max_position_embeddings)
    ids = torch.randint(config.vocab_size, (SEQUENCES, length), generator=generator)
    if config.pad_token_id is not None:
        ids[ids == config.pad_token_id] = (config.pad_token_id + 1) % config.vocab_size
    segments = torch.zeros_like(ids)
    segments[:, length // 3 :] = max(config.type_vocab_size - 1, 0)
    if not padded:
        return _Tokens(ids, segments, None)
    mask = torch.ones_like(ids)
    mask[-1, (length + 1) // 2 :] = 0
    return _Tokens(ids.masked_fill(mask == 0, config.pad_token_id or 0), segments, mask)


def _named(states: Any, logits: Tensor | None) -> dict[str, Tensor]:
    first, *others = states
    found = {"what enters its first block": first}
    found |= {f"what leaves its block {block}": state for block, state in enumerate(others, 1)}
    return found if logits is None else found | {"what its masked-LM head predicts": logits}


def _compare(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], mask: Tensor | None, name: str) -> None:
    """Refuse the first of these that differs on real tokens."""
    for what, expected in theirs.items():
        real = torch.ones(expected.shape[:2], dtype=torch.bool) if mask is None else mask.bool()
        largest = float(expected[real].abs().max())
        apart = float((ours[what] - expected)[real].abs().max())
        if not largest < float("inf"):
            raise UserError(f"checkpoint '{name}': hidden states are not finite; its weights are damaged")
        if not apart <= TOLERANCE * largest:
            padded = "" if mask is None else " where a sequence is padded"
            raise UserError(
                f"checkpoint '{name}' cannot be read: {what} differs from transformers {TRANSFORMERS} by "
                f"{apart:.2g}{padded} (its largest value is {largest:.2g}); its config.json has a setting that is not "
                "read as transformers reads it"
            )
