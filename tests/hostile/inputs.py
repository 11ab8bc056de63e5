"""The generators: each spoils one kind of file, and says which verb is called on it and where that may write."""

import copy
import io
import json
import shutil
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import spoil
import yaml
from worlds import EXPERIMENT, World

Call = tuple[list[object], list[Path]]
"""The words of a verb, and where it may write."""
RAW_YAML = [
    "[" * 5000 + "]" * 5000,
    "{a: " * 5000 + "1" + "}" * 5000,
    "- " * 5000,
    "a: &a [*a]",
    "&a {name: *a}",
    "\n".join(
        ["a0: &a0 [x,x,x,x,x,x,x,x,x]", *(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12))]
    ),
    "!!python/object/apply:os.system ['touch owned']",
    "!!python/name:os.system",
    "!!binary aGVsbG8=",
    "? [a, b]\n: 1",
    "<<: {name: x}\n<<: {data: demo}",
    "--- a\n--- b\n",
    "%YAML 9.9\n---\na: 1",
    "a: 2024-13-45",
    "\0",
    "a: !!int 0x" + "f" * 100_000,
    "a: " + "9" * 100_000,
    "a: 1_000",
    "a: 010\nb: 1:30\nc: 0b1\nd: 0o17\ne: .inf\nf: yes\ng: 1e3",
    "\n".join(f"k{i}: 1" for i in range(20_000)),
    "name: {}\n" * 3,
    "#" * 5_000_000,
    "a: '" + "x" * 3_000_000 + "'",
]
PLACES = ("records", "failures", "pretraining", "intrinsic", "claims", "progress")
READERS = (
    *("report", "verify", "leaderboard", "status", "statistics", "export"),
    *("power", "table", "submit", "explain", "diagnostics"),
)


def experiments(world: World, random: Random) -> Call:
    """An experiment file, checked but not run."""
    world.fresh("glue")
    path, runs = world.place / "experiment.yaml", world.place / "runs"
    how = random.randrange(6)
    if how == 0:
        text = random.choice(RAW_YAML)
    else:
        spoiled = spoil.document if how in (1, 2) else spoil.number
        tree = spoiled(EXPERIMENT, random) if how < 5 else copy.deepcopy(EXPERIMENT)
        text = spoil.json_text(tree) if how < 3 else yaml.dump(tree, allow_unicode=how == 4)
    content = text.encode(errors="surrogatepass")
    path.write_bytes(spoil.content(content, random) if how == 5 else content)
    odd = random.choice([["--data", world.place / "glue"], ["--only", random.choice(spoil.NAMES[:4])], ["--data", ""]])
    more: list[object] = odd if random.random() < 0.2 else []
    return ["run", path, "--dry-run", "--results", runs, *_sayable(more)], []


def data(world: World, random: Random) -> Call:
    """A folder in GLUE's layout, described or checked for an experiment."""
    folder = world.fresh("glue")
    for _ in range(random.randint(1, 3)):
        path = random.choice(sorted(filter(spoil.is_plain, folder.glob("*/*.tsv"))))
        if random.random() < 0.2:
            spoil.file(path, random)
        else:
            path.write_bytes(
                _table(path.read_bytes(), random) if random.random() < 0.5 else spoil.content(path.read_bytes(), random)
            )
    if random.random() < 0.6:
        return ["data", folder], []
    tree = copy.deepcopy(EXPERIMENT) | {"data": str(folder), "tasks": random.sample(["rte", "cola", "mnli", "qqp"], 2)}
    if random.random() < 0.5:
        tree = {key: value for key, value in tree.items() if key != "pretraining"} | {"checkpoint": "scratch"}
    (world.place / "experiment.yaml").write_text(yaml.safe_dump(tree))
    return ["run", world.place / "experiment.yaml", "--dry-run", "--results", world.place / "runs"], []


