"""TABLES: published GLUE tables by name, each a CSV as printed and a row here with its conventions.

Every figure was read in its source; what is only known from a secondary transcription or read off a figure is left
out. Sizes of the miniatures and of bert-base-cased are computed from their shapes, all others are the sources' own.
"""

from typing import Any

from glue_bench.reporting.papers.published import Counterpart, Published
from glue_bench.results.protocol import AVERAGES

BASE, LARGE = 110e6, 340e6
SHARED = {"share": True}
ALL_TERMS = {"terms": ("word-word", "word-position", "position-word", "position-position")}

_TUPE = "https://arxiv.org/abs/2006.15595"
_TUPE_PROTOCOL = "median of five seeds at the best of four rates, chosen on the same dev set"
_TUPE_NOTE = (
    "The paper has no segment embedding, masked words as its only objective, and does not say whether a score is of "
    "the last epoch or the best one."
)


def _base(variant: str, **more: Any) -> Counterpart:
    return Counterpart(variant=variant, parameters=BASE, **more)


def _diet(variant: str, segments: str, **options: Any) -> Counterpart:
    return Counterpart(variant=variant, parameters=BASE, segments=segments, steps=500_000, options=options)


def _bert(parameters: float, steps: int | None = None) -> Counterpart:
    return Counterpart(variant="add", parameters=parameters, segments="input", steps=steps)


TABLES: dict[str, Published] = {
    "tupe-1": Published(
        title="TUPE, table 1: BERT-Base size, all rows pretrained alike",
        source=f"Ke, He & Liu 2021, {_TUPE}, table 1",
        file="tupe_table1.csv",
        split="dev",
        protocol=_TUPE_PROTOCOL,
        statistic="median",
        seeds=5,
        rates=4,
        batch_tokens=256 * 512,
        counterparts={
            "BERT-A": _base("add"),
            "BERT-R": _base("add-relative"),
            "TUPE-A": _base("untied", options=SHARED),
            "TUPE-R": _base("untied-relative", options=SHARED),
            "TUPE-A-mid": _base("untied", options=SHARED, share=0.3),
            "TUPE-R-mid": _base("untied-relative", options=SHARED, share=0.3),
            "TUPE-A-tie-cls": _base("untied-tie-cls", options=SHARED),
            "BERT-A-d": _base("four-term", options=ALL_TERMS),
        },
        notes=(_TUPE_NOTE, "CoLA alone supplies 0.88 of TUPE-A's 1.51 points over BERT-A."),
    ),
    "tupe-3-4": Published(
        title="TUPE, tables 3 and 4: BERT-Large and ELECTRA-Base size",
        source=f"Ke, He & Liu 2021, {_TUPE}, tables 3 and 4",
        file="tupe_tables_3_4.csv",
        split="dev",
        protocol=_TUPE_PROTOCOL,
        statistic="median",
        seeds=5,
        rates=4,
        batch_tokens=256 * 512,
        counterparts={
            "BERT-Large": Counterpart(variant="add", parameters=330e6),
            "TUPE-Large": Counterpart(variant="untied-relative", parameters=330e6, options=SHARED),
            "TUPE-Large-mid": Counterpart(variant="untied-relative", parameters=330e6, options=SHARED, share=0.3),
        },
        notes=(_TUPE_NOTE, "ELECTRA's rows have another objective, which no arm of ours has."),
    ),
    "diet-2": Published(
        title="DIET, table 2: BERT-Base size, where position and segment enter",
        source="Chen et al. 2021, https://aclanthology.org/2021.emnlp-main.236, table 2",
        file="diet_table2.csv",
        labels=("model", "position", "segment"),
        split="dev",
        protocol="median over five runs of the best checkpoint of each, at the best of four rates",
        statistic="median",
        epoch="best",
        seeds=5,
        rates=4,
        batch_tokens=4096 * 128,
        counterparts={
            "Devlin 2018, input, input": _diet("add", "input"),
            "Shaw 2018, per-head, input": _diet("shaw", "input", max_distance=16),
            "Ke 2020 (TUPE), per-head, input": _diet("untied-relative", "input", share=True),
            "DIET-REL, per-head, input": _diet("diet-rel", "input", share=False),
            "DIET-REL, per-head, per-head": _diet("diet-rel", "scores", share=False),
            "DIET-ABS d_p=128 share, per-head, per-head": _diet("diet-abs", "scores", rank=128, share=True),
        },
        notes=(
            "Theirs takes the best checkpoint of each fine-tuning run, ours the best epoch: both are optimistic.",
            "The metrics of CoLA, QQP and STS-B are taken to be Matthews, accuracy and Pearson.",
            "`add-relative` is no row of this table: it keeps positions at the input, Raffel 2020 does not.",
        ),
    ),
    "bert-1": Published(
        title="BERT, table 1: GLUE's test server",
        source="Devlin et al. 2019, https://arxiv.org/abs/1810.04805, table 1",
        file="bert_table1_test.csv",
        split="test",
        protocol="one submission, at the best of four rates, chosen on the dev set",
        rates=4,
        counterparts={
            "BERT-Base": _bert(BASE, steps=1_000_000),
            "BERT-Large": _bert(LARGE, steps=1_000_000),
        },
    ),
    "miniatures": Published(
        title="BERT miniatures: GLUE's test server",
        source="Turc et al. 2019, https://github.com/google-research/bert (README)",
        file="bert_miniatures_test.csv",
        split="test",
        protocol="one submission, at the best of four rates and five batch sizes",
        rates=4,
        convention=AVERAGES["average_official"],
        counterparts={
            "BERT-Tiny (2/128)": _bert(4.39e6),
            "BERT-Mini (4/256)": _bert(11.2e6),
            "BERT-Small (4/512)": _bert(28.8e6),
            "BERT-Medium (8/512)": _bert(41.4e6),
        },
        notes=("AX has no public labels, so that there is no score of ours.",),
    ),
    "run-glue": Published(
        title="transformers' run_glue: bert-base-cased",
        source="https://github.com/huggingface/transformers (examples/pytorch/text-classification/README.md)",
        file="run_glue_bert_base_cased_dev.csv",
        labels=("precision",),
        split="dev",
        protocol="one seed at one rate, after the last of three epochs (five on MRPC and WNLI)",
        seeds=1,
        rates=1,
        counterparts={"fp32": _bert(108e6, steps=1_000_000)},
    ),
    "nopos": Published(
        title="RoBERTa-Base without word order or positions",
        source="Sinha et al. 2021, https://arxiv.org/abs/2104.06644 (fairseq, examples/shuffled_word_order)",
        file="sinha_roberta_nopos_dev.csv",
        split="dev",
        protocol="median of five seeds at the best rate and batch size",
        statistic="median",
        seeds=5,
        counterparts={
            "roberta.base.orig": Counterpart(variant="add", parameters=125e6),
            "nopos": Counterpart(variant="none", parameters=125e6),
        },
        notes=(
            "MNLI is the matched set. The metrics are taken to be Matthews for CoLA and accuracy elsewhere, by which "
            "their recipe keeps checkpoints. PAWS is no GLUE task.",
        ),
    ),
}
