"""Make mteb.csv from a clone of embeddings-benchmark/results.

git clone https://github.com/embeddings-benchmark/results
git -C results checkout f4cc6c8b365a3c779dbc708d6affe0b0355b2ddf
python mteb.py
"""

import json
from pathlib import Path

import pandas as pd

TASK = "FinancialPhrasebank"
OWNERS = {"e5-{}-v2": "intfloat", "gte-{}": "thenlper"}

rows = []
for pattern, owner in OWNERS.items():
    for size in ("small", "base", "large"):
        model = pattern.format(size)
        (file,) = Path("results/results").glob(
            f"{owner}__{model}/[0-9a-f]*/{TASK}Classification.json"
        )
        (scores,) = json.loads(file.read_text())["scores"]["train"]
        for block, run in enumerate(scores["scores_per_experiment"], 1):
            score = round(100 * run["accuracy"], 4)
            rows.append({"system": model, "task": TASK, "block": block, "score": score})
pd.DataFrame(rows).to_csv("mteb.csv", index=False)
