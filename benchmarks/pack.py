"""One file for a bare GPU machine without a network: this checkout, some data, a checkpoint, and the packages it lacks.

    python benchmarks/pack.py glue-bench-gpu.tar.gz --data GLUE_FOLDER --corpus TEXT_FOLDER --checkpoint CHECKPOINT

There it takes one line, whose options are those of `gpu.py`:

    tar xzf glue-bench-gpu.tar.gz && python glue-bench-gpu/run.py --out gpu.json

The machine is taken to have the packages of PRESENT and what those require; what else glue-bench requires is downloaded
here, by pip, in the versions that are installed here. The checkpoint's weights are rounded to bf16, which halves them.
"""

import gzip
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path
from typing import Annotated

import typer
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
NAME = "glue-bench-gpu"
PRESENT = (
    "torch",
    "transformers",
    "accelerate",
    "tokenizers",
    "pandas",
    "scikit-learn",
    "scipy",
    "pyarrow",
    "typer",
    "rich",
    "einops",
    "jaxtyping",
    "wrapt",
)
# There, whatever newer versions of PRESENT require here. typing-extensions is there, but pydantic wants a newer one.
LACKED = ("pydantic", "datasets", "evaluate", "platformdirs", "typing-extensions")
MOST_BYTES = 55 * 2**20
LEFT_OUT = ("results/", "tests/")  # of the checkout
# Lines of a file of the data: the tasks that are timed whole, as far as they are trained on, of the others a sample.
LINES = {"RTE": None, "CoLA": None, "STS-B": None, "SST-2": 13_000}
OTHER_LINES = 2_000
NOT_PACKED = ("AX",)
TEXT_BYTES = 4 * 2**20
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64")
RUN = '''"""Run what was packed: python run.py [options of gpu.py]"""

import os
import subprocess
import sys
from pathlib import Path

here = Path(__file__).resolve().parent
paths = [here / "packages", here / "source", os.environ.get("PYTHONPATH", "")]
environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, filter(None, paths)))}
given = ["--data", here / "data", "--corpus", here / "text", "--checkpoint", here / "checkpoint"]
command = [sys.executable, here / "source" / "benchmarks" / "gpu.py", *given, *sys.argv[1:]]
sys.exit(subprocess.run([str(word) for word in command], env=environment).returncode)
'''


def main(
    file: Annotated[Path, typer.Argument(help="What is written, a .tar.gz.")],
    data: Annotated[Path, typer.Option(help="A folder of GLUE's TSV files.")],
    corpus: Annotated[Path, typer.Option(help="English text: a file or folder.")],
    checkpoint: Annotated[Path, typer.Option(help="A folder with model.safetensors and its tokenizer.")],
    python: Annotated[str, typer.Option(help="The other machine's Python.")] = "3.12",
) -> None:
    """Write the file and say how large it is; exit with 1 if that is too large."""
    with tempfile.TemporaryDirectory() as aside:
        folder = Path(aside) / NAME
        folder.mkdir()
        (folder / "run.py").write_text(RUN)
        commit = put_source(folder / "source")
        put_data(data, folder / "data")
        put_text(corpus, folder / "text")
        put_checkpoint(checkpoint, folder / "checkpoint")
        names = put_packages(folder / "packages", python)
        made = {"commit": commit, "python": python, "packages": names}
        (folder / "source" / "pack.json").write_text(json.dumps(made, indent=1) + "\n")
        write(folder, file)
    size = file.stat().st_size
    print(f"{file}: {size / 2**20:.1f} MiB, with {', '.join(names)}")
    print(f"there: tar xzf {file.name} && python {NAME}/run.py --out gpu.json")
    if size > MOST_BYTES:
        print(f"that is more than {MOST_BYTES / 2**20:.0f} MiB", file=sys.stderr)
        raise typer.Exit(1)


def put_source(to: Path) -> str:
    """What git tracks, as it is in this folder; returns the commit."""
    for name in _git("ls-files").splitlines():
        if not name.startswith(LEFT_OUT) and (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, to / name)
    changes = "+changes" if _git("status", "--porcelain", "--untracked-files=no").strip() else ""
    return _git("rev-parse", "HEAD").strip() + changes


def _git(*words: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *words], check=True, capture_output=True, text=True).stdout


