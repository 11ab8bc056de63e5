"""Those who watch while a sweep runs: a live table, lines, a log for machines, trackers."""
