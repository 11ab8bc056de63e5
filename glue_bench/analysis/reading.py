"""Text as an encoder reads it for these measures: sequences of one length, without padding."""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from transformers import PreTrainedTokenizerBase

from glue_bench.analysis.measured import LeftOut
from glue_bench.training.corpus import Corpus
from glue_bench.training.packing import PackedText
from glue_bench.training.tokenizers import encode

DEFAULT_TEXT = Path(__file__).parent / "default_text" / "news_from_nowhere.txt"
FEWEST = 8  # sequences of which an interval is still told
AT_ONCE = 500  # sentences


@dataclass(frozen=True)
class Reading:
    """`ids` int64 (sequences, length): [CLS], running text cut wherever a sequence is full, [SEP]; one segment."""

    ids: np.ndarray

    @classmethod
    def of(cls, corpus: Corpus, tokenizer: PreTrainedTokenizerBase, length: int, sequences: int) -> "Reading":
        """As many of the first `sequences` as the text has.

        Raises:
            LeftOut: the tokenizer has no [CLS] or [SEP], or the text has fewer than FEWEST sequences.
        """
        if tokenizer.cls_token_id is None or tokenizer.sep_token_id is None:
            raise LeftOut("its tokenizer has no [CLS] or no [SEP]; name another (--tokenizer NAME)")
        room = length - 2
        sentences = iter(corpus)
        some = iter(lambda: list(islice(sentences, AT_ONCE)), [])
        stream = (token for texts in some for ids in encode(tokenizer, texts) for token in ids)
        tokens = np.fromiter(islice(stream, room * sequences), dtype=np.int64)
        rows = tokens[: len(tokens) // room * room].reshape(-1, room)
        if len(rows) < FEWEST:
            raise LeftOut(
                f"the text has {len(rows)} sequences of {length} tokens, and {FEWEST} are the fewest that tell an "
                "interval; give more text (--corpus TEXT)"
            )
        ends = [np.full((len(rows), 1), each) for each in (tokenizer.cls_token_id, tokenizer.sep_token_id)]
        return cls(np.concatenate([ends[0], rows, ends[1]], axis=1))

    def packed(self, sequences: int) -> PackedText:
        """The first sequences as the measures of order read them."""
        ids = self.ids[:sequences]
        return PackedText(ids.flatten(), np.arange(len(ids) + 1) * ids.shape[1])
