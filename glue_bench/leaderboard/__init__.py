"""Records in, tables out: pure functions on DataFrames. No torch; nothing here runs or changes a cell."""
