"""Who looks on while a sweep runs: a live table, lines, a log for machines, trackers."""
