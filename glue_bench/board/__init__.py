"""Numbers: a results folder as frames, the board of arms, contrasts. Knows no page."""
