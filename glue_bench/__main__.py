"""`python -m glue_bench` is the command `glue-bench`."""

from glue_bench.cli import main

main()
