"""Tasks of SuperGLUE whose rows are texts with a class, and PAWS, one row each.

Sources:

- metrics: Wang et al. 2019, "SuperGLUE" (https://arxiv.org/abs/1905.00537), table 1;
  metrics/super_glue/super_glue.py of https://github.com/huggingface/evaluate has the same.
- configurations, columns, label names and their order: datasets/super_glue/super_glue.py of
  https://github.com/huggingface/datasets, version 1.0.2. Its `wsc` has the spans of the archive;
  jiant takes `wsc.fixed`, whose spans are substrings of the text.
- numbers of rows: the dataset cards of `aps/super_glue` and `google-research-datasets/paws`. The
  revisions are those that other public harnesses pin.
- folders and files: the archives of https://super.gluebenchmark.com/tasks.
- texts: the word of WiC stands before both sentences, and the pronoun of WSC before the text, whose
  second text is the noun. tasks/superglue/dataset.py of P-tuning v2
  (https://github.com/THUDM/P-tuning-v2) does the same, WiC with its template for BERT.

COPA, ReCoRD and MultiRC are absent, because they score the answers to a question together. The rows
of RTE-SG are meant to be those of GLUE's RTE.
"""

from glue_bench.data.origin import HubPlace, Origin
from glue_bench.data.task import Split, Task

SUPERGLUE_REPOSITORY = "aps/super_glue"
SUPERGLUE_PINNED = "3de24cf8022e94f4ee4b9d55a6f539891524d646"
PAWS_REPOSITORY = "google-research-datasets/paws"
PAWS_PINNED = "161ece9501cf0a11f3e48bd356eaa82de46d6a09"
SPLITS = ("train", "validation", "test")
TRUTH = ("false", "true")
ENTAILMENT = ("entailment", "not_entailment")


def _splits(train: int, validation: int, test: int) -> dict[str, Split]:
    """Return the usual three splits with these numbers of rows, and their files in archives."""
    return {
        "train": Split("train.jsonl", train),
        "validation": Split("val.jsonl", validation),
        "test": Split("test.jsonl", test),
    }


def _origin(config: str, folder: str, splits: tuple[str, ...] = SPLITS, **renamed: str) -> Origin:
    """Return a configuration of the data set, and the folder of the archive.

    `renamed` are columns that have other names in the archive.
    """
    hub = HubPlace(
        SUPERGLUE_REPOSITORY, config, SUPERGLUE_PINNED, dict(zip(splits, splits, strict=True))
    )
    return Origin(hub=hub, folder=folder, renamed=renamed)


OTHERS = (
    Task(
        "BoolQ",
        "is the answer to the question yes?",
        _splits(9427, 3270, 3245),
        texts=("question", "passage"),
        labels=TRUTH,
        written=TRUTH,
        benchmark="SuperGLUE",
        origin=_origin("boolq", "BoolQ"),
    ),
    Task(
        "CB",
        "does the speaker of the premise believe the hypothesis?",
        _splits(250, 56, 250),
        texts=("premise", "hypothesis"),
        labels=("entailment", "contradiction", "neutral"),
        written=("entailment", "contradiction", "neutral"),
        metrics=("accuracy", "macro_f1"),
        benchmark="SuperGLUE",
        origin=_origin("cb", "CB"),
    ),
    Task(
        "RTE-SG",
        "does the premise entail the hypothesis? (RTE as SuperGLUE has it)",
        _splits(2490, 277, 3000),
        texts=("premise", "hypothesis"),
        labels=ENTAILMENT,
        written=ENTAILMENT,
        benchmark="SuperGLUE",
        origin=_origin("rte", "RTE"),
    ),
    Task(
        "WiC",
        "does the word mean the same in both sentences?",
        _splits(5428, 638, 1400),
        texts=("{word}: {sentence1}", "{word}: {sentence2}"),
        labels=TRUTH,
        written=TRUTH,
        benchmark="SuperGLUE",
        origin=_origin("wic", "WiC"),
    ),
    Task(
        "WSC",
        "does the pronoun of the text stand for the noun?",
        _splits(554, 104, 146),
        texts=("{span2_text}: {text}", "span1_text"),
        labels=TRUTH,
        written=TRUTH,
        benchmark="SuperGLUE",
        origin=_origin(
            "wsc", "WSC", span1_text="target.span1_text", span2_text="target.span2_text"
        ),
    ),
    Task(
        "AX-b",
        "broad diagnostic set, test only, predicted by RTE-SG models",
        {"test": Split("AX-b.jsonl", 1104)},
        labels=ENTAILMENT,
        written=ENTAILMENT,
        metrics=("matthews_correlation",),
        benchmark="SuperGLUE",
        origin=_origin("axb", "AX-b", splits=("test",)),
    ),
    Task(
        "AX-g",
        "gender diagnostic set, test only, predicted by RTE-SG models",
        {"test": Split("AX-g.jsonl", 356)},
        texts=("premise", "hypothesis"),
        labels=ENTAILMENT,
        written=ENTAILMENT,
        benchmark="SuperGLUE",
        origin=_origin("axg", "AX-g", splits=("test",)),
    ),
    Task(
        "PAWS",
        "are the two sentences, of the same words, paraphrases?",
        _splits(49401, 8000, 8000),
        labels=("0", "1"),
        written=("0", "1"),
        metrics=("accuracy", "f1"),
        benchmark="PAWS",
        origin=Origin(
            hub=HubPlace(
                PAWS_REPOSITORY,
                "labeled_final",
                PAWS_PINNED,
                dict(zip(SPLITS, SPLITS, strict=True)),
            ),
            folder="PAWS",
        ),
    ),
)
