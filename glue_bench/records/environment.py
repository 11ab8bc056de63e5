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
    """The machine and the code that computed something.

    `device` is `cpu`, or the GPU's name. `graphs` says whether training steps were launched as CUDA
    graphs. Records that are older than this field have none, and no graphs were used there.
    """

    glue_bench: Text | None = None
    git_commit: Text | None = None
    python: Text | None = None
    packages: dict[Text, Text] = Field({})
    platform: Text | None = None
    processor: Text | None = None
    device: Text | None = None
    precision: Text | None = None
    threads: Whole | None = None
    graphs: bool | None = None


@cache
def versions() -> Environment:
    """Return the versions of glue-bench, Python and the packages in use, and the git commit.

    No package is imported for it. They are the versions of the loaded code, whatever changes on
    disk. The commit ends in `+changes` if files differ from it. It is None outside a checkout of
    glue-bench, and also if the package is installed inside a checkout of another project.
    """
    is_checkout = _git("ls-files", "--error-unmatch", "__init__.py")
    commit = _git("rev-parse", "HEAD") if is_checkout else None
    if commit and _git("status", "--porcelain", "--untracked-files=no", "."):
        commit += "+changes"
    cpuinfo = Path("/proc/cpuinfo")
    processor = name_processor(cpuinfo.read_text()) if cpuinfo.is_file() else ""
    return Environment(
        glue_bench=version("glue-bench"),
        git_commit=commit,
        python=platform.python_version(),
        packages={name: version(name) for name in PACKAGES},
        platform=f"{platform.system()} {platform.machine()}",
        processor=processor or platform.processor(),
    )


def _git(*arguments: str) -> str | None:
    """Return the answer of git about the package's folder; None if git fails."""
    command = ["git", "-C", str(Path(__file__).parent.parent), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def name_processor(cpuinfo: str) -> str:
    """Return the first processor's name with its generation: `AMD EPYC (family 26, model 2)`.

    Virtual machines shorten the name, so that processors that round differently would have the same
    name without the generation. The result is empty if `cpuinfo`, the text of /proc/cpuinfo, has no
    name.
    """
    first = cpuinfo.partition("\n\n")[0]
    facts = dict(re.findall(r"(?m)^(.*?)\s*: (.*)$", first))
    name = facts.get("model name", "")
    family = facts.get("cpu family", "")
    model = facts.get("model", "")
    return f"{name} (family {family}, model {model})" if name and family and model else name
