"""The encoder, and how embeddings combine in it."""
