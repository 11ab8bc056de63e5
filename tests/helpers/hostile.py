"""Inputs that are careless, damaged or hostile: odd texts and files, and changes of good ones.

Every change is drawn from a `Random`, so that an input can be made again from its seed.
"""

import contextlib
import copy
import hashlib
import io
import json
import os
import re
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import yaml

NAMES = [
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\x9b2J",
    "two\nlines",
    "back\rover",
    "tab\there",
    "nul\x00",
    "\u202egnp.exe",
    "\u2028",
    "\ufeff",
    "=1+1",
    "+1",
    "-2+3",
    "@x",
    "",
    " ",
    ".",
    "..",
    "../../up",
    "/etc/passwd",
    "-rf",
    "--help",
    "a" * 300,
    "ä" * 200,
    "[red]markup[/red]",
    "[/]",
    "%s%n",
    "{0}",
    "`x`",
    "**b**",
    "<b>",
    "\\",
    "con",
    "nan",
    "null",
    "1e999",
    "http://[",
    "hub:x",
    "scratch",
    "lone \ud800",
    "'quoted'",
    '"',
    "|",
    "a" * 20_000,
]
NUMBERS = [
    0,
    -1,
    1,
    2,
    3,
    7,
    255,
    2**31,
    2**63,
    2**64,
    10**11,
    10**24,
    0.5,
    5.0,
    -0.0,
    1e308,
    1e-320,
    1e-9,
]
PLACEHOLDERS = {
    "%DEEP%": "[" * 100_000 + "]" * 100_000,
    "%NAN%": "NaN",
    "%INF%": "-Infinity",
    "%HUGE%": "1" * 5000,
}
"""Strings that stand for what `json.dumps` does not write."""
ODD_VALUES: list[Any] = [
    None,
    True,
    False,
    [],
    {},
    [[]],
    [None],
    {"": None},
    {"a": {"a": {"a": []}}},
    [1, "a", None],
    list(range(2000)),
    *PLACEHOLDERS,
    {str(number): number for number in range(500)},
]


def laughs() -> str:
    """Return a YAML document whose last of twelve lists has 9 ** 11 items."""
    lines = ["a0: &a0 [x]"]
    for level in range(1, 12):
        items = ",".join([f"*a{level - 1}"] * 9)
        lines.append(f"a{level}: &a{level} [{items}]")
    return "\n".join(lines)


YAML_TEXTS = [
    "[" * 5000 + "]" * 5000,
    "{a: " * 5000 + "1" + "}" * 5000,
    "- " * 5000,
    "a: &a [*a]",
    "&a {name: *a}",
    laughs(),
    "!!python/object/apply:os.system ['touch owned']",
    "!!python/name:os.system",
    "!!binary aGVsbG8=",
    "\0",
    "",
    "? [a, b]\n: 1",
    "<<: {name: x}\n<<: {data: demo}",
    "--- a\n--- b\n",
    "%YAML 9.9\n---\na: 1",
    "a: 2024-13-45",
    "a: !!int 0x" + "f" * 100_000,
    "a: " + "9" * 100_000,
    "a: 010\nb: 1:30\nc: .inf",
    "name: {}\n" * 3,
    "\n".join(f"k{number}: 1" for number in range(20_000)),
    "#" * 5_000_000,
    "a: '" + "x" * 3_000_000 + "'",
    "'\\e[31m': 1",
]
JSON_TEXTS = [
    *PLACEHOLDERS.values(),
    "null",
    "{}",
    "",
    '{"a": ' * 1000,
    "[" + "[1]," * 10**7 + "0]",
    '{"a": 1, "a": 2}',
]


def make_large(path: Path) -> None:
    """Make a file of 50 GiB that takes no room."""
    path.touch()
    os.truncate(path, 50 * 2**30)


ODD_FILES: dict[str, Callable[[Path], object]] = {
    "a folder": Path.mkdir,
    "a pipe": os.mkfifo,
    "a loop": lambda path: path.symlink_to(path.name),
    "no end": lambda path: path.symlink_to("/dev/zero"),
    "a link to nowhere": lambda path: path.symlink_to("nowhere"),
    "a link to a folder": lambda path: path.symlink_to(".."),
    "50 GiB": make_large,
    "nothing": lambda _: None,
}


# Changes of a tree of objects and lists

Place = tuple[Any, Any]
"""An object or a list, and a key or an index of it."""


def places_of(tree: Any) -> Iterator[Place]:
    """Go through every place of a tree, from the top down."""
    if isinstance(tree, dict):
        items = list(tree.items())
    elif isinstance(tree, list):
        items = list(enumerate(tree))
    else:
        return
    for key, value in items:
        yield tree, key
        yield from places_of(value)


