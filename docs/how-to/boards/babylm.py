"""Make babylm-2026.parquet from a clone of babylm-org/babylm-eval.

git clone https://github.com/babylm-org/babylm-eval
git -C babylm-eval checkout 45fe2c11dc2826f4a56b91189a1c1da20d908fdb
python babylm.py
"""

import json
from pathlib import Path

import pandas as pd

FINETUNE = Path("babylm-eval/multilingual/finetune")
WITHOUT_ALL_TASKS = "BabyLM-2026-Strict"

tables = []
for file in sorted(FINETUNE.glob("results/*/en/*/predictions.txt")):
    model = file.parts[-4].removeprefix("gpt2-baseline-")
    task = file.parts[-2]
    if model == WITHOUT_ALL_TASKS:
        continue
    gold = (FINETUNE / f"data/multilingual/en/{task}/{task}_en.valid.jsonl").read_text()
    labels = [str(json.loads(line)["label"]) for line in gold.splitlines()]
    table = pd.read_csv(file, sep="\t", dtype=str)
    # The last rows, which do not fill a batch, were not predicted.
    is_right = table["prediction"] == labels[: len(table)]
    columns = {"system": model, "task": task, "id": table["index"], "outcome": is_right.astype(int)}
    tables.append(pd.DataFrame(columns))
pd.concat(tables).to_parquet("babylm-2026.parquet", index=False)