def _table(content: bytes, random: Random) -> bytes:
    """Rows with fields and columns changed."""
    rows = [line.split(b"\t") for line in content.splitlines()]
    names = [name.encode(errors="surrogatepass") for name in spoil.NAMES]
    for _ in range(random.randint(1, 4)):
        row = random.choice([rows[0], random.choice(rows)])
        place = random.randrange(len(row) + 1)
        how = random.randrange(5)
        if how == 0 and row:
            row[place:] = row[place + 1 :]
        elif how == 1:
            row.insert(place, random.choice([*names, *row]))
        elif how == 2 and place < len(row):
            row[place] = random.choice([*names, *row, b"1e400", b"nan", b"5.1", b"-0", b"x" * 2_000_000])
        elif how == 3:
            rows.insert(0, list(rows[0]))
        else:
            row *= 2
    return b"\n".join(map(b"\t".join, rows)) + b"\n"


def results(world: World, random: Random) -> Call:
    """The JSON of an experiment's folder, as it may come with someone's results."""
    folder = world.fresh("runs")
    for kind in random.sample(["plan.json", *PLACES], random.choice([0, 0, 0, 1, 2])):
        shutil.rmtree(folder / kind) if (folder / kind).is_dir() else (folder / kind).unlink(missing_ok=True)
    for _ in range(random.randint(1, 2)):
        paths = [folder / "plan.json", *(path for kind in PLACES for path in (folder / kind).glob("*.json"))]
        path = random.choice(paths)
        if random.random() < 0.3:
            _misplace(folder, random)
        elif spoil.is_plain(path):
            path.write_bytes(_json(path.read_bytes(), random))
    return _reader(world, folder, random)


def _misplace(folder: Path, random: Random) -> None:
    """A file that is none, or where none belongs."""
    files = list(filter(spoil.is_plain, folder.rglob("*")))
    path = random.choice(files)
    if random.random() < 0.6:
        spoil.file(path, random)
    elif random.random() < 0.5:
        path.write_bytes(spoil.content(path.read_bytes(), random))
    else:
        name = random.choice([one for one in spoil.NAMES if _names_a_file(one)])
        path.rename(path.with_name((name + path.suffix)[-200:]))


def _names_a_file(name: str) -> bool:
    return bool(name.strip(".")) and not set(name) & set("/\0\ud800") and len(name.encode()) < 200


def _json(content: bytes, random: Random) -> bytes:
    """An object with something changed in it; a record's digest may be made to fit."""
    if random.random() < 0.25:
        return random.choice(
            [spoil.content(content, random), *(text.encode() for text in spoil.MARKED.values()), b"{}", b"null"]
        )
    try:
        tree = spoil.document(json.loads(content), random)
    except (ValueError, RecursionError):  # it has been spoiled before
        return spoil.content(content, random)
    if isinstance(tree, dict) and "digest" in tree and random.random() < 0.7:
        signed(tree)
    return spoil.json_text(tree).encode()


def signed(tree: dict[str, Any]) -> None:
    """As if this package had written it."""
    from glue_bench.records.disk import record_digest

    try:
        tree["digest"] = record_digest(json.loads(spoil.json_text(tree)))
    except (ValueError, RecursionError):  # no digest can be made of it
        return


def _reader(world: World, folder: Path, random: Random) -> Call:
    verb, out = random.choice(READERS), world.place / "out.zip"
    if verb == "report":
        return [verb, folder, "-o", world.place / "report.html"], [world.place]
    if verb == "export":
        return [verb, folder, "-o", out], [world.place]
    if verb == "power":
        return [verb, folder, "--difference", "1"], []
    if verb == "table":
        return [verb, "tupe", folder], []
    if verb == "submit":
        return [verb, folder, "--arm", "add", "-o", out, "--fill"], [world.place]
    if verb == "explain":
        return [verb, random.choice(["add-rte", "other", "x"]), folder], []
    if verb == "diagnostics":
        return [verb, folder, "--labels", world.glue], []
    more = {"leaderboard": ["--seeds"], "statistics": ["--pairs"]}.get(verb, [])
    formats = ["--format", random.choice(["csv", "json", "html", "latex", "markdown"])] if more else []
    return [verb, folder, *random.choice([[], more]), *random.choice([[], formats])], []