def odd_value(random: Random) -> Any:
    """Draw a name, a number or a value of another type."""
    values = random.choice([NAMES, NUMBERS, ODD_VALUES])
    return copy.deepcopy(random.choice(values))


def put_odd_value(place: Place, _: Any, random: Random) -> None:
    holder, key = place
    holder[key] = odd_value(random)


def delete_value(place: Place, *_: Any) -> None:
    holder, key = place
    del holder[key]


def rename_key(place: Place, value: Any, random: Random) -> None:
    holder, key = place
    if isinstance(holder, dict):
        holder[random.choice(NAMES)] = holder.pop(key)
    else:
        put_odd_value(place, value, random)


def add_key(place: Place, value: Any, random: Random) -> None:
    holder, _ = place
    if isinstance(holder, dict):
        holder[random.choice(NAMES)] = odd_value(random)
    else:
        put_odd_value(place, value, random)


def repeat_item(place: Place, value: Any, random: Random) -> None:
    holder, key = place
    if isinstance(holder, list):
        holder += [copy.deepcopy(holder[key])] * random.choice([1, 3, 1000])
    else:
        put_odd_value(place, value, random)


def change_number(place: Place, value: Any, random: Random) -> None:
    holder, key = place
    if isinstance(holder[key], int | float):
        holder[key] += random.choice([-1, 1, holder[key]])
    else:
        put_odd_value(place, value, random)


def copy_value(place: Place, value: Any, _: Random) -> None:
    holder, key = place
    holder[key] = copy.deepcopy(value)


TREE_CHANGES: list[Callable[[Place, Any, Random], None]] = [
    delete_value,
    rename_key,
    add_key,
    repeat_item,
    change_number,
    copy_value,
    put_odd_value,
    put_odd_value,
]
"""Changes of the value at a place. They are given a value from another place of the tree, too."""


def change_tree(tree: Any, random: Random) -> Any:
    """Return a copy of a tree of objects and lists in which one to three values are changed."""
    changed = [copy.deepcopy(tree)]
    for _ in range(random.randint(1, 3)):
        places = list(places_of(changed[0])) or [(changed, 0)]
        place = random.choice(places)
        holder, key = random.choice(places)
        change = random.choice(TREE_CHANGES)
        change(place, holder[key], random)
        if not changed:  # the tree was a single value, which is deleted
            changed = [None]
    return changed[0]


def fill_placeholders(text: str) -> bytes:
    """Return a JSON text in which PLACEHOLDERS are replaced by what they stand for."""
    pattern = f'"?({"|".join(PLACEHOLDERS)})"?'
    filled = re.sub(pattern, lambda match: PLACEHOLDERS[match[1]], text)
    return filled.encode(errors="surrogatepass")


def signed(tree: dict[str, Any]) -> bytes:
    """Return the file of an object as the package writes it: its digest is that of the file
    without the digest.
    """
    values = {key: value for key, value in tree.items() if key != "digest"}
    text = json.dumps({"digest": "", **values}, ensure_ascii=False, separators=(",", ":"))
    content = fill_placeholders(text + "\n")
    start = len('{"digest":"')
    return content[:start] + hashlib.sha256(content).hexdigest().encode() + content[start:]


# Changes of rows and bytes

ODD_CELLS = [
    *(name.encode(errors="surrogatepass") for name in NAMES),
    b"1e400",
    b"nan",
    b"5.1",
    b"x" * 2_000_000,
]
JUNK = [
    b"\0",
    b"\xff\xfe",
    b"\x1b[2J",
    b"\n",
    b"\t",
    b'"',
    b"\xef\xbb\xbf",
    b"9" * 6000,
    b"{" * 50,
]


def change_rows(content: bytes, random: Random) -> bytes:
    """Return a TSV file with one to four cells replaced, added or removed, often in its first
    row.
    """
    rows = [line.split(b"\t") for line in content.splitlines()] or [[b""]]
    for _ in range(random.randint(1, 4)):
        row = random.choice([rows[0], random.choice(rows)])
        text = random.choice(ODD_CELLS)
        start = random.randrange(len(row) + 1)
        stop = start + random.choice([0, 1, 1, len(row)])
        row[start:stop] = random.choice([[], [text], [text, *row]])
    return b"\n".join(map(b"\t".join, rows)) + b"\n"


def flip_bit(content: bytes, start: int, random: Random) -> bytes:
    """Return a file with one bit of the byte at `start` turned around."""
    if not content:
        return content
    changed = bytearray(content)
    changed[start % len(content)] ^= 1 << random.randrange(8)
    return bytes(changed)


