"""Arrays in, intervals and p-values out. Knows no file. No torch."""
