"""Inputs that are careless, damaged or hostile: what is spoiled, in which ways, and the verb that reads it."""

import copy
import hashlib
import io
import json
import os
import re
import shutil
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import tiny_runs
import yaml

EXPERIMENT = tiny_runs.experiment(
    arms=["add", {"name": "other", "variant": "untied", "options": {"segments": "scores"}}],
    seeds=[1, 2],
    finetuning={"predict": ["validation", "test"], "tasks": {"rte": {"epochs": 2}}},
    protocol={"contrasts": [["other", "add"]]},
)


@dataclass
class World:
    """The folder that examples are made in, and what they are copied from."""

    place: Path
    runs: Path
    bundle: Path
    submission: Path
    bert: Path
    own: Path
    tupe: Path
    glue: Path

    def fresh(self, kind: str = "") -> Path:
        """The place emptied, and in it a copy of one of the inputs."""
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir()
        os.chdir(self.place)
        if not kind:
            return self.place
        source, target = getattr(self, kind), self.place / getattr(self, kind).name
        return Path(shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target))


# What may be wrong with a value, a text, a file

NAMES = [
    *("\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x9b2J", "two\nlines", "back\rover", "tab\there", "nul\x00"),
    *("\u202egnp.exe", "\u2028", "\ufeff", "=1+1", "+1", "-2+3", "@x", "", " ", ".", "..", "../../up", "/etc/passwd"),
    *("-rf", "--help", "a" * 300, "ä" * 200, "[red]markup[/red]", "[/]", "%s%n", "{0}", "`x`", "**b**", "<b>", "\\"),
    *("con", "nan", "null", "1e999", "http://[", "hub:x", "scratch", "lone \ud800", "'quoted'", '"', "|", "a" * 20_000),
]
NUMBERS = [0, -1, 1, 2, 3, 7, 255, 2**31, 2**63, 2**64, 10**11, 10**24, 0.5, 5.0, -0.0, 1e308, 1e-320, 1e-9]
MARKED = {"%DEEP%": "[" * 100_000 + "]" * 100_000, "%NAN%": "NaN", "%INF%": "-Infinity", "%HUGE%": "1" * 5000}
"""Strings that stand for what `json.dumps` does not write."""
OTHERS: list[Any] = [
    *(None, True, False, [], {}, [[]], [None], {"": None}, {"a": {"a": {"a": []}}}, [1, "a", None], list(range(2000))),
    *(*MARKED, {str(i): i for i in range(500)}),
]
LAUGHS = "\n".join(["a0: &a0 [x]", *(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12))])
YAML_TEXTS = [
    *("[" * 5000 + "]" * 5000, "{a: " * 5000 + "1" + "}" * 5000, "- " * 5000, "a: &a [*a]", "&a {name: *a}", LAUGHS),
    *("!!python/object/apply:os.system ['touch owned']", "!!python/name:os.system", "!!binary aGVsbG8=", "\0", ""),
    *("? [a, b]\n: 1", "<<: {name: x}\n<<: {data: demo}", "--- a\n--- b\n", "%YAML 9.9\n---\na: 1", "a: 2024-13-45"),
    *("a: !!int 0x" + "f" * 100_000, "a: " + "9" * 100_000, "a: 010\nb: 1:30\nc: .inf", "name: {}\n" * 3),
    *("\n".join(f"k{i}: 1" for i in range(20_000)), "#" * 5_000_000, "a: '" + "x" * 3_000_000 + "'", "'\\e[31m': 1"),
]
JSON_TEXTS = [*MARKED.values(), "null", "{}", "", '{"a": ' * 1000, "[" + "[1]," * 10**7 + "0]", '{"a": 1, "a": 2}']
ODD_FILES: dict[str, Callable[[Path], Any]] = {
    "a folder": Path.mkdir,
    "a pipe": os.mkfifo,
    "a loop": lambda path: path.symlink_to(path.name),
    "no end": lambda path: path.symlink_to("/dev/zero"),
    "a link to nowhere": lambda path: path.symlink_to("nowhere"),
    "a link to a folder": lambda path: path.symlink_to(".."),
    "50 GiB": lambda path: (path.touch(), os.truncate(path, 50 * 2**30)),
    "nothing": lambda _: None,
}


