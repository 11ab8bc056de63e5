"""What leaves the house: bundles, checks of them, cards, submissions, logs."""
