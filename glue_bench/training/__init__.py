"""Tokens, batches, the optimisation loop, and one cell from start to record."""