def document(tree: Any, random: Random) -> Any:
    """A tree of objects and lists with one to three things changed in it."""
    tree = copy.deepcopy(tree)
    for _ in range(random.randint(1, 3)):
        places = list(_places(tree))
        holder, key = random.choice(places) if places else ([tree], 0)
        how = random.randrange(10)
        if how == 0:
            del holder[key]
        elif how < 3 and isinstance(holder, dict):
            holder[random.choice(NAMES)] = holder.pop(key) if how == 1 else _value(random)
        elif how == 3 and isinstance(holder, list):
            holder += [copy.deepcopy(holder[key])] * random.choice([1, 3, 1000])
        elif how < 7:
            holder[key] = _value(random)
        elif isinstance(holder[key], int | float):
            holder[key] += random.choice([-1, 1, holder[key]])
        elif places:  # what stands elsewhere
            other, place = random.choice(places)
            holder[key] = copy.deepcopy(other.get(place) if isinstance(other, dict) else other[place % len(other)])
    return tree


def _value(random: Random) -> Any:
    return copy.deepcopy(random.choice(random.choice([NAMES, NUMBERS, OTHERS])))


def _places(tree: Any) -> Any:
    inside = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, one in inside:
        yield tree, key
        yield from _places(one)


def content(given: bytes, random: Random) -> bytes:
    """Bytes with something changed in them."""
    at, to = sorted(random.randrange(len(given) + 1) for _ in range(2))
    junk = random.choice([b"\0", b"\xff\xfe", b"\x1b[2J", b"\n", b"\t", b'"', b"\xef\xbb\xbf", b"9" * 6000, b"{" * 50])
    turned = bytes([given[at % len(given)] ^ 1 << random.randrange(8)]) if given else b""
    parts = [given[:at], given[:at] + junk + given[at:], given[:at] + given[to:], given[:to] + given[at:], b"", junk]
    return random.choice([*parts, given[:at] + turned + given[at + 1 :], given + given, junk * 100])


def json_content(given: bytes, random: Random) -> bytes:
    """A JSON object with something changed in it; the digest of what it says may be made to fit."""
    try:
        tree = document(json.loads(given), random)
    except (ValueError, RecursionError):  # it has been spoiled before
        return content(given, random)
    return signed(tree) if isinstance(tree, dict) and random.random() < 0.8 else marked(json.dumps(tree))


def marked(text: str) -> bytes:
    """A JSON text with what MARKED stands for."""
    return re.sub(f'"?({"|".join(MARKED)})"?', lambda found: MARKED[found[1]], text).encode(errors="surrogatepass")


def signed(tree: dict[str, Any]) -> bytes:
    """The file of an object, as if the package had written it: its digest is that of the file without it."""
    rest = {key: value for key, value in tree.items() if key != "digest"}
    said = marked(json.dumps({"digest": "", **rest}, ensure_ascii=False, separators=(",", ":")) + "\n")
    at = len('{"digest":"')
    return said[:at] + hashlib.sha256(said).hexdigest().encode() + said[at:]


def table(given: bytes, random: Random) -> bytes:
    """Tab-separated rows with fields and columns changed."""
    rows = [line.split(b"\t") for line in given.splitlines()] or [[b""]]
    texts = [*(name.encode(errors="surrogatepass") for name in NAMES), b"1e400", b"nan", b"5.1", b"x" * 2_000_000]
    for _ in range(random.randint(1, 4)):
        row, text = random.choice([rows[0], random.choice(rows)]), random.choice(texts)
        at = random.randrange(len(row) + 1)
        row[at : at + random.choice([0, 1, 1, len(row)])] = random.choice([[], [text], [text, *row]])
    return b"\n".join(map(b"\t".join, rows)) + b"\n"


