"""Records in, tables out: what an experiment's records say, as DataFrames. No torch."""
