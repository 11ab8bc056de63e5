"""How arms are pretrained."""

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    field_validator,
    model_validator,
)

from glue_bench.config.sections import SCRATCH, Section, Seed, distinct


class Pretraining(Section):
    """Masked-LM pretraining, the same for every arm. Defaults of the optimiser: TUPE's table 2.

    With `from: scratch` every arm starts from fresh weights of `scratch`; with `from: checkpoint` from its own.
    """

    corpus: Annotated[list[str], Field(min_length=1), AfterValidator(distinct)]
    start: Literal["scratch", "checkpoint"] = Field("scratch", alias="from")
    tokenizer: str | None = None
    steps: int = Field(gt=0)
    batch_tokens: int = Field(8192, gt=0)
    micro_batch_tokens: int | None = Field(None, gt=0)
    length: int = Field(128, ge=8)
    mask_probability: float = Field(0.15, gt=0, lt=1)
    learning_rate: float = Field(1e-4, gt=0)
    warmup_ratio: float = Field(0.01, ge=0, le=1)
    weight_decay: float = Field(0.01, ge=0)
    adam_epsilon: float = Field(1e-6, gt=0)
    clip_norm: float = Field(1.0, gt=0)
    seed: Seed = 1
    validation_share: float = Field(0.01, gt=0, lt=1)
    validations: int = Field(10, gt=0)
    checkpoints: Annotated[list[Annotated[int, Field(gt=0)]], AfterValidator(distinct)] = Field([])
    finetune_checkpoints: bool = False

    @field_validator("corpus", mode="before")
    @classmethod
    def _one_or_more(cls, corpus: Any) -> Any:
        return [corpus] if isinstance(corpus, str) else corpus

    @model_validator(mode="after")
    def _fits(self) -> "Pretraining":
        late = [step for step in self.checkpoints if step >= self.steps]
        if late:
            raise ValueError(f"checkpoints {late} are not before the last step, {self.steps}, which is always kept")
        for key in ("batch_tokens", "micro_batch_tokens"):
            if (getattr(self, key) or self.length) < self.length:
                raise ValueError(f"{key} {getattr(self, key)} holds no sequence of length {self.length}")
        if self.tokenizer and self.start != SCRATCH:
            raise ValueError("tokenizer is that of each arm's checkpoint; leave it out with from: checkpoint")
        return self

    @property
    def rows(self) -> int:
        """Sequences in a batch."""
        return self.batch_tokens // self.length

    @property
    def kept_steps(self) -> list[int]:
        """Steps whose checkpoints are kept, the last one included."""
        return [*sorted(self.checkpoints), self.steps]

    @property
    def finetuned_steps(self) -> list[int]:
        """Steps whose checkpoints are fine-tuned."""
        return self.kept_steps if self.finetune_checkpoints else [self.steps]
