"""The machine and the code that made a record. Both are recorded, and never hashed."""

import platform
import re
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path

from pydantic import Field

from glue_bench.records.base import Text, Value, Whole

PACKAGES = ("torch", "transformers", "tokenizers", "datasets", "numpy", "scikit-learn", "scipy")


class Environment(Value):
    """Where something was computed. `device` is `cpu`, or the GPU's name."""

    glue_bench: Text | None = None
    git_commit: Text | None = None
    python: Text | None = None
    packages: dict[Text, Text] = Field({})
    platform: Text | None = None
    processor: Text | None = None
    device: Text | None = None
    precision: Text | None = None
    threads: Whole | None = None


@cache
def versions() -> Environment:
    """Versions of glue-bench, Python and the packages it computes with, none of which is imported; and the git commit.

    They are those of the code that is loaded, whatever changes under it. The commit ends in `+changes` where files
    differ from it, and is None outside a checkout: also where the package is only installed within one of something
    else, which does not know its files.
    """
    ours = _git("ls-files", "--error-unmatch", "__init__.py")
    commit = ours and _git("rev-parse", "HEAD")
    if commit and _git("status", "--porcelain", "--untracked-files=no", "."):
        commit += "+changes"
    cpuinfo = Path("/proc/cpuinfo")
    return Environment(
        glue_bench=version("glue-bench"),
        git_commit=commit,
        python=platform.python_version(),
        packages={name: version(name) for name in PACKAGES},
        platform=f"{platform.system()} {platform.machine()}",
        processor=(name_processor(cpuinfo.read_text()) if cpuinfo.is_file() else "")
        or platform.processor(),
    )


def _git(*arguments: str) -> str | None:
    """What git says of the package's folder, in whatever language and encoding; None where it fails."""
    command = ["git", "-C", str(Path(__file__).parent.parent), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def name_processor(cpuinfo: str) -> str:
    """`AMD EPYC (family 26, model 2)`: the marketing name and what tells generations apart, or "" where it has none.

    Virtual machines shorten the name, so that processors that round differently would have the same one.
    """
    first = dict(re.findall(r"(?m)^(.*?)\s*: (.*)$", cpuinfo.partition("\n\n")[0]))
    name, family, model = (first.get(key, "") for key in ("model name", "cpu family", "model"))
    return f"{name} (family {family}, model {model})" if name and family and model else name