def spoil(path: Path, random: Random) -> None:
    """Change a file in one of all these ways."""
    if not path.is_file() or path.is_symlink() or path.stat().st_size > 2**27:  # it has been spoiled before
        return
    how = random.random()
    if how < 0.12:
        path.unlink()
        random.choice(list(ODD_FILES.values()))(path)
    elif path.suffix == ".json" and how < 0.85:
        path.write_bytes(json_content(path.read_bytes(), random))
    else:
        path.write_bytes((table if path.suffix == ".tsv" and how < 0.6 else content)(path.read_bytes(), random))


# One generator a kind of input: the words of a verb


def experiments(world: World, random: Random) -> list[object]:
    """An experiment file, checked but not run."""
    path = world.fresh() / "experiment.yaml"
    tree = document(EXPERIMENT, random)
    text = json_content(json.dumps(EXPERIMENT).encode(), random) if random.random() < 0.5 else yaml.dump(tree).encode()
    path.write_bytes(content(text, random) if random.random() < 0.2 else text)
    return ["run", path, "--dry-run", "--results", world.place / "runs"]


def data(world: World, random: Random) -> list[object]:
    """A folder in GLUE's layout, described, or checked for an experiment."""
    folder = world.fresh("glue")
    for _ in range(random.randint(1, 2)):
        spoil(random.choice(sorted(folder.glob("*/*.tsv"))), random)
    return ["data", folder] if random.random() < 0.5 else checked(world, data=str(folder), tasks=["rte", "stsb"])


def checked(world: World, **changes: Any) -> list[object]:
    """The words that check an experiment without pretraining."""
    values = tiny_runs.experiment(**{"pretraining": None, "checkpoint": "scratch", "limit": None} | changes)
    (world.place / "experiment.yaml").write_text(yaml.safe_dump(values))
    return ["run", world.place / "experiment.yaml", "--dry-run", "--results", world.place / "runs"]


READERS = {
    **{"status": [], "leaderboard": [], "statistics": ["--pairs"], "verify": []},
    **{"report": ["-o", "page.html"], "export": ["-o", "out.zip"], "submit": ["--arm", "add", "-o", "x.zip", "--fill"]},
    "card": ["--arm", "add"],
}


def results(world: World, random: Random) -> list[object]:
    """Any files of a results folder, which may come with someone's results."""
    folder = world.fresh("runs")
    for _ in range(random.randint(1, 3)):
        files = sorted(path for path in folder.rglob("*") if path.is_file() and "checkpoints" not in path.parts)
        path = random.choice(files)
        if random.random() < 0.15:
            name = random.choice([one for one in NAMES if is_name(one)])
            path.rename(path.with_name((name + path.suffix)[-200:]))
        else:
            spoil(path, random)
    verb = random.choice(list(READERS))
    return [verb, folder, *READERS[verb]]


def is_name(name: str) -> bool:
    """Whether a file may be called so."""
    return bool(name.strip(".")) and not set(name) & set("/\0\ud800") and len(name.encode()) < 200


def checkpoints(world: World, random: Random) -> list[object]:
    """A checkpoint's folder or file, to convert, to measure, or for an arm to start from."""
    folder = world.fresh(random.choice(["bert", "bert", "own", "tupe"]))
    files = sorted(path for path in folder.rglob("*") if path.is_file()) or [folder]
    for _ in range(random.randint(1, 2)):
        spoil(random.choice([*(path for path in files if path.name == "config.json"), random.choice(files)]), random)
    how = random.randrange(3)
    if how == 0:
        return ["convert", folder, world.place / "out", "--variant", random.choice(["add", "untied", "concat", "none"])]
    if how == 1:
        options = ["--only", "order", "--sequences", "8", "--figures", "none"]
        return ["analyse", folder, *options, "-o", world.place / "inside"]
    return checked(world, checkpoint=str(folder), scratch=None, arms=["add", "untied"])


