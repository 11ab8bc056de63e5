"""Inputs that are careless, damaged or hostile, and one verdict on how a verb takes them.

It ends with 0 or 2, or with 1 if it looks for faults; it says why in one line, soon, and changes nothing elsewhere.
"""

import contextlib
import copy
import hashlib
import io
import json
import os
import re
import resource
import signal
import struct
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import yaml

# What may be wrong with a value, a text, a file

NAMES = [
    *(
        "\x1b[31mred\x1b[0m",
        "\x1b]0;title\x07",
        "\x9b2J",
        "two\nlines",
        "back\rover",
        "tab\there",
        "nul\x00",
    ),
    *(
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
    ),
    *(
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
    ),
    *(
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
    ),
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
MARKED = {
    "%DEEP%": "[" * 100_000 + "]" * 100_000,
    "%NAN%": "NaN",
    "%INF%": "-Infinity",
    "%HUGE%": "1" * 5000,
}
"""Strings that stand for what `json.dumps` does not write."""
OTHERS: list[Any] = [
    *(
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
    ),
    *(*MARKED, {str(i): i for i in range(500)}),
]
LAUGHS = "\n".join(
    ["a0: &a0 [x]", *(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12))]
)
YAML_TEXTS = [
    *(
        "[" * 5000 + "]" * 5000,
        "{a: " * 5000 + "1" + "}" * 5000,
        "- " * 5000,
        "a: &a [*a]",
        "&a {name: *a}",
        LAUGHS,
    ),
    *(
        "!!python/object/apply:os.system ['touch owned']",
        "!!python/name:os.system",
        "!!binary aGVsbG8=",
        "\0",
        "",
    ),
    *(
        "? [a, b]\n: 1",
        "<<: {name: x}\n<<: {data: demo}",
        "--- a\n--- b\n",
        "%YAML 9.9\n---\na: 1",
        "a: 2024-13-45",
    ),
    *(
        "a: !!int 0x" + "f" * 100_000,
        "a: " + "9" * 100_000,
        "a: 010\nb: 1:30\nc: .inf",
        "name: {}\n" * 3,
    ),
    *(
        "\n".join(f"k{i}: 1" for i in range(20_000)),
        "#" * 5_000_000,
        "a: '" + "x" * 3_000_000 + "'",
        "'\\e[31m': 1",
    ),
]
JSON_TEXTS = [
    *MARKED.values(),
    "null",
    "{}",
    "",
    '{"a": ' * 1000,
    "[" + "[1]," * 10**7 + "0]",
    '{"a": 1, "a": 2}',
]
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

    def places(tree: Any) -> Iterator[tuple[Any, Any]]:
        for key, one in (
            tree.items()
            if isinstance(tree, dict)
            else enumerate(tree)
            if isinstance(tree, list)
            else ()
        ):
            yield tree, key
            yield from places(one)

    tree = copy.deepcopy(tree)
    for _ in range(random.randint(1, 3)):
        (holder, key), (other, place) = (
            random.choice([*places(tree)] or [([tree], 0)]) for _ in range(2)
        )
        value, how = (
            copy.deepcopy(random.choice(random.choice([NAMES, NUMBERS, OTHERS]))),
            random.randrange(8),
        )
        if how == 0:
            del holder[key]
        elif how < 3 and isinstance(holder, dict):
            holder[random.choice(NAMES)] = holder.pop(key) if how == 1 else value
        elif how == 3 and isinstance(holder, list):
            holder += [copy.deepcopy(holder[key])] * random.choice([1, 3, 1000])
        elif how == 4 and isinstance(holder[key], int | float):
            holder[key] += random.choice([-1, 1, holder[key]])
        else:
            holder[key] = copy.deepcopy(other[place]) if how == 5 else value
    return tree


def marked(text: str) -> bytes:
    """A JSON text with what MARKED stands for."""
    return re.sub(f'"?({"|".join(MARKED)})"?', lambda found: MARKED[found[1]], text).encode(
        errors="surrogatepass"
    )


def signed(tree: dict[str, Any]) -> bytes:
    """The file of an object, as if the package had written it: its digest is that of the file without it."""
    rest = {key: value for key, value in tree.items() if key != "digest"}
    said = marked(
        json.dumps({"digest": "", **rest}, ensure_ascii=False, separators=(",", ":")) + "\n"
    )
    at = len('{"digest":"')
    return said[:at] + hashlib.sha256(said).hexdigest().encode() + said[at:]


