"""Native arms: models for sequence classification as transformers reads them."""

import copy
import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
import transformers
from jaxtyping import Bool, Int
from torch import Tensor, nn

from glue_bench.config import AS_PUBLISHED
from glue_bench.errors import UserError
from glue_bench.model import cpu
from glue_bench.model.fresh import fixed_seed
from glue_bench.model.kinds import check_kind
from glue_bench.model.locate import fingerprint, locate
from glue_bench.model.native_attention import ATTENTION, OUR_ATTENTION
from glue_bench.model.parity import cannot_compute
from glue_bench.model.start import Start, label_settings

NATIVE_SUMMARY = "the model as transformers has it, with its own tokenizer and a fresh head"
AutoClassifier = transformers.AutoModelForSequenceClassification
UNBOUNDED = 10**6
"""From this length on a tokenizer has no limit. Tokenizers without a limit say 1e30."""
ANY_SEGMENT = 256
DRAWN_TEXT = " with 16-bit dropout of all tokens"
"""How random numbers are drawn on a CPU: a part of a cell's identity."""
READ_PADDING = {"canine", "convbert", "fnet", "nystromformer", "t5gemma", "yoso"}
"""Families whose outputs depend on padding, whatever the mask is.

FNet mixes all places; CANINE, ConvBERT and Nystromformer have convolutions; YOSO hashes padding;
T5Gemma reads its decoder one place after a text. With all texts padded to the same length, as their
authors have them, no output depends on another text.
"""
COMPARE_SEGMENTS = {"funnel", "xlnet"}
"""Families whose attention compares segments; config.json has no number of segments."""
READ_LAST = {"xlnet"}
"""Families whose classifier reads the last place, so that padding goes before the text.

In all other families padding goes after the text, even if their tokenizer puts it before. Padding
before a text would move the text to other positions.
"""
COUNT_ENDS = {"bart", "bigbird_pegasus", "mbart", "mt5", "mvp", "plbart", "t5", "umt5"}
"""Encoder-decoders that read their score at the last end token.

All rows of a batch must have equally many of them.
"""
OF_THE_OLD_HEAD = (
    "function_to_apply",
    "finetuning_task",
    "task_specific_params",
    "sbert_ce_default_activation_function",
    "sentence_transformers",
    "auto_map",
)
"""Keys of config.json about an unused head, beside `problem_type`: its task, scores, code."""
LOCAL_OPTIONS = {"local_files_only": True, "trust_remote_code": False}


@dataclass(frozen=True)
class NativeStart(Start):
    """The start of a native arm: transformers' own configuration, and weights without a head.

    Attributes:
        config: The configuration.
        reads_segments: Whether the model is given segments.
        pads_left: Whether padding goes before a text.
        longest: The longest text in tokens that configuration and tokenizer admit.
    """

    config: Any
    reads_segments: bool = False
    pads_left: bool = False
    longest: int | None = None

    @property
    def counts_ends(self) -> bool:
        """Whether the model refuses a batch of texts with unlike numbers of end tokens."""
        return self.config.model_type in COUNT_ENDS

    @property
    def positions(self) -> int | None:
        return self.longest

    @property
    def segment_types(self) -> int:
        return known_segments(self.config) if self.reads_segments else 0

    @property
    def hidden_size(self) -> int:
        text = self.config.get_text_config()
        width = getattr(text, "hidden_size", None) or text.d_model  # Perceiver has `d_model` alone
        return int(width)

    @property
    def reads_padding(self) -> bool:
        return self.config.model_type in READ_PADDING

    @property
    def reading(self) -> str:
        """A text that says how texts are given to the model and how it draws random numbers.

        It is a part of a cell's identity.
        """
        text = ""
        if self.reads_segments:
            text += " with segments"
        if self.pads_left:
            text += " padded on the left"
        if self.reads_padding:
            text += " padded to max_length"
        return text + DRAWN_TEXT

    def classifier(self, labels: Sequence[str], seed: int) -> "NativeClassifier":
        """Build the model under a fresh head of its own, with one output per label.

        The seed decides the head.
        """
        config = copy.deepcopy(self.config)
        config.problem_type = None
        for name in OF_THE_OLD_HEAD:
            if name in vars(config):
                delattr(config, name)
        config.update(label_settings(labels))
        transformers.set_seed(seed)
        model = AutoClassifier.from_config(config, dtype=torch.float32, trust_remote_code=False)
        model.base_model.load_state_dict(self.weights, strict=False)
        for module in list(model.modules()):
            for name, part in module.named_children():
                if type(part) is nn.Dropout:
                    setattr(module, name, cpu.Dropout(part.p, part.inplace))
        # Our attention has one mask for all queries of a text, so it cannot compute a causal mask.
        is_causal = getattr(config, "is_decoder", False) or getattr(config, "is_causal", False)
        takes_ours = config.model_type in OUR_ATTENTION and not is_causal
        if takes_ours and model.config._attn_implementation == "sdpa":
            model.set_attn_implementation(ATTENTION)
        return NativeClassifier(model, reads_segments=self.reads_segments, pads_left=self.pads_left)


