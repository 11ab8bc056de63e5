"""Where segments enter: an axis of their own, the same for every variant.

`input` adds (or concatenates) their embedding, as BERT; `scores` gives each head a scalar for each pair of
segments, as DIET; `none` drops them, as TUPE.
"""

PLACES = ("input", "scores", "none")
