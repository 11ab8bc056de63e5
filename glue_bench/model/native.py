"""Native arms: whatever transformers reads as a model for sequence classification, as it is published."""

import copy
import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES as CLASSIFIERS,
)

from glue_bench.config import AS_PUBLISHED
from glue_bench.errors import UserError, quoted
from glue_bench.model import cpu
from glue_bench.model.encoder import attend
from glue_bench.model.fresh import drawing
from glue_bench.model.locate import fingerprint, locate, read_json
from glue_bench.model.parity import cannot_compute
from glue_bench.model.start import Start, label_settings

SUMMARY = "the model as transformers has it, with its own tokenizer and a fresh head"
AUTO = transformers.AutoModelForSequenceClassification
UNBOUNDED = 10**6  # tokenizers without a limit say 1e30
ANY_SEGMENT = 256
DRAWN = " with 16-bit dropout of all tokens"  # how random numbers are drawn on a CPU: a part of a cell's identity
ATTENTION = "glue_bench_cpu"
# Families whose attention is given padding and nothing else that would change the scores.
OUR_ATTENTION = {"bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert", "albert"}
# Families whose outputs padding changes, whatever the mask: FNet mixes all places; CANINE, ConvBERT and Nystromformer
# have convolutions; YOSO hashes padding; T5Gemma reads its decoder one place behind a text. With all texts padded to
# the same length, as their authors have them, no output depends on another text.
READ_PADDING = {"canine", "convbert", "fnet", "nystromformer", "t5gemma", "yoso"}
# Families whose attention compares segments with each other: config.json does not count them.
COMPARE_SEGMENTS = {"funnel", "xlnet"}
# Families whose classifier reads the last place: padding goes before the text. All others take it after the text,
# whatever side their tokenizer names: before it, padding moves the text to other positions.
READ_LAST = {"xlnet"}
# Encoder-decoders that read their score at the last end token: all rows of a batch must have equally many of them.
COUNT_ENDS = {"bart", "bigbird_pegasus", "mbart", "mt5", "mvp", "plbart", "t5", "umt5"}
# What config.json says of a head that is not used beside its `problem_type`: its task, scores and code.
OF_THE_OLD_HEAD = (
    "function_to_apply",
    "finetuning_task",
    "task_specific_params",
    "sbert_ce_default_activation_function",
    "sentence_transformers",
    "auto_map",
)
LOCAL = {"local_files_only": True, "trust_remote_code": False}


@dataclass(frozen=True)
class NativeStart(Start):
    """What a native arm starts from: transformers' own configuration, and the weights of the model without its head.

    `reads_segments`: the model is given segments. `pads_left`: padding goes before a text. `longest`: the longest
    text in tokens that configuration and tokenizer admit. `counts_ends`: the model refuses a batch of texts that have
    unlike numbers of end tokens.
    """

    config: Any
    reads_segments: bool = False
    pads_left: bool = False
    longest: int | None = None

    @property
    def counts_ends(self) -> bool:
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
        return int(
            getattr(text, "hidden_size", None) or text.d_model
        )  # Perceiver has the latter alone

    @property
    def reads_padding(self) -> bool:
        return self.config.model_type in READ_PADDING

    @property
    def reading(self) -> str:
        """How texts are given to the model and how it draws: a part of a cell's identity."""
        how = " with segments" * self.reads_segments + " padded on the left" * self.pads_left
        return how + " padded to max_length" * self.reads_padding + DRAWN

    def classifier(self, labels: Sequence[str], seed: int) -> "NativeClassifier":
        """The model under a fresh head of its own with an output a label, decided by the seed."""
        config = copy.deepcopy(self.config)
        config.problem_type = None
        for name in OF_THE_OLD_HEAD:
            if name in vars(config):
                delattr(config, name)
        config.update(label_settings(labels))
        transformers.set_seed(seed)
        model = AUTO.from_config(config, dtype=torch.float32, trust_remote_code=False)
        model.base_model.load_state_dict(self.weights, strict=False)
        for module in list(model.modules()):
            for name, part in module.named_children():
                if type(part) is nn.Dropout:
                    setattr(module, name, cpu.Dropout(part.p, part.inplace))
        is_causal = getattr(config, "is_decoder", False) or getattr(config, "is_causal", False)
        takes_ours = (
            config.model_type in OUR_ATTENTION and not is_causal
        )  # ours has one mask for all queries of a text
        if takes_ours and model.config._attn_implementation == "sdpa":
            model.set_attn_implementation(ATTENTION)
        return NativeClassifier(model, reads_segments=self.reads_segments, pads_left=self.pads_left)


