"""How dense Python code is, by measures that long lines cannot hide.

`measure` counts what a reader has to take apart: AST nodes of a statement, comprehensions, tuple
assignments of computed values, names that say nothing, wide functions, lines that the formatter may
not break, long lines, typed constructors in the place of literals, and literals that are put
together from literals.
"""

import ast
import re
import statistics
from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from pathlib import Path

MAX_COLUMNS = 100
MAX_FUNCTION_NODES = 400
STATEMENT = "nodes of a statement"
COMPREHENSIONS = "comprehensions"
TUPLES = "tuple assignments"
VAGUE_NAMES = "vague names"
WIDE_FUNCTIONS = "wide functions"
UNFORMATTED = "unformatted lines"
LONG_LINES = "long lines"
TYPED_CONSTRUCTORS = "typed constructors"
SPLATS = "splats of literals"
RATES = (COMPREHENSIONS, TUPLES, VAGUE_NAMES)
"""What is counted per 1,000 lines."""
COUNTS = (WIDE_FUNCTIONS, UNFORMATTED, LONG_LINES, TYPED_CONSTRUCTORS, SPLATS)
"""What is counted."""
MEASURES = (STATEMENT, *RATES, *COUNTS)

SIMPLE_STATEMENTS = (
    ast.Assign,
    ast.AnnAssign,
    ast.AugAssign,
    ast.Return,
    ast.Expr,
    ast.Assert,
    ast.Raise,
    ast.Delete,
)
COMPREHENSION_NODES = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
BUILTIN_TYPES = ("list", "dict", "set", "frozenset", "tuple", "deque", "defaultdict", "Counter")
NOT_COMPUTED = (ast.Constant, ast.Name, ast.Attribute)


@dataclass(frozen=True)
class Finding:
    """A measure's finding in a file."""

    file: str
    line: int
    word: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.word}"


@dataclass
class Density:
    """The measures of some files.

    `findings` are listed by measure; `sizes` has the number of nodes of each simple statement.
    """

    lines: int = 0
    findings: dict[str, list[Finding]] = field(default_factory=dict)
    sizes: list[tuple[int, Finding]] = field(default_factory=list)

    def value(self, measure: str) -> float:
        """Return a median of nodes, a rate per 1,000 lines, or a count."""
        if measure == STATEMENT:
            return statistics.median([size for size, _ in self.sizes] or [0])
        count = len(self.findings.get(measure, []))
        if measure in RATES:
            return round(1000 * count / max(1, self.lines), 1)
        return count

    def places(self, measure: str) -> list[Finding]:
        """Return where the findings of a measure are; of statements the largest."""
        if measure == STATEMENT:
            largest = sorted(self.sizes, key=lambda size: size[0], reverse=True)
            return [finding for _, finding in largest[:20]]
        return self.findings.get(measure, [])


def measure(files: Iterable[Path], root: Path, vague: Set[str]) -> Density:
    """Measure files, whose paths are told from `root` on; `vague` are names that say nothing."""
    density = Density()
    for file in files:
        text = file.read_text("utf-8")
        name = file.relative_to(root).as_posix()
        density.lines += text.count("\n")
        _measure_lines(density, name, text)
        _Visitor(density, name, vague).visit(ast.parse(text))
    return density


def _note(density: Density, measure: str, finding: Finding) -> None:
    density.findings.setdefault(measure, []).append(finding)


def _measure_lines(density: Density, file: str, text: str) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > MAX_COLUMNS:
            _note(density, LONG_LINES, Finding(file, number, f"{len(line)} columns"))
        for _ in re.finditer(r"fmt:[ ]skip", line):
            _note(density, UNFORMATTED, Finding(file, number, line.strip()))


class _Visitor:
    """Goes through a tree once, from the leaves up, so that the size of every node is known at
    the node.
    """

    def __init__(self, density: Density, file: str, vague: Set[str]) -> None:
        self.density = density
        self.file = file
        self.vague = vague
        self.sizes: dict[ast.stmt, int] = {}

    def visit(self, node: ast.AST) -> int:
        """Measure a node and what is below it, and return the number of nodes."""
        size = 1
        for child in ast.iter_child_nodes(node):
            size += self.visit(child)
        if isinstance(node, ast.stmt):
            self.sizes[node] = size
            self._measure_statement(node, size)
        elif isinstance(node, ast.expr | ast.arg):
            self._measure_expression(node)
        return size

    def _note(self, measure: str, node: ast.stmt | ast.expr | ast.arg, word: str) -> None:
        _note(self.density, measure, Finding(self.file, node.lineno, word))

    def _measure_statement(self, node: ast.stmt, size: int) -> None:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, SIMPLE_STATEMENTS) and not is_text:
            finding = Finding(self.file, node.lineno, f"{size} nodes")
            self.density.sizes.append((size, finding))
        if isinstance(node, ast.Assign) and is_tuple_of_computed_values(node):
            self._note(TUPLES, node, ast.unparse(node.targets[0]))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            nodes = sum(self.sizes[statement] for statement in body)
            if nodes > MAX_FUNCTION_NODES:
                self._note(WIDE_FUNCTIONS, node, f"{node.name}: {nodes} nodes")

    def _measure_expression(self, node: ast.expr | ast.arg) -> None:
        if isinstance(node, COMPREHENSION_NODES):
            self._note(COMPREHENSIONS, node, type(node).__name__)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in self.vague:
            self._note(VAGUE_NAMES, node, node.id)
        if isinstance(node, ast.arg) and node.arg in self.vague:
            self._note(VAGUE_NAMES, node, node.arg)
        if isinstance(node, ast.Call) and is_typed_constructor(node.func):
            self._note(TYPED_CONSTRUCTORS, node, ast.unparse(node.func))
        for part in splatted_literals(node):
            self._note(SPLATS, part, ast.unparse(part)[:40])


def is_tuple_of_computed_values(node: ast.Assign) -> bool:
    """Return whether two or more computed values are assigned to a tuple of names in one
    statement.
    """
    if not (isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple)):
        return False
    computed = [value for value in node.value.elts if not isinstance(value, NOT_COMPUTED)]
    return len(computed) >= 2


def is_typed_constructor(function: ast.expr) -> bool:
    """Return whether what is called is a type with its parameters, as in `list[str]()`."""
    return (
        isinstance(function, ast.Subscript)
        and isinstance(function.value, ast.Name)
        and function.value.id in BUILTIN_TYPES
    )


def splatted_literals(node: ast.AST) -> list[ast.expr]:
    """Return the literals that are unpacked in this dict, list or tuple."""
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return [value for key, value in pairs if key is None and isinstance(value, ast.Dict)]
    if isinstance(node, ast.List | ast.Tuple):
        starred = [item.value for item in node.elts if isinstance(item, ast.Starred)]
        return [value for value in starred if isinstance(value, ast.Tuple | ast.List)]
    return []
