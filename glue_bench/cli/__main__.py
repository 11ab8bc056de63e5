"""`python -m glue_bench.cli`."""

from glue_bench.cli import main

main()
