"""The encoder under a classifier and under a masked-LM head, with their losses and Auto classes."""

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification
from transformers.activations import ACT2FN
from transformers.modeling_outputs import MaskedLMOutput, SequenceClassifierOutput
from transformers.utils import can_return_tuple

from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.cpu import Dropout
from glue_bench.model.encoder import EncoderModel, EncoderPreTrainedModel


class EncoderForSequenceClassification(EncoderPreTrainedModel):
    """The encoder with dropout and a linear classifier over the pooled [CLS]."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.num_labels = int(config.num_labels or 1)
        self.base = EncoderModel(config)
        rate = config.classifier_dropout
        if rate is None:
            rate = config.hidden_dropout_prob
        self.dropout = Dropout(float(rate))
        self.classifier = nn.Linear(config.hidden_size, self.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Int[Tensor, "b l"],
        attention_mask: Tensor | None = None,
        token_type_ids: Int[Tensor, "b l"] | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool = False,
    ) -> SequenceClassifierOutput:
        """Return logits (b, num_labels); with labels also `classification_loss`.

        The arguments and errors are the same as in EncoderModel's forward.
        """
        # The pooler reads [CLS] alone, so the last block computes nothing else, unless all states
        # are returned.
        last_rows = None if output_hidden_states else 1
        states = self.base.hidden_states(
            input_ids, attention_mask, token_type_ids, last_rows=last_rows
        )
        logits = self.classifier(self.dropout(self.base.pooler(states[-1])))
        loss = None if labels is None else classification_loss(logits, labels)
        kept = tuple(states) if output_hidden_states else None
        return SequenceClassifierOutput(loss=loss, logits=logits, hidden_states=kept)


class EncoderForMaskedLM(EncoderPreTrainedModel):
    """The encoder with BERT's masked-LM head: dense, activation, LayerNorm, tied tokens, bias.

    The dense layer's output has the width of the token table.
    """

    _tied_weights_keys = {"decoder.weight": "base.variant.words.weight"}  # noqa: RUF012

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.base = EncoderModel(config)
        width = self.base.variant.words.embedding_dim
        self.dense = nn.Linear(config.hidden_size, width)
        self.act = ACT2FN[config.head_act or config.hidden_act]
        # The name is not `norm`: if a name exists with and without the prefix `base.`, transformers
        # confuses the two when it loads weights.
        self.head_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.decoder = nn.Linear(width, config.vocab_size)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Int[Tensor, "b l"],
        attention_mask: Tensor | None = None,
        token_type_ids: Int[Tensor, "b l"] | None = None,
        labels: Int[Tensor, "b l"] | None = None,
        places: Int[Tensor, " n"] | None = None,
        output_hidden_states: bool = False,
    ) -> MaskedLMOutput:
        """Return logits (b, l, vocabulary); with labels also the mean cross-entropy.

        Args:
            input_ids: As in EncoderModel's forward.
            attention_mask: As in EncoderModel's forward.
            token_type_ids: As in EncoderModel's forward.
            labels: The tokens before masking, and -100 where nothing was masked.
            places: Flat indices into (b, l). The head then runs at these places alone, and returns
                logits (n, vocabulary) and no loss.
            output_hidden_states: As in EncoderModel's forward.

        Returns:
            The output that models of transformers return.

        Raises:
            ValueError: as EncoderModel's forward.
        """
        states = self.base.hidden_states(input_ids, attention_mask, token_type_ids)
        hidden = states[-1]
        if places is not None:
            hidden = hidden.flatten(0, 1)[places]
        logits = self.predict(hidden)
        loss = None
        if labels is not None and places is None:
            loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
        kept = tuple(states) if output_hidden_states else None
        return MaskedLMOutput(loss=loss, logits=logits, hidden_states=kept)

    def predict(self, hidden: Float[Tensor, "*n d"]) -> Float[Tensor, "*n vocab"]:
        """Return the logits of the token that stands at each hidden state."""
        activated = self.act(self.dense(hidden))
        return self.decoder(self.head_norm(activated))


def classification_loss(logits: Float[Tensor, "b c"], labels: Tensor) -> Float[Tensor, ""]:
    """Return the mean cross-entropy; with one output (STS-B) the mean squared error."""
    if logits.shape[1] > 1:
        return F.cross_entropy(logits.float(), labels)
    scores = logits[:, 0].float()
    return F.mse_loss(scores, labels.float().view_as(scores))


AutoModel.register(EncoderConfig, EncoderModel, exist_ok=True)
AutoModelForSequenceClassification.register(
    EncoderConfig, EncoderForSequenceClassification, exist_ok=True
)
AutoModelForMaskedLM.register(EncoderConfig, EncoderForMaskedLM, exist_ok=True)