class NativeClassifier(nn.Module):
    """A model of transformers with its own pooling and head, called as `EncoderForSequenceClassification` is."""

    def __init__(
        self, model: transformers.PreTrainedModel, *, reads_segments: bool, pads_left: bool
    ) -> None:
        super().__init__()
        self.model, self.reads_segments, self.pads_left = model, reads_segments, pads_left

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
        """What transformers' model returns, `logits` (b, num_labels) among it; padding comes in on the right."""
        mask = (
            None if attention_mask is None else attention_mask.long()
        )  # some subtract it, which a bool refuses
        if self.pads_left and mask is not None:
            length = input_ids.shape[1]
            shift = length - mask.sum(dim=1, keepdim=True)
            places = (torch.arange(length, device=input_ids.device) - shift) % length
            input_ids, mask, segments = (
                tensor.gather(1, places) for tensor in (input_ids, mask, segments)
            )
        extra = {"token_type_ids": segments} if self.reads_segments else {}
        return self.model(input_ids=input_ids, attention_mask=mask, **extra)


def read_native(
    name: str,
    revision: str | None,
    tokenizer: transformers.PreTrainedTokenizerBase,
    digest: str | None = None,
) -> NativeStart:
    """A checkpoint from the hub or a folder as transformers has it; code that comes with it is never run.

    Raises UserError for one file, a model that transformers cannot read or has no classifier for, absent weights, a
    padding token that is not the tokenizer's, or files that are no longer of `digest`, their `fingerprint`.
    """
    folder = locate(name, revision)
    if not folder.is_dir():
        raise UserError(
            f"checkpoint '{name}' is one file; a native arm starts from a folder or a hub id"
        )
    _refuse_own_code(folder, name)
    try:
        config = transformers.AutoConfig.from_pretrained(str(folder), **LOCAL)
        text = config.get_text_config()
        stated, padding = getattr(text, "pad_token_id", None), tokenizer.pad_token_id
        if (
            stated is not None
            and 0 <= stated < getattr(text, "vocab_size", 0)
            and stated != padding
        ):
            fault = f"config.json says pad_token_id {stated}, but its tokenizer pads with {padding}"
            advice = "give the tokenizer it was trained with, or correct config.json"
            raise UserError(f"checkpoint '{name}': {fault}; {advice}")
        config.pad_token_id = text.pad_token_id = (
            padding  # by which decoders find a text's last token
        )
        if hasattr(text, "use_cache"):
            text.use_cache = False  # of keys and values, for generating text
        with drawing():
            # A head of another shape is as good as none; the rest is looked at below.
            options = {"output_loading_info": True, "ignore_mismatched_sizes": True}
            model, info = AUTO.from_pretrained(
                str(folder), config=config, dtype=torch.float32, **options, **LOCAL
            )
    except UserError:
        raise
    except Exception as error:  # what transformers, safetensors and torch raise has no common base
        raise cannot_compute(name, error) from error
    if digest is not None and fingerprint(folder) != digest:
        raise UserError(f"checkpoint '{name}' has changed while it was in use; start again")
    base, prefix = (
        model.base_model,
        "" if model.base_model is model else f"{model.base_model_prefix}.",
    )
    absent = _check_weights(name, base, prefix, info)
    head = {key for key in model.state_dict() if not key.startswith(prefix)}
    takes_segments = "token_type_ids" in inspect.signature(model.forward).parameters
    limits = [tokenizer.model_max_length]
    with suppress(AttributeError, NotImplementedError):  # XLNet raises the latter
        limits.append(config.max_position_embeddings - _skipped_positions(base))
    return NativeStart(
        config,
        {key: tensor for key, tensor in base.state_dict().items() if key not in absent},
        AS_PUBLISHED,
        leaves_head=bool(head) and head.isdisjoint(info["missing_keys"]),
        reads_segments=takes_segments and known_segments(config) > 1,
        pads_left=config.model_type in READ_LAST,
        longest=min((limit for limit in limits if limit and 0 < limit < UNBOUNDED), default=None),
    )


