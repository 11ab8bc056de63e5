"""Plan the cells, run those that are missing, show progress."""
