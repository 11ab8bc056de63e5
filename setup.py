"""The description on package indexes: README.md without the pictures and links that only work in the repository."""

import re
from pathlib import Path

from setuptools import setup

TEXT = Path(__file__).with_name("README.md").read_text(encoding="utf-8").split("\n## Read on\n")[0]
ELSEWHERE = r"\[([^]]*)\]\((?!https://)[^)]*\)"

setup(
    long_description=re.sub(ELSEWHERE, r"\1", re.sub(f"!{ELSEWHERE}\n*", "", TEXT)),
    long_description_content_type="text/markdown",
)