def _check_weights(name: str, base: nn.Module, prefix: str, info: Mapping[str, Any]) -> set[str]:
    """The names of weights of the base that a checkpoint lacks, which may be a pooler's; `info` is of the loading.

    Raises UserError for weights of another shape, for others that are absent, and for those that would be left out.
    """
    for key, stored, expected in info["mismatched_keys"]:
        if key.startswith(prefix):
            shapes = f"{key} has shape {tuple(stored)}, its settings say {tuple(expected)}"
            raise UserError(
                f"checkpoint '{name}': {shapes}; config.json and weights are not of one model"
            )
    absent = {key.removeprefix(prefix) for key in info["missing_keys"] if key.startswith(prefix)}
    lacking = sorted(key for key in absent if prefix and "pooler." not in key)
    if lacking:
        raise UserError(
            f"checkpoint '{name}': transformers finds no weights for {lacking[0]} in it"
        )
    parts = dict(base.named_children())
    inside = [
        key
        for key in info["unexpected_keys"]
        if key.removeprefix(prefix).partition(".")[0] in parts
    ]
    unread = sorted(
        key for key in inside if key.endswith(".weight")
    )  # not buffers of older versions
    if unread:  # such as relative positions of BERT, which transformers 5 reads as absolute ones
        fault = (
            f"transformers would leave {unread[0]} out, and compute something else than was trained"
        )
        raise UserError(f"checkpoint '{name}': {fault}; give another checkpoint")
    return absent


def _refuse_own_code(folder: Path, name: str) -> None:
    """Raise UserError where only code that comes with a checkpoint could compute it."""
    settings = read_json(folder / "config.json")
    kind = settings.get("model_type")
    if settings.get("auto_map") and kind not in CLASSIFIERS:
        without = f"transformers {transformers.__version__} has no classifier of model_type {quoted(kind)} by itself"
        advice = (
            "code of a checkpoint is never run; give a checkpoint of a model that transformers has"
        )
        raise UserError(f"checkpoint '{name}' comes with code of its own, and {without}; {advice}")


def _skipped_positions(base: nn.Module) -> int:
    """How many rows of its table of positions a model never uses: RoBERTa counts from the padding token's id on."""
    for name, part in base.named_modules():
        padding = getattr(part, "padding_idx", None)
        if name.endswith("position_embeddings") and padding is not None:
            return int(padding) + 1
    return 0


def known_segments(config: Any) -> int:
    """How many segments a model has weights for; its tokenizer may give others, or none, by default.

    A model without such weights may still take `token_type_ids`: GPT-2 and XLM look them up among their words, and
    Gemma 3 marks pictures by them.
    """
    if config.model_type in COMPARE_SEGMENTS:
        return ANY_SEGMENT
    return int(getattr(config.get_text_config(), "type_vocab_size", None) or 0)


def attention(
    module: nn.Module,
    query: Float[Tensor, "b h q k"],
    key: Float[Tensor, "b h l k"],
    value: Float[Tensor, "b h l k"],
    attention_mask: Bool[Tensor, "b 1 q l"] | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Float[Tensor, "b q h k"], None]:
    """Attention of OUR_ATTENTION as transformers calls it; torch's where nothing is dropped, or not on a CPU."""
    if not (dropout and cpu.trains_here(query)):
        others |= {"dropout": dropout, "scaling": scaling}
        return sdpa_attention_forward(module, query, key, value, attention_mask, **others)
    mask = None if attention_mask is None else attention_mask[:, 0, 0]
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    query, key, value = (part.transpose(1, 2) for part in (query, key, value))
    return attend(query, key, value, None, mask, scale=scale, dropout=dropout), None


transformers.AttentionInterface.register(ATTENTION, attention)
transformers.AttentionMaskInterface.register(ATTENTION, sdpa_mask)