class NativeClassifier(nn.Module):
    """A model of transformers with its own pooling and head.

    It is called as `EncoderForSequenceClassification` is.
    """

    def __init__(
        self, model: transformers.PreTrainedModel, *, reads_segments: bool, pads_left: bool
    ) -> None:
        super().__init__()
        self.model = model
        self.reads_segments = reads_segments
        self.pads_left = pads_left

    @property
    def base(self) -> transformers.PreTrainedModel:
        """The model without its head."""
        return cast(transformers.PreTrainedModel, self.model.base_model)

    def forward(
        self,
        input_ids: Int[Tensor, "b l"],
        attention_mask: Bool[Tensor, "b l"] | None,
        segments: Int[Tensor, "b l"],
    ) -> Any:
        """Return the model's output, with `logits` (b, num_labels).

        In the arguments, padding is on the right.
        """
        # Some models subtract the mask, which a bool refuses.
        mask = None if attention_mask is None else attention_mask.long()
        if self.pads_left and mask is not None:
            length = input_ids.shape[1]
            shift = length - mask.sum(dim=1, keepdim=True)
            places = (torch.arange(length, device=input_ids.device) - shift) % length
            input_ids = input_ids.gather(1, places)
            segments = segments.gather(1, places)
            mask = mask.gather(1, places)
        extra = {"token_type_ids": segments} if self.reads_segments else {}
        return self.model(input_ids=input_ids, attention_mask=mask, **extra)


class LoadedClassifier(NamedTuple):
    """A model that transformers has read, with the report of the weights that it has found."""

    config: Any
    model: transformers.PreTrainedModel
    report: Mapping[str, Any]

    @property
    def prefix(self) -> str:
        """The beginning of the names of the base's weights."""
        model = self.model
        return "" if model.base_model is model else f"{model.base_model_prefix}."

    @property
    def head(self) -> set[str]:
        """The names of the head's weights."""
        return {key for key in self.model.state_dict() if not key.startswith(self.prefix)}

    @property
    def takes_segments(self) -> bool:
        """Whether the model is given segments. It then has weights for at least two."""
        names = inspect.signature(self.model.forward).parameters
        return "token_type_ids" in names and known_segments(self.config) > 1


def read_native(
    name: str,
    revision: str | None,
    tokenizer: transformers.PreTrainedTokenizerBase,
    digest: str | None = None,
) -> NativeStart:
    """Read a checkpoint from the hub or a folder as transformers reads it.

    Code that comes with a checkpoint is never run.

    Args:
        name: A hub id or a folder.
        revision: The revision of a hub id.
        tokenizer: The arm's tokenizer.
        digest: The `fingerprint` of the files when they were chosen.

    Returns:
        The start of a native arm.

    Raises:
        UserError: the checkpoint is one file; transformers cannot read it or has no classifier for
            it; weights are absent; its padding token is not the tokenizer's; or its files no longer
            have the `digest`.
    """
    loaded = load_classifier(name, revision, tokenizer, digest)
    config = loaded.config
    base = loaded.model.base_model
    absent = check_weights(name, loaded)
    head = loaded.head
    return NativeStart(
        config,
        {key: tensor for key, tensor in base.state_dict().items() if key not in absent},
        AS_PUBLISHED,
        has_unused_head=bool(head) and head.isdisjoint(loaded.report["missing_keys"]),
        reads_segments=loaded.takes_segments,
        pads_left=config.model_type in READ_LAST,
        longest=longest_text(loaded, tokenizer),
    )


def load_classifier(
    name: str,
    revision: str | None,
    tokenizer: transformers.PreTrainedTokenizerBase,
    digest: str | None,
) -> LoadedClassifier:
    """Let transformers read a checkpoint as a classifier. The arguments are those of `read_native`.

    Raises UserError where transformers cannot read it or has no classifier for it, where its
    padding token is not the tokenizer's, and where its files no longer have the `digest`.
    """
    folder = locate(name, revision)
    if not folder.is_dir():
        advice = "give a folder or a hub id"
        raise UserError(f"checkpoint '{name}' is one file; {advice}")
    check_kind(folder, name)

    try:
        config = transformers.AutoConfig.from_pretrained(str(folder), **LOCAL_OPTIONS)
        _set_padding(config, tokenizer, name)
        with fixed_seed():
            # A head with another shape counts as none. `check_weights` checks the base.
            model, report = AutoClassifier.from_pretrained(
                str(folder),
                config=config,
                dtype=torch.float32,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                **LOCAL_OPTIONS,
            )
    except UserError:
        raise
    except Exception as error:  # errors of transformers, safetensors and torch have no common base
        raise cannot_compute(name, error) from error

    if digest is not None and fingerprint(folder) != digest:
        raise UserError(f"checkpoint '{name}' has changed while it was in use; start again")
    return LoadedClassifier(config, model, report)


