"""Options that the fine-tuning benchmarks share."""

from pathlib import Path
from typing import Annotated

import typer

from cells import SCRATCH_SIZES

Data = Annotated[str, typer.Option(help="demo, hub, or a folder of GLUE's TSV files.")]
Task = Annotated[str, typer.Option(help="A GLUE task.")]
Checkpoint = Annotated[str, typer.Option(help=f"A folder, or random weights: {', '.join(SCRATCH_SIZES)}.")]
BatchSize = Annotated[int, typer.Option(help="Examples in a batch.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Precision = Annotated[str, typer.Option(help="auto (bf16 where the device is faster in it), fp32 or bf16.")]
Threads = Annotated[int | None, typer.Option(help="CPU threads; all unless given.")]
Json = Annotated[Path | None, typer.Option(help="Keep every measurement in this file.")]