def bundles(world: World, random: Random) -> Call:
    """A bundle with entries changed, and its manifest made to fit."""
    path = world.fresh("bundle")
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(entries.pop("manifest.json"))
    for _ in range(random.randint(0, 3)):
        _change(entries, random)
    if random.random() < 0.8:
        from glue_bench.audit.bundle import summed

        manifest["files"] = {name: summed(content) for name, content in entries.items()}
    if random.random() < 0.4:
        manifest = spoil.document(manifest, random)
    if isinstance(manifest, dict) and random.random() < 0.9:
        signed(manifest)
    entries["manifest.json"] = spoil.json_text(manifest).encode()
    path.write_bytes(archived(entries, random))
    if random.random() < 0.2:
        path.write_bytes(spoil.content(path.read_bytes(), random))
    elif random.random() < 0.2:
        return _unpacked(world, entries, random)
    return ["verify", path], []


def _change(entries: dict[str, bytes], random: Random) -> None:
    name = random.choice(sorted(entries))
    how = random.randrange(6)
    if how == 0:
        del entries[name]
    elif how == 1:
        entries[random.choice(spoil.NAMES).replace("\ud800", "") or "x"] = entries.pop(name)
    elif how == 2:
        entries[
            f"small/{random.choice(['records', 'more', ''])}/{random.choice(spoil.NAMES)}.json"[:60_000].replace(
                "\ud800", ""
            )
        ] = b"{}"
    elif name.endswith(".json") and how < 5:
        entries[name] = _json(entries[name], random)
    else:
        entries[name] = spoil.content(entries[name], random)


def _unpacked(world: World, entries: dict[str, bytes], random: Random) -> Call:
    folder = world.place / "unpacked"
    for name, content in entries.items():
        if all(map(_names_a_file, name.split("/"))):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            if not (folder / name).is_dir():
                (folder / name).write_bytes(content)
    if random.random() < 0.5:
        _misplace(folder, random)
    return ["verify", folder], []


def archived(entries: dict[str, bytes], random: Random, compression: int = zipfile.ZIP_STORED) -> bytes:
    """A zip of these entries, some of them perhaps twice, as links, or with other sizes in their heads."""
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", compression, compresslevel=1) as archive:
        warnings.simplefilter("ignore", UserWarning)  # of names that come twice, which they may
        for name, content in entries.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type = compression
            if random.random() < 0.02:
                entry.external_attr = 0o120777 << 16  # a symbolic link
            archive.writestr(entry, content)
    if random.random() < 0.15:
        return _lied(buffer.getvalue(), random)
    return buffer.getvalue()


def _lied(content: bytes, random: Random) -> bytes:
    """The sizes of one entry in the central directory changed."""
    places = [at for at in range(len(content)) if content.startswith(b"PK\x01\x02", at)]
    at = random.choice(places) + random.choice([16, 20, 24, 42])  # checksum, packed size, size, where it lies
    return content[:at] + random.choice([0, 1, 60 * 2**20, 2**32 - 1]).to_bytes(4, "little") + content[at + 4 :]


def submissions(world: World, random: Random) -> Call:
    """A zip for the GLUE site, whoever made it."""
    from glue_bench.data.submission import FILES, fill_file

    world.clear()
    small = [name for name in FILES if FILES[name].rows < 10_000 or random.random() < 0.02]
    entries = {name: fill_file(FILES[name]) for name in random.sample(small, 3)}
    for _ in range(random.randint(1, 4)):
        name = random.choice(sorted(entries) or ["x"])
        how = random.randrange(5)
        if how == 0:
            entries[random.choice(spoil.NAMES).replace("\ud800", "") + random.choice(["", ".tsv", f"/{name}"])] = (
                entries.get(name, b"")
            )
        elif how == 1:
            entries[name] = bytes(random.choice([10**5, 10**6, 2**24]))
        elif how == 2:
            entries[name] = random.choice(
                [b"a" * 300_000, b"\n" * 10_000, b"index\tprediction\n" + b"0\t\x1b[2J\n" * 1000]
            )
        else:
            entries[name] = spoil.content(entries.get(name, b""), random)
    path = world.place / "submission.zip"
    path.write_bytes(archived(entries, random, random.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])))
    if random.random() < 0.2:
        path.write_bytes(spoil.content(path.read_bytes(), random))
    elif random.random() < 0.1:
        spoil.file(path, random)
    return ["submit", "--check", path], []