def put_data(source: Path, to: Path) -> None:
    """The first lines of every file of every task."""
    for path in sorted(source.glob("*/*.tsv")):
        task = path.parent.name
        if task not in NOT_PACKED:
            lines = path.read_bytes().splitlines(keepends=True)
            (to / task).mkdir(parents=True, exist_ok=True)
            (to / task / path.name).write_bytes(b"".join(lines[: LINES.get(task, OTHER_LINES)]))
    if not to.exists():
        raise typer.BadParameter(f"no TASK/*.tsv in {source}", param_hint="--data")


def put_text(source: Path, to: Path) -> None:
    """TEXT_BYTES of text, file by file; the last one ends at a line."""
    to.mkdir()
    left = TEXT_BYTES
    for path in sorted(p for p in (source.rglob("*") if source.is_dir() else [source]) if p.is_file()):
        text = path.read_bytes()[:left]
        text = text[: text.rfind(b"\n") + 1]
        if text:
            (to / f"{len(list(to.iterdir()))}-{path.stem}.txt").write_bytes(text)
            left -= len(text)


def put_checkpoint(source: Path, to: Path) -> None:
    """Configuration, tokenizer, and weights in bf16. `gpu.py` reads them as float32, for both sides."""
    from safetensors.torch import load_file, save_file

    to.mkdir()
    for path in source.iterdir():
        if path.suffix in (".json", ".txt") and path.is_file():
            shutil.copyfile(path, to / path.name)
    weights = load_file(source / "model.safetensors")
    lower = {name: tensor.bfloat16() if tensor.is_floating_point() else tensor for name, tensor in weights.items()}
    save_file(lower, to / "model.safetensors", {"format": "pt"})


def put_packages(to: Path, python: str) -> list[str]:
    """Unpack the wheels that are missing there, and glue-bench's own metadata; returns their names and versions."""
    to.mkdir()
    pinned = [f"{name}=={distribution(name).version}" for name in missing(python)]
    with tempfile.TemporaryDirectory() as aside:
        subprocess.run([*_pip(python), "--dest", aside, *pinned], check=True)
        for wheel in Path(aside).glob("*.whl"):
            unpack(wheel, to)
    own = distribution("glue-bench")
    metadata = to / f"glue_bench-{own.version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(own.read_text("METADATA") or "")
    return pinned


def _pip(python: str) -> list[str]:
    digits = python.replace(".", "")
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    words += ["--python-version", python, "--implementation", "cp"]
    words += [word for abi in (f"cp{digits}", "abi3", "none") for word in ("--abi", abi)]
    return words + [word for platform in PLATFORMS for word in ("--platform", platform)]


def missing(python: str) -> list[str]:
    """What glue-bench requires, directly or not, and neither PRESENT is nor requires."""
    there = closure(PRESENT, python, set(LACKED))
    return sorted(closure(["glue-bench"], python, there) - {"glue-bench"})


def closure(names: Iterable[str], python: str, without: set[str]) -> set[str]:
    """Names and all that they require on that machine, as their metadata here says, but for `without`.

    What an extra of one of those requires is not left out.
    """
    found: set[str] = set()
    wanted = [Requirement(name) for name in names]
    asked: set[tuple[str, str]] = set()
    while wanted:
        requirement = wanted.pop()
        name = canonicalize_name(requirement.name)
        kept = name not in without
        found |= {name} if kept else set()
        for extra in (*([""] if kept else []), *requirement.extras):
            if (name, extra) not in asked:
                asked.add((name, extra))
                wanted += _required(name, extra, python)
    return found


def _required(name: str, extra: str, python: str) -> list[Requirement]:
    there = {
        "extra": extra,
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    stated = [Requirement(text) for text in distribution(name).requires or []]
    return [each for each in stated if each.marker is None or each.marker.evaluate(there)]


def unpack(wheel: Path, to: Path) -> None:
    """A wheel's modules; what it would put elsewhere (`NAME.data/scripts`) is left out."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            first, _, rest = member.filename.partition("/")
            if first.endswith(".data"):
                kind, _, rest = rest.partition("/")
                if kind not in ("purelib", "platlib"):
                    continue
                member.filename = rest
            archive.extract(member, to)


def write(folder: Path, file: Path) -> None:
    """The same content gives the same bytes."""
    with (
        file.open("wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            content = path.read_bytes()
            member = tarfile.TarInfo(str(path.relative_to(folder.parent)))
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))


if __name__ == "__main__":
    typer.run(main)
