"""One encoder -> measures of its inside."""