def checkpoints(world: World, random: Random) -> Call:
    """A checkpoint's folder or file, to convert, to measure, or for an arm to start from."""
    folder = world.fresh(random.choice(["bert", "bert", "own", "tupe"]))
    paths = [path for path in folder.rglob("*") if path.is_file()] or [folder]
    for _ in range(random.randint(1, 2)):
        path = random.choice([*(path for path in paths if path.name == "config.json"), random.choice(paths)])
        if not spoil.is_plain(path) or random.random() < 0.15:
            spoil.file(path, random)
        elif path.suffix == ".json":
            path.write_bytes(_json(path.read_bytes(), random))
        else:
            path.write_bytes(spoil.content(path.read_bytes(), random))
    out = world.place / "converted"
    how = random.randrange(3)
    if how == 0:
        return ["convert", folder, out, "--variant", random.choice(["add", "untied", "concat", "none"])], [world.place]
    if how == 1:
        return ["intrinsic", folder, "--corpus", "demo", "--length", "16", "--tokens", "64"], []
    tree = {key: value for key, value in EXPERIMENT.items() if key != "pretraining"}
    tree |= {"checkpoint": str(folder), "arms": ["add", "untied"], "tasks": ["rte"]}
    tree["protocol"] = {}
    (world.place / "experiment.yaml").write_text(yaml.safe_dump(tree))
    return ["run", world.place / "experiment.yaml", "--dry-run", "--results", world.place / "runs"], []


def names(world: World, random: Random) -> Call:
    """Names of files, folders, arms and tables, wherever a verb takes one."""
    name, folder = random.choice(spoil.NAMES), world.runs
    if _names_a_file(name) and random.random() < 0.3:
        return _reader(world, world.fresh("runs").rename(world.place / name), random)
    world.clear()
    calls: list[list[object]] = [
        ["verify", name],
        ["leaderboard", name, folder],
        ["leaderboard", folder, "--format", name],
        ["leaderboard", folder, "--protocol", name],
        ["leaderboard", folder, "--protocol", f"reference={name}"],
        ["status", name],
        ["explain", name, folder],
        ["table", name, folder],
        ["submit", "--check", name],
        ["submit", folder, "--arm", name, "-o", world.place / "x.zip"],
        ["export", folder, "-o", name],
        ["data", name],
        ["convert", name, world.place / "c", "--variant", "add"],
        ["convert", world.bert, world.place / "c", "--variant", name],
        ["convert", world.bert, world.place / "c", "--variant", "add", "--option", f"{name}={name}"],
        ["variants", "--plugin", name],
        ["intrinsic", name, "--corpus", name],
        ["analyse", name, "-o", world.place / "analysis"],
        ["report", name],
        ["init", name],
        ["run", name],
        [name],
        ["verify", f"--{name}"],
        ["power", folder, "--difference", name],
        ["diagnostics", folder, "--labels", name],
    ]
    return _sayable(random.choice(calls)), [world.place]


def _sayable(words: list[object]) -> list[object]:
    """Without what no command line can hold."""
    return [word if not isinstance(word, str) else word.replace("\0", "").replace("\ud800", "\udcff") for word in words]


GENERATORS: dict[str, Callable[[World, Random], Call]] = {
    each.__name__: each for each in (experiments, data, results, bundles, submissions, checkpoints, names)
}
