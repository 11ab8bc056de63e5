"""What an experiment asks for, as plan.json says it."""

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from pydantic import AliasPath, Field

from glue_bench.config import Protocol
from glue_bench.records.identity import CellIdentity, PretrainingIdentity, digest_of, pretrained_start
from glue_bench.records.record import CellKey, Named, Shape
from glue_bench.records.value import SCHEMA_VERSION, StoredValue, Whole, Word

Key = TypeVar("Key", bound=CellKey)


class AskedCell(CellKey, Named):
    """A cell that the experiment asks for.

    `from_mnli` is the id of the MNLI cell that it starts from, `pretraining` that of the pretraining. Plans of earlier
    versions say the latter only where it is not the one that the facts of its arm name.
    """

    left_out: ClassVar = CellKey.left_out | {"recipe", "from_mnli", "pretraining"}

    recipe: Whole = 1
    from_mnli: Word | None = None
    pretraining: Word | None = None


class Hashed(StoredValue):
    """What a recipe hashes in its own way: the arm's options, and the digest of its tokenizer."""

    options: dict[str, Any] = Field({})
    tokenizer: str = ""


def pretraining_label(arm: str, seed: int, searched: Mapping[str, Any]) -> str:
    """A pretraining in words, without seed 1, which most experiments have alone; of a search, by what is `searched`."""
    if {"learning_rate", "steps"} <= searched.keys():
        return f"{arm}, rate {searched['learning_rate']:g} for {searched['steps']:,} steps"
    return arm if seed == 1 else f"{arm}, seed {seed}"


class PretrainingFacts(StoredValue):
    """A pretraining that cells start from, or, where `is_search`, a run of the search for its learning rate.

    `searches` are the ids of the runs that its rate is chosen from.
    """

    left_out: ClassVar = frozenset({"searches", "is_search"})

    pretraining_id: Word
    arm: Word
    seed: Whole
    searches: tuple[Word, ...] = ()
    is_search: bool = False
    identity: PretrainingIdentity | None = None

    @property
    def label(self) -> str:
        """It in words."""
        return pretraining_label(
            self.arm, self.seed, self.identity.settings if self.identity and self.is_search else {}
        )


class ArmFacts(StoredValue):
    """What decides the outcome of all cells of an arm, what the arm costs, and its variant in words (`summary`).

    `older` has what ids of older recipes hash. In plans of earlier versions `pretraining` is the arm's only one, or the
    one that the newest of its cells start from. Sizes and operations are those of `model.cost.budget`. Fields that have
    a default are not in the plans of all versions.
    """

    left_out: ClassVar = frozenset({"pretraining", "pretraining_identity", "summary"})

    variant: str = ""
    summary: str = ""
    origin: str = ""
    start: str = ""
    options: dict[str, Any] = Field({})
    tokenizer: str = ""
    older: dict[Whole, Hashed] = Field({})
    plugin: str | None = None
    pretraining: Word | None = None
    pretraining_identity: PretrainingIdentity | None = None
    shape: Shape | None = None
    parameters: Whole | None = None
    non_embedding_parameters: Whole | None = None
    added_over_add: Whole | None = None
    flops_per_token: Whole | None = None
    length: Whole | None = None

    def hashed(self, recipe: int) -> Hashed:
        """What ids of a recipe hash. Plans of the first recipe know no older one: theirs are the arm's own facts."""
        return self.older.get(recipe) or Hashed(options=self.options, tokenizer=self.tokenizer)


class TaskFacts(StoredValue):
    """What decides the outcome of all cells of a task, but for the learning rate."""

    data: str
    hyperparameters: dict[str, Any]


class ConfiguredArm(StoredValue):
    """An arm as the experiment file has it."""

    name: str
    checkpoint: str = ""
    revision: str | None = None
    options: dict[str, Any] = Field({})


class ScratchSizes(StoredValue):
    """The sizes of arms that start from fresh weights."""

    vocab_size: Whole
    hidden_size: Whole
    num_hidden_layers: Whole
    num_attention_heads: Whole
    intermediate_size: Whole
    max_position_embeddings: Whole


def _configured(*path: str, default: Any = None) -> Any:
    """A field that is read from the configuration in the plan, and not written a second time."""
    return Field(default, validation_alias=AliasPath("config", *path), exclude=True)


class Plan(StoredValue):
    """The cells that an experiment asks for, and what they are expected to cost.

    `config` is the experiment as its file has it, but for the places of data and text; what readers need of it stands
    in fields of its own. `training_tokens` is about how many tokens a cell of each task trains on. Plans of earlier
    versions have no `tasks` and no `training_tokens`: from them no identity can be told, and no cost.
    """

    left_out: ClassVar = frozenset({"pretrainings"})

    schema_version: Whole
    experiment: str | None = None
    data_source: str = ""
    config: dict[str, Any] = Field({})
    arms: dict[Word, ArmFacts] = Field({})
    tasks: dict[str, TaskFacts] = Field({})
    training_tokens: dict[str, Whole] = Field({})
    pretrainings: tuple[PretrainingFacts, ...] = ()
    cells: tuple[AskedCell, ...]

    protocol: Protocol = _configured("protocol", default=Protocol())
    held_out_share: float | None = _configured("finetuning", "held_out_share")
    scratch: ScratchSizes | None = _configured("scratch")
    pretrained_from: str | None = _configured("pretraining", "start")
    pretraining_seed: Whole = _configured("pretraining", "seed", default=1)  # of versions that knew only one
    batch_tokens: Whole | None = _configured("pretraining", "batch_tokens")
    configured_arms: tuple[ConfiguredArm, ...] = _configured("arms", default=())

    def configured(self, arm: str) -> ConfiguredArm:
        """The arm of this name as the experiment file has it, or one of which nothing is known."""
        return next((one for one in self.configured_arms if one.name == arm), ConfiguredArm(name=arm))

    def seeded(self, key: Key) -> Key:
        """With the seed of its pretraining: earlier versions had one for all, and wrote it in the plan alone."""
        if key.steps is None or key.pretraining_seed is not None:
            return key
        return key.model_copy(update={"pretraining_seed": self.pretraining_seed})

    def all_pretrainings(self) -> list[PretrainingFacts]:
        """Those that cells start from, and the runs of rate searches; earlier versions planned one for each arm."""
        return list(self.pretrainings) or [
            PretrainingFacts(
                pretraining_id=facts.pretraining,
                arm=name,
                seed=self.pretraining_seed,
                identity=facts.pretraining_identity,
            )
            for name, facts in self.arms.items()
            if facts.pretraining
        ]

    def identity(self, cell: AskedCell) -> CellIdentity:
        """What the id of one of the plan's cells ends in the digest of.

        Raises:
            KeyError: the plan says nothing of the cell's arm or task, as those of earlier versions.
        """
        arm, task = self.arms[cell.arm], self.tasks[cell.task]
        hashed, pretraining = arm.hashed(cell.recipe), cell.pretraining or arm.pretraining or ""
        return CellIdentity(
            variant=cell.variant,
            options=hashed.options,
            tokenizer=hashed.tokenizer,
            plugin=arm.plugin,
            recipe=cell.recipe,
            start=arm.start if cell.steps is None else pretrained_start(digest_of(pretraining), cell.steps),
            arm=cell.arm,
            task=cell.task,
            data=task.data,
            hyperparameters={"learning_rate": cell.learning_rate, **task.hyperparameters},
            seed=cell.seed,
            from_mnli=digest_of(cell.from_mnli) if cell.from_mnli else None,
        )


NO_PLAN = Plan(schema_version=SCHEMA_VERSION, cells=())
"""What is known without a plan: nothing."""
