"""From a results folder to what a person reads: frames, a board, contrasts, tables. No torch."""
