"""`python -m glue_bench.cli`, as launchers of several processes start it."""

from glue_bench.cli import main

main()
