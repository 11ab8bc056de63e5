"""What an experiment asks for."""

from pydantic import Field

from glue_bench.config import Experiment
from glue_bench.records.value import Digest, Sealed, Text, Value, Whole, Word
from glue_bench.records.values import Cell, Job, Pretraining


class Shape(Value):
    """The sizes that arms share if tables rank them together, and the blocks if they are not BERT's."""

    num_hidden_layers: Whole
    hidden_size: Whole
    num_attention_heads: Whole
    intermediate_size: Whole
    embedding_size: Whole
    vocab_size: Whole
    norm_first: bool | None = None
    gated: bool | None = None


class ArmFacts(Value):
    """What an arm is (`summary`: its variant in words) and costs, as `model.cost.budget` has it.

    Native arms, of any families, have no shape in common, and nothing beyond `add`.
    """

    summary: Text
    shape: Shape | None = None
    parameters: Whole | None = None
    non_embedding_parameters: Whole | None = None
    added_over_add: Whole | None = None
    flops_per_token: Whole | None = None
    length: Whole | None = None


class TaskFacts(Value):
    """The data of a task: where they are from, the digest of their content, and whether official rows are missing.

    Of partial data `rows` has how many examples each split has. `revision` is that of the hub, where it is known.
    `labels` is the `arrays_digest` of the file of labels, which `Store.write_plan` fills in.
    """

    source: Text
    digest: Digest
    partial: bool = False
    rows: dict[Word, Whole] = Field({})
    revision: Text | None = None
    labels: Digest | None = None


class Plan(Sealed):
    """The cells and pretrainings that an experiment asks for, and what they are expected to cost.

    `experiment` is the file without the places of data, text and plugins. `tokens` is about how many tokens a cell of
    each task trains on.
    """

    experiment: Experiment
    arms: dict[Word, ArmFacts]
    tasks: dict[Word, TaskFacts]
    tokens: dict[Word, Whole]
    pretrainings: tuple[Pretraining, ...] = ()
    cells: tuple[Cell, ...]

    @property
    def jobs(self) -> tuple[Job, ...]:
        """All of them, each after those that it waits for."""
        return (*self.pretrainings, *self.cells)
