"""What benchmarks/gpu.py measures: contenders, sizes, tasks, and seconds for each section."""

from dataclasses import dataclass

from glue_bench.model.variants import VARIANTS

GRAPH = "ours, graphs"
EAGER = "ours, no graphs"
TRAINER = "Trainer"
TO_BATCH = "Trainer, padded to the batch"
COMPILED = "Trainer, torch_compile"
ROUNDS = 3


@dataclass(frozen=True)
class Scale:
    """How large everything is, and how many seconds a section may take."""

    device: str
    precision: str
    budgets: dict[str, float]
    variants: tuple[str, ...]
    agreement_steps: int
    pretraining: dict[str, tuple[int, int]]
    pretraining_steps: int
    finetuning: tuple[str, ...]
    tasks: dict[str, int]
    contenders: tuple[str, ...]
    sharing_size: str
    workers: tuple[int, ...]

    @property
    def rounds(self) -> int:
        return 1 if self.device == "cpu" else ROUNDS


FULL = Scale(
    device="cuda",
    precision="bf16",
    budgets={
        "agreement": 240,
        "resume": 60,
        "pretraining": 450,
        "fine-tuning": 540,
        "sharing": 180,
    },
    variants=tuple(VARIANTS),
    agreement_steps=20,
    # Rows and length of a batch.
    pretraining={
        "scratch-minilm": (64, 128),
        "scratch-base": (64, 128),
        "scratch-small": (64, 128),
        "scratch-study": (16, 64),
    },
    pretraining_steps=200,
    finetuning=("scratch-base", "scratch-minilm"),
    # Batches of 32 in the first round: 20,000 rows of MNLI, RTE and CoLA whole, and a part of SST-2.
    tasks={"mnli": 625, "rte": 77, "cola": 267, "sst2": 400},
    contenders=(GRAPH, TRAINER, COMPILED, EAGER, TO_BATCH),
    sharing_size="scratch-minilm",
    workers=(1, 2, 4, 8),
)
TINY = Scale(
    device="cpu",
    precision="float32",
    budgets=dict.fromkeys(FULL.budgets, 600.0),
    variants=("add", "untied"),
    agreement_steps=3,
    pretraining={"scratch-tiny": (4, 32)},
    pretraining_steps=4,
    finetuning=("scratch-tiny",),
    tasks={"rte": 4},
    contenders=(GRAPH, TRAINER),
    sharing_size="scratch-tiny",
    workers=(1, 2),
)