def zips(world: World, random: Random) -> list[object]:
    """A bundle of results with its manifest made to fit, or a submission: entries changed, doubled, lied about."""
    kind = random.choice(["bundle", "submission"])
    path = world.fresh(kind)
    with zipfile.ZipFile(path) as archive:
        entries = {one.filename: archive.read(one) for one in archive.infolist() if one.file_size < 10**6}
    manifest = json.loads(entries.pop("manifest.json", b"{}"))
    for _ in range(random.randint(0, 3)):
        name, new = random.choice(sorted(entries)), random.choice(NAMES).replace("\ud800", "")[:60_000]
        given = entries[name] if random.random() < 0.7 else entries.pop(name)
        spoiled = json_content(given, random) if name.endswith(".json") else content(given, random)
        entries[random.choice([name, name, new, f"tiny/{new}.json"]) or "x"] = spoiled
    if kind == "bundle":
        manifest["files"] = {name: _summed(one) for name, one in entries.items()}
        manifest = document(manifest, random) if random.random() < 0.4 else manifest
        entries["manifest.json"] = signed(manifest) if isinstance(manifest, dict) else json.dumps(manifest).encode()
    written = zipped(entries)
    at, lie = written.rindex(b"PK\x01\x02"), random.choice([0, 1, 60 * 2**20, 2**32 - 1]).to_bytes(4, "little")
    place = at + random.choice([16, 20, 24, 42])  # checksum, packed size, size, where it lies
    lied = written[:place] + lie + written[place + 4 :]
    path.write_bytes(random.choice([written, written, lied, content(written, random)]))
    return ["verify", path] if kind == "bundle" else ["submit", "--check", path]


def _summed(given: bytes) -> dict[str, Any]:
    return {"bytes": len(given), "sha256": hashlib.sha256(given).hexdigest()}


def zipped(entries: dict[str, bytes]) -> bytes:
    """A zip of these entries, packed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, one in entries.items():
            archive.writestr(zipfile.ZipInfo(name), one, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def names_alone(size: int) -> bytes:
    """A zip of about so many bytes that has entries' names, and nothing else."""
    head = struct.pack("<4s4B4HL2L5H2L", b"PK\x01\x02", 20, 3, 20, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"x"
    count = size // len(head)
    return head * count + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 65535, 65535, count * len(head), 0, 0)


WORDS = """
verify NAME, status NAME, report NAME, data NAME, init NAME, run NAME, NAME, verify --NAME, leaderboard NAME RUNS
leaderboard RUNS --format NAME, leaderboard RUNS --protocol NAME, leaderboard RUNS --protocol reference=NAME
table NAME RUNS, submit --check NAME, submit RUNS --arm NAME -o x.zip, export RUNS -o NAME, status RUNS --format NAME
card RUNS --arm NAME, convert NAME c --variant add, convert BERT c --variant NAME, statistics RUNS --difference NAME
convert BERT c --variant add --option NAME=NAME, convert BERT NAME --variant add, variants --plugin NAME
analyse NAME --corpus NAME, analyse NAME -o analysis, leaderboard RUNS --diagnostic NAME
run --checkpoint NAME --dry-run, run NAME --slurm NAME, run NAME --slurm partition=NAME
"""


CALLS = [call.split() for call in WORDS.replace("\n", ", ").split(", ") if call]


def words(world: World, random: Random) -> list[object]:
    """A name on a command line, wherever a verb takes one."""
    return named(world, random.choice(CALLS), random.choice(NAMES))


def named(world: World, call: list[str], name: str) -> list[object]:
    """A call with this name in it."""
    world.fresh()
    places = {"NAME": name, "RUNS": str(world.runs), "BERT": str(world.bert)}
    return [re.sub("NAME|RUNS|BERT", lambda found: places[found[0]], word) for word in call]


GENERATORS: dict[str, Callable[[World, Random], list[object]]] = {
    each.__name__: each for each in (experiments, data, results, checkpoints, zips, words)
}
