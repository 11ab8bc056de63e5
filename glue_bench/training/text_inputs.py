"""The text that the arms of an experiment are pretrained on."""

from collections.abc import Callable
from functools import cache, cached_property

from transformers import PreTrainedTokenizerBase

from glue_bench.config import Experiment, PretrainingSettings
from glue_bench.training.corpus import Corpus, open_corpus
from glue_bench.training.packing import PackedText, pack


class TextInputs:
    """The text of an experiment's pretraining. It is read when it is first asked for, then kept.

    `packed_text(tokenizer)` returns what `pack_text` returned at its first call.
    """

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.packed_text: Callable[[PreTrainedTokenizerBase], dict[str, PackedText]] = cache(
            self.pack_text
        )

    @property
    def settings(self) -> PretrainingSettings:
        """The settings by which the experiment's arms are pretrained."""
        assert self.experiment.pretraining is not None, "the experiment has no pretraining"
        return self.experiment.pretraining

    @cached_property
    def corpus(self) -> Corpus:
        """The corpus. Only its digest has been computed."""
        return open_corpus(self.settings.corpus, self.settings.documents)

    def pack_text(self, tokenizer: PreTrainedTokenizerBase) -> dict[str, PackedText]:
        """Pack the corpus into sequences for training and validation: `train` and `validation`."""
        settings = self.settings
        return pack(
            self.corpus,
            tokenizer,
            settings.length,
            settings.validation_share,
            pairs=settings.segments == "pairs",
        )
