"""What run_glue does before its first training step, timed part by part: what every cell pays that is a script run.

    python benchmarks/fresh_process.py CHECKPOINT TRAIN_CSV CACHE_FOLDER NUM_LABELS MAX_LENGTH

Prints a JSON object of seconds. `benchmarks/sweep.py` starts it.
"""

import json
import sys
import time
from typing import Any


def main(checkpoint: str, train: str, cache: str, num_labels: int, max_length: int) -> dict[str, float]:
    """Seconds of imports, data, model and tokenising."""
    marks = [time.perf_counter()]

    def lap() -> float:
        marks.append(time.perf_counter())
        return round(marks[-1] - marks[-2], 3)

    import evaluate  # noqa: F401 (run_glue imports it, whether or not its metric is at hand)
    from datasets import load_dataset
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer  # noqa: F401

    imports = lap()
    dataset = load_dataset("csv", data_files={"train": train}, cache_dir=cache)["train"]
    data = lap()
    AutoModelForSequenceClassification.from_pretrained(checkpoint, num_labels=num_labels)
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    model = lap()

    def tokenise(examples: dict[str, Any]) -> Any:
        texts = [examples[name] for name in ("text_a", "text_b") if name in examples]
        return tokenizer(*texts, padding="max_length", max_length=max_length, truncation=True)

    dataset.map(tokenise, batched=True)
    return {"imports": imports, "data": data, "model": model, "tokenising": lap()}


if __name__ == "__main__":
    checkpoint, train, cache, num_labels, max_length = sys.argv[1:]
    print(json.dumps(main(checkpoint, train, cache, int(num_labels), int(max_length))))