def change_bytes(content: bytes, random: Random) -> bytes:
    """Return a file that is cut, repeated, emptied, or has something else in it."""
    start, stop = sorted(random.randrange(len(content) + 1) for _ in range(2))
    junk = random.choice(JUNK)
    changed = {
        "cut off": content[:start],
        "inserted": content[:start] + junk + content[start:],
        "cut out": content[:start] + content[stop:],
        "repeated": content[:stop] + content[start:],
        "emptied": b"",
        "replaced": junk,
        "flipped": flip_bit(content, start, random),
        "doubled": content + content,
        "replaced by much": junk * 100,
    }
    return random.choice(list(changed.values()))


def change_document(content: bytes, suffix: str, random: Random) -> bytes:
    """Return a JSON or YAML document with values changed, its digest mostly as if the package had
    written it.

    Raises ValueError or RecursionError if it can no longer be read, because it has been changed
    before.
    """
    tree = change_tree(json.loads(content), random)
    if suffix == ".json" and isinstance(tree, dict) and random.random() < 0.8:
        return signed(tree)
    return random.choice([fill_placeholders(json.dumps(tree)), yaml.dump(tree).encode()])


def change_content(content: bytes, suffix: str, random: Random) -> bytes:
    """Return a file of a kind with something changed: its values, its rows, or any of its bytes."""
    is_changed_as_its_kind = random.random() < 0.8
    if suffix in (".json", ".yaml") and is_changed_as_its_kind:
        with contextlib.suppress(ValueError, RecursionError):
            return change_document(content, suffix, random)
    if suffix == ".tsv" and is_changed_as_its_kind:
        return change_rows(content, random)
    return change_bytes(content, random)


def spoil(path: Path, random: Random) -> None:
    """Change a file, or put something else in its place, or give it another name."""
    draw = random.random()
    is_spoiled_already = not path.is_file() or path.is_symlink() or path.stat().st_size > 2**27
    if is_spoiled_already:
        return
    if path.suffix == ".zip":
        path.write_bytes(change_zip(path, random))
    elif draw < 0.1:
        path.unlink()
        make_odd_file = random.choice(list(ODD_FILES.values()))
        make_odd_file(path)
    elif draw < 0.2:
        name = (random.choice(NAMES) + path.suffix)[-200:]
        with contextlib.suppress(OSError, ValueError):  # no file can be called so
            path.rename(path.with_name(name))
    else:
        path.write_bytes(change_content(path.read_bytes(), path.suffix, random))


# Archives


def zipped(entries: dict[str, bytes]) -> bytes:
    """Return a compressed zip of these entries."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in entries.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def change_entries(entries: dict[str, bytes], random: Random) -> None:
    """Change up to three entries of an archive; some get another name, beside the old entry or
    in its place.
    """
    for _ in range(random.randint(0, 3)):
        name = random.choice(sorted(entries))
        new_name = random.choice(NAMES).replace("\ud800", "")[:60_000]
        content = entries[name]
        if random.random() < 0.3:
            del entries[name]
        target = random.choice([name, name, new_name, f"tiny/{new_name}.json"]) or "x"
        entries[target] = change_content(content, Path(name).suffix, random)


def manifest_of(entries: dict[str, bytes], manifest: dict[str, Any], random: Random) -> bytes:
    """Return a manifest that fits the entries; four in ten are changed."""
    files: dict[str, dict[str, Any]] = {}
    for name, content in entries.items():
        files[name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    fitting: Any = manifest | {"files": files}
    if random.random() < 0.4:
        fitting = change_tree(fitting, random)
    return signed(fitting) if isinstance(fitting, dict) else json.dumps(fitting).encode()


def lie_about_entry(archive: bytes, random: Random) -> bytes:
    """Return a zip that has a wrong checksum, packed size, size or place of its last entry."""
    entry = archive.rindex(b"PK\x01\x02")
    start = entry + random.choice([16, 20, 24, 42])
    number = random.choice([0, 1, 60 * 2**20, 2**32 - 1])
    return archive[:start] + number.to_bytes(4, "little") + archive[start + 4 :]


def change_zip(path: Path, random: Random) -> bytes:
    """Return a bundle or a submission with entries changed, or a lie about one of them."""
    entries: dict[str, bytes] = {}
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if entry.file_size < 10**6:
                entries[entry.filename] = archive.read(entry)
    manifest = json.loads(entries.pop("manifest.json", b"{}"))
    change_entries(entries, random)
    if manifest:
        entries["manifest.json"] = manifest_of(entries, manifest, random)
    content = zipped(entries)
    lie = lie_about_entry(content, random)
    return random.choice([content, content, lie, change_bytes(content, random)])


def names_alone(size: int) -> bytes:
    """Return a zip of about `size` bytes that has the names of entries, and nothing else."""
    head = b"PK\x01\x02\x14\x03\x14" + bytes(21) + b"\x01" + bytes(17) + b"x"
    count = size // len(head)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 65535, 65535, count * len(head), 0, 0)
    return head * count + end