def changed(given: bytes, suffix: str, random: Random) -> bytes:
    """The content of a file with something changed: its values, its rows, or any of its bytes."""
    if suffix in (".json", ".yaml") and random.random() < 0.8:
        with contextlib.suppress(ValueError, RecursionError):  # it has been changed before
            tree = document(json.loads(given), random)
            if suffix == ".json" and isinstance(tree, dict) and random.random() < 0.8:
                return signed(tree)
            return random.choice([marked(json.dumps(tree)), yaml.dump(tree).encode()])
    if suffix == ".tsv" and random.random() < 0.8:
        rows = [line.split(b"\t") for line in given.splitlines()] or [[b""]]
        texts = [
            *(name.encode(errors="surrogatepass") for name in NAMES),
            b"1e400",
            b"nan",
            b"5.1",
            b"x" * 2_000_000,
        ]
        for _ in range(random.randint(1, 4)):
            row, text = random.choice([rows[0], random.choice(rows)]), random.choice(texts)
            at = random.randrange(len(row) + 1)
            row[at : at + random.choice([0, 1, 1, len(row)])] = random.choice(
                [[], [text], [text, *row]]
            )
        return b"\n".join(map(b"\t".join, rows)) + b"\n"
    at, to = sorted(random.randrange(len(given) + 1) for _ in range(2))
    junk = random.choice(
        [
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
    )
    turned = bytes([given[at % len(given)] ^ 1 << random.randrange(8)]) if given else b""
    parts = [
        given[:at],
        given[:at] + junk + given[at:],
        given[:at] + given[to:],
        given[:to] + given[at:],
        b"",
        junk,
    ]
    return random.choice([*parts, given[:at] + turned + given[at + 1 :], given + given, junk * 100])


def spoil(path: Path, random: Random) -> None:
    """Change a file, or put something else in its place, or give it another name."""
    how = random.random()
    if (
        not path.is_file() or path.is_symlink() or path.stat().st_size > 2**27
    ):  # it has been spoiled before
        return
    if path.suffix == ".zip":
        path.write_bytes(changed_zip(path, random))
    elif how < 0.1:
        path.unlink()
        random.choice(list(ODD_FILES.values()))(path)
    elif how < 0.2:
        with contextlib.suppress(OSError, ValueError):  # no file can be called so
            path.rename(path.with_name((random.choice(NAMES) + path.suffix)[-200:]))
    else:
        path.write_bytes(changed(path.read_bytes(), path.suffix, random))


def zipped(entries: dict[str, bytes]) -> bytes:
    """A zip of these entries, packed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, one in entries.items():
            archive.writestr(zipfile.ZipInfo(name), one, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def changed_zip(path: Path, random: Random) -> bytes:
    """A bundle, whose manifest is made to fit, or a submission, with entries changed, or a lie about one of them."""
    with zipfile.ZipFile(path) as archive:
        entries = {
            one.filename: archive.read(one) for one in archive.infolist() if one.file_size < 10**6
        }
    manifest = json.loads(entries.pop("manifest.json", b"{}"))
    for _ in range(random.randint(0, 3)):
        name, new = (
            random.choice(sorted(entries)),
            random.choice(NAMES).replace("\ud800", "")[:60_000],
        )
        given = entries[name] if random.random() < 0.7 else entries.pop(name)
        entries[random.choice([name, name, new, f"tiny/{new}.json"]) or "x"] = changed(
            given, Path(name).suffix, random
        )
    if manifest:
        sums = {
            name: {"bytes": len(one), "sha256": hashlib.sha256(one).hexdigest()}
            for name, one in entries.items()
        }
        manifest = (
            document(manifest | {"files": sums}, random)
            if random.random() < 0.4
            else manifest | {"files": sums}
        )
        entries["manifest.json"] = (
            signed(manifest) if isinstance(manifest, dict) else json.dumps(manifest).encode()
        )
    written = zipped(entries)
    at, lie = (
        written.rindex(b"PK\x01\x02"),
        random.choice([0, 1, 60 * 2**20, 2**32 - 1]).to_bytes(4, "little"),
    )
    place = at + random.choice([16, 20, 24, 42])  # checksum, packed size, size, where it lies
    lied = written[:place] + lie + written[place + 4 :]
    return random.choice([written, written, lied, changed(written, "", random)])


def names_alone(size: int) -> bytes:
    """A zip of about so many bytes that has entries' names, and nothing else."""
    head = b"PK\x01\x02\x14\x03\x14" + bytes(21) + b"\x01" + bytes(17) + b"x"
    count = size // len(head)
    return head * count + struct.pack(
        "<4s4H2LH", b"PK\x05\x06", 0, 0, 65535, 65535, count * len(head), 0, 0
    )


# The verdict

FINDING = ("verify", "submit", "export")
"""Verbs that end with 1 where they find faults."""
SAID = 1024  # bytes of a refusal, and of any line of a report
RESIDENT = 300 * 2**20  # bytes by which a verb may grow the process
ALLOCATED = (
    2 * 2**30
)  # bytes beyond which the system gives it no more, so that no input can stop the machine
SECONDS = 20  # of the processor, and on the wall without any of the processor
UNSHOWN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)
PROGRESS = re.compile(r"(?m)^(checking|reading|asking) [^\n]* \.\.\.\n")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {
    f"os.{name}"
    for name in ("remove", "rmdir", "truncate", "mkdir", "chmod", "rename", "link", "symlink")
}
_FOREIGN = {
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.system",
    "socket.connect",
    "socket.getaddrinfo",
}
_touched: list[str] | None = None


