"""Frames in, pages out: Markdown, CSV, JSON, HTML, LaTeX and the terminal; papers' tables beside ours. No torch."""
