"""Small breaks of the code, each described by what it breaks, and which tests catch it.

    python tests/frozen/mutations.py                     # all, on the last commit; half an hour of one core
    python tests/frozen/mutations.py untied-scale holm   # some of them
    python tests/frozen/mutations.py --kind tests        # only the tests of the room, not the promises
    python tests/frozen/mutations.py --check             # only whether each can still be made

A break is made in a worktree of its own, never in this checkout. The promises and the tests of the room run until so
many have failed (--most) or the time is over; in the end, what failed has to pass without the breaks. The results go
to a table (--table, mutations.csv by default) and to a page beside it; a kind that is not run keeps its result.

mutations.csv is of the code before its rebuild, mutations_after.csv of the rebuilt rooms. Where code has moved or
changed, `file`, `old` and `new` of an entry of MUTATIONS are to be updated; its sentence says what the break must be.
"""

import argparse
import csv
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mutations_list import MUTATIONS, Mutation

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
COLUMNS = ("name", "room", "sentence", "promises", "promises_commit", "tests", "tests_commit")
KINDS = ("promises", "tests")
NOTHING, TOO_LONG, NOT_RUN = "none", "time limit", ""


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def failing(tree: Path, words: tuple[str, ...], most: int, limit: float) -> list[str]:
    """The tests that fail of these files and tests, as far as they are there."""
    there = [word for word in words if (tree / word.partition("::")[0]).exists()]
    if not there:
        return []
    # Without checks of shapes, which double the time of a start.
    options = ["-q", "--tb=no", "-rfE", "-p", "no:cacheprovider", f"--maxfail={most}", "-o", "addopts=-m 'not slow'"]
    given = {"env": os.environ | {"PYTHONPATH": str(tree), "PYTHONUTF8": "1"}, "text": True, "capture_output": True}
    try:
        done = subprocess.run([sys.executable, "-m", "pytest", *options, *there], cwd=tree, timeout=limit, **given)
    except subprocess.TimeoutExpired:
        return [TOO_LONG]
    found = re.findall(r"^(?:FAILED|ERROR) (\S+?)(?: - .*|\[.*)?$", done.stdout, re.MULTILINE)
    if done.returncode not in (0, 1, 5) and not found:
        raise SystemExit(f"pytest ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return list(dict.fromkeys(found))


def stale(tree: Path, mutation: Mutation) -> str:
    """Why a break cannot be made: what is to be replaced has to stand in its file exactly once. Else empty."""
    path = tree / mutation.file
    times = path.read_text(encoding="utf-8").count(mutation.old) if path.exists() else 0
    return "" if times == 1 else f"{mutation.name} cannot be made: {times} times in {mutation.file}:\n{mutation.old}"


def try_one(tree: Path, mutation: Mutation, kinds: list[str], most: int, limit: float) -> dict[str, str]:
    """Make the break, run the tests, take it back; by kind, the tests that failed."""
    path = tree / mutation.file
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        return {kind: "; ".join(failing(tree, getattr(mutation, kind), most, limit)) or NOTHING for kind in kinds}
    finally:
        path.write_text(whole, encoding="utf-8")


def stored(table: Path) -> dict[str, dict[str, str]]:
    if not table.exists():
        return {}
    with table.open(encoding="utf-8") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def store(table: Path, rows: dict[str, dict[str, str]]) -> None:
    """Write the table in the order of MUTATIONS, and the page beside it."""
    ordered = [rows[each.name] for each in MUTATIONS if each.name in rows]
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(ordered)
    table.with_suffix(".md").write_text(page(ordered), encoding="utf-8")


def without(names: str, wrong: list[str]) -> str:
    return "; ".join(name for name in names.split("; ") if name not in wrong) or (names and NOTHING)


def page(rows: list[dict[str, str]]) -> str:
    counts = {kind: sum(row[kind] not in (NOTHING, TOO_LONG, NOT_RUN) for row in rows) for kind in KINDS}
    either = sum(any(row[kind] not in (NOTHING, TOO_LONG, NOT_RUN) for kind in counts) for row in rows)
    lines = [
        "# Breaks and what catches them",
        "",
        f"Of {len(rows)} breaks {either} are caught: {counts['promises']} by a promise, {counts['tests']} by a test of "
        "the room. The first failing tests are listed; more may fail. What was not run is empty. `mutations.py` makes "
        "this page.",
        "",
        *(f"Commits that were broken for {kind}: {commits(rows, kind)}." for kind in KINDS),
        "",
        "| break | room | what it breaks | promises | tests |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [row["name"], row["room"], row["sentence"], *(short(row[kind]) for kind in counts)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def commits(rows: list[dict[str, str]], kind: str) -> str:
    return ", ".join(dict.fromkeys(row[f"{kind}_commit"] for row in rows if row[f"{kind}_commit"])) or NOTHING


def short(names: str) -> str:
    """Tests without the folder that all are in."""
    return "<br>".join(name.removeprefix("tests/").removeprefix("promises/") for name in names.split("; "))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="of breaks; all by default")
    parser.add_argument("--commit", default="HEAD", help="that is broken")
    parser.add_argument("--kind", choices=KINDS, action="append", help="what is run; both by default")
    parser.add_argument("--most", type=int, default=3, help="failing tests after which a run ends")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds of each run")
    parser.add_argument("--table", type=Path, default=HERE / "mutations.csv", help="where results go")
    parser.add_argument("--check", action="store_true", help="run no test")
    asked = parser.parse_args()
    known = {each.name: each for each in MUTATIONS}
    chosen = [known[name] for name in asked.names] or list(MUTATIONS)
    tree = Path(tempfile.mkdtemp(prefix="mutations-")) / "checkout"
    git("worktree", "add", "--detach", str(tree), asked.commit)
    commit = git("rev-parse", "--short", asked.commit)
    try:
        problems = [problem for mutation in chosen if (problem := stale(tree, mutation))]
        print("\n".join(problems) or "each can be made")
        if not asked.check:
            measure(tree, asked, [mutation for mutation in chosen if not stale(tree, mutation)], commit)
    finally:
        git("worktree", "remove", "--force", str(tree))
        shutil.rmtree(tree.parent, ignore_errors=True)
    raise SystemExit(bool(problems))


def measure(tree: Path, asked: argparse.Namespace, chosen: list[Mutation], commit: str) -> None:
    kinds, table = asked.kind or list(KINDS), asked.table
    for mutation in chosen:
        began = time.monotonic()
        caught = try_one(tree, mutation, kinds, asked.most, asked.limit)
        about = {"name": mutation.name, "room": mutation.room, "sentence": mutation.sentence}
        about |= {f"{kind}_commit": commit for kind in kinds}
        rows = stored(table)
        before = rows.get(mutation.name) or dict.fromkeys(COLUMNS, NOT_RUN)
        store(table, rows | {mutation.name: before | about | caught})
        print(f"{mutation.name}: {caught} ({time.monotonic() - began:.0f} s)", flush=True)
    rows = stored(table)
    named = {name for each in chosen for kind in kinds for name in rows[each.name][kind].split("; ")}
    wrong = failing(tree, tuple(sorted(named - {NOTHING, TOO_LONG, NOT_RUN})), most=1000, limit=3600)
    print(f"fail without a break, too: {', '.join(wrong) or 'none'}")
    store(table, {name: row | {kind: without(row[kind], wrong) for kind in kinds} for name, row in rows.items()})


if __name__ == "__main__":
    main()