def complaints(capfd: Any, world: Path, words: Sequence[object]) -> str:
    """Call a verb in this process; what is wrong with how it took it. It may write into the folder for examples."""
    from glue_bench import cli

    global _touched
    given = [str(word).replace("\0", "").replace("\ud800", "\udcff") for word in words]
    capfd.readouterr()
    sys.stdout.reconfigure(errors="strict")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    status, crash, argv, before = None, "", sys.argv, _memory("VmRSS")
    _touched, sys.argv = [], ["glue-bench", *given]
    try:
        with _bounded():
            cli.main()
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException:
        crash = traceback.format_exc(limit=-6)
    finally:
        touched, _touched, sys.argv = _touched, None, argv
    grown, (out, err) = _memory("VmHWM") - before, capfd.readouterr()
    said, line = f"{out}{PROGRESS.sub('', err)}", PROGRESS.sub("", err)
    allowed = (
        os.environ["GLUE_BENCH_CACHE"],
        tempfile.gettempdir(),
        "/dev/null",
        "/proc/self/",
        str(world / "work"),
    )
    longest = max((len(one.encode(errors="replace")) for one in said.splitlines()), default=0)
    is_refusal = not out and line.startswith("error: ") and line.count("\n") == 1
    wrong = {
        crash: bool(crash),
        f"exit status {status}": not crash
        and status not in ((0, 1, 2) if given[0] in FINDING else (0, 2)),
        f"grew by {grown >> 20} MiB": grown > RESIDENT,
        "control characters": bool(UNSHOWN.search(said)),
        "a traceback": "Traceback" in said or "panicked" in said,
        "the refusal is not one line": status == 2 and not is_refusal,
        f"a line of {longest} bytes": longest > SAID,
        **{f"touched {place}": not place.startswith(allowed) for place in touched},
    }
    found = [what for what, is_so in wrong.items() if is_so]
    return (
        "\n".join([*found, f"glue-bench {given}: {status}", err[:2000], out[:2000]])
        if found
        else ""
    )


def _memory(kind: str) -> int:
    """Bytes of this process, from /proc/self/status."""
    return int(re.findall(rf"{kind}:\s+(\d+) kB", Path("/proc/self/status").read_text())[0]) * 1024


class TooLongError(BaseException):
    """No `except Exception` catches it."""


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    """No input stops the machine: so much time, of the processor and of waiting, and so much memory."""
    began = seen = time.process_time()

    def stop(*_: Any) -> None:
        nonlocal seen
        used, seen = time.process_time() - seen, time.process_time()
        if (
            used < 0.1 or seen - began > SECONDS
        ):  # it waits, or it works too long; a busy machine is neither
            raise TooLongError

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    before = signal.signal(signal.SIGALRM, stop)
    resource.setrlimit(resource.RLIMIT_DATA, (_memory("VmData") + ALLOCATED, hard))
    signal.setitimer(signal.ITIMER_REAL, SECONDS, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
        signal.signal(signal.SIGALRM, before)


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _touched is None:
        return
    opens = event == "open" and (arguments[2] or 0) & _WRITING
    if opens or event in _CHANGES:
        paths = [
            os.fsdecode(one)
            for one in arguments[: 1 if opens else 2]
            if isinstance(one, str | bytes)
        ]
        _touched.extend(
            os.path.abspath(path)  # noqa: PTH100
            for path in paths
            if not (opens and Path(path).is_dir())
        )
    elif event in _FOREIGN or (event == "subprocess.Popen" and "git" not in str(arguments[0])):
        _touched.append(f"{event} {arguments}"[:200])


sys.addaudithook(_watch)
