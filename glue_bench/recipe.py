"""The recipe: one number for how training computes, part of every id from 2 on.

It is raised, with a line in the changelog, whenever the same settings would give other numbers than before: then the
id of every cell and of every pretraining changes. What an older recipe has stored keeps its id, and counts as done.
"""

RECIPE = 3
"""The recipe of this version.

1: all versions up to the one that introduced this number; it enters no id.
2: what a graft, a converted checkpoint or a plugin's own parameter draws at random follows from a seed. `concat`, and
   encoders that project their embeddings, keep a float32 residual stream under autocast. Batches of small tasks are
   drawn from shorter runs. Ids hash options without those that equal their default, and more of the tokenizer.
3: in bf16 on a CPU, texts are padded to multiples of 4 tokens instead of 16, so that dropout draws other numbers. In
   float32 and on GPUs it computes as recipe 2 does.
"""


def older_recipes() -> range:
    """The recipes before this version's, the newest first."""
    return range(RECIPE - 1, 0, -1)