def _set_padding(config: Any, tokenizer: transformers.PreTrainedTokenizerBase, name: str) -> None:
    """Set the padding token, which tells decoders the end of a text, and switch caches off.

    Raises UserError where the configuration names another one.
    """
    text = config.get_text_config()
    stated = getattr(text, "pad_token_id", None)
    padding = tokenizer.pad_token_id
    is_a_token = stated is not None and 0 <= stated < getattr(text, "vocab_size", 0)
    if is_a_token and stated != padding:
        fault = f"config.json says pad_token_id {stated}, but its tokenizer pads with {padding}"
        advice = "give the tokenizer it was trained with, or correct config.json"
        raise UserError(f"checkpoint '{name}': {fault}; {advice}")
    text.pad_token_id = padding
    config.pad_token_id = padding
    if hasattr(text, "use_cache"):
        text.use_cache = False  # the cache of keys and values is for generating text


def longest_text(
    loaded: LoadedClassifier, tokenizer: transformers.PreTrainedTokenizerBase
) -> int | None:
    """Return the longest text in tokens that is allowed; None if there is no limit."""
    limits = [tokenizer.model_max_length]
    with suppress(AttributeError, NotImplementedError):  # XLNet raises NotImplementedError
        skipped = _skipped_positions(loaded.model.base_model)
        limits.append(loaded.config.max_position_embeddings - skipped)
    bounds = [limit for limit in limits if limit and 0 < limit < UNBOUNDED]
    return min(bounds, default=None)


def check_weights(name: str, loaded: LoadedClassifier) -> set[str]:
    """Check the report of transformers on the loading of a checkpoint's base.

    Returns:
        The names of weights of the base that the checkpoint lacks. Only a pooler may lack weights.

    Raises:
        UserError: weights have another shape, weights are absent, or weights would not be used.
    """
    prefix = loaded.prefix
    report = loaded.report
    for key, stored, expected in report["mismatched_keys"]:
        if key.startswith(prefix):
            shapes = f"{key} has shape {tuple(stored)}, its settings say {tuple(expected)}"
            advice = "config.json and weights are not of one model"
            raise UserError(f"checkpoint '{name}': {shapes}; {advice}")

    absent: set[str] = set()
    missing: list[str] = []
    for key in report["missing_keys"]:
        if not key.startswith(prefix):
            continue
        bare_name = key.removeprefix(prefix)
        absent.add(bare_name)
        if prefix and "pooler." not in bare_name:
            missing.append(bare_name)
    if missing:
        fault = f"transformers finds no weights for {min(missing)} in it"
        raise UserError(f"checkpoint '{name}': {fault}")

    parts = dict(loaded.model.base_model.named_children())
    # Relative positions of BERT are not used, because transformers 5 reads them as absolute ones.
    # Buffers of older versions do not count.
    unread: list[str] = []
    for key in report["unexpected_keys"]:
        first_part = key.removeprefix(prefix).partition(".")[0]
        if first_part in parts and key.endswith(".weight"):
            unread.append(key)

    if unread:
        fault = f"transformers would leave {min(unread)} out"
        fault += ", and compute something else than was trained"
        advice = "give another checkpoint"
        if "distance_embedding" in min(unread):
            advice += ", or take the variant 'relative-key-query' (or 'shaw') from this one"
        raise UserError(f"checkpoint '{name}': {fault}; {advice}")
    return absent


def _skipped_positions(base: nn.Module) -> int:
    """Return how many rows of its table of positions a model never uses.

    RoBERTa counts positions from the padding token's id on.
    """
    for name, part in base.named_modules():
        padding = getattr(part, "padding_idx", None)
        if name.endswith("position_embeddings") and padding is not None:
            return int(padding) + 1
    return 0


def known_segments(config: Any) -> int:
    """Return how many segments a model has weights for.

    The tokenizer may give another number of segments by default. A model without such weights may
    still take `token_type_ids`: GPT-2 and XLM look them up among their words, and Gemma 3 marks
    pictures by them.
    """
    if config.model_type in COMPARE_SEGMENTS:
        return ANY_SEGMENT
    text = config.get_text_config()
    return int(getattr(text, "type_vocab_size", None) or 0)
