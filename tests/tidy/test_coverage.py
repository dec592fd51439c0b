"""docs/COVERAGE.md names functions and tests that exist, and leaves no cell empty."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.tidy.source import ROOT, modules, report

DOCUMENT = Path("docs/COVERAGE.md")
CODE = re.compile(r"`([^`]+)`")
ROWS_MIN = 400  # five articles, heading by heading
COLUMNS = 4


class Row(NamedTuple):
    """One line of a table: the cells of `heading or mechanism | done by | proved by | what differs`."""

    line: int
    cells: tuple[str, ...]

    def at(self, message: str) -> str:
        return f"{DOCUMENT}:{self.line}: {message}"


@cache
def lines() -> list[str]:
    return (ROOT / DOCUMENT).read_text(encoding="utf-8").splitlines()


@cache
def rows() -> list[Row]:
    """Every row below a heading line and its rule."""
    found = []
    for number, line in enumerate(lines(), 1):
        cells = tuple(cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|"))
        is_head = cells[0] == "heading or mechanism" or set(line) <= set("|-")
        if line.startswith("|") and not is_head:
            found.append(Row(number, cells))
    return found


@cache
def definitions(module: str) -> frozenset[str]:
    """What a module defines at its top, and the methods of its classes as `Class.method`."""
    found = set()
    for node in modules()[module].tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{item.name}" for item in node.body if hasattr(item, "name")}
    return frozenset(found)


def is_defined(name: str) -> bool:
    """Whether `client.rebalance.Rebalance.run`, in the package lockstep, is there."""
    parts = f"lockstep.{name}".split(".")
    for end in range(len(parts) - 1, 1, -1):
        module = ".".join(parts[:end])
        if module in modules():
            return ".".join(parts[end:]) in definitions(module)
    return False


@cache
def names_in(path: str) -> frozenset[str]:
    file = ROOT / "tests" / path
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    return frozenset(re.findall(r"^(?:async )?def (test_\w+)", text, re.MULTILINE))


def test_no_cell_is_empty() -> None:
    """Four cells a row, each with something in it."""
    offences = [
        row.at("a row has four cells, none empty") for row in rows() if len(row.cells) != COLUMNS or not all(row.cells)
    ]
    assert not offences, report(offences)


def test_every_function_exists() -> None:
    """The second cell names functions, methods or classes of ours and nothing else, at least one."""
    offences = [
        row.at(f"no such function: {name}")
        for row in rows()
        for name in CODE.findall(row.cells[1])
        if not is_defined(name)
    ]
    offences += [
        row.at("no function is named") for row in rows() if not re.fullmatch(r"`[\w.]+`(, `[\w.]+`)*", row.cells[1])
    ]
    assert not offences, report(offences)


def test_every_test_exists() -> None:
    """The third cell names tests as path::name, at least one, and each stands in that file."""
    offences = []
    for row in rows():
        for named in CODE.findall(row.cells[2]):
            path, _, name = named.partition("::")
            if name not in names_in(path):
                offences.append(row.at(f"no such test: {named}"))
        if not re.fullmatch(r"`[\w./]+::test_\w+`(, `[\w./]+::test_\w+`)*", row.cells[2]):
            offences.append(row.at("no test is named"))
    assert not offences, report(offences)


def test_what_differs_says_what_each_does() -> None:
    """The last cell is "same", or tells article, 4.9.8 and ours apart."""
    told = re.compile(r"same|article: .+; 4\.9\.8: .+; we: .+")
    offences = [row.at(f"not told apart: {row.cells[3]}") for row in rows() if not told.fullmatch(row.cells[3])]
    assert not offences, report(offences)


def test_all_five_articles_are_there() -> None:
    """Each article is a section, and there is one for what they do not have; each heading is a table with rows."""
    sections = [line for line in lines() if line.startswith("## ")]
    articles = [f"## Article {number}" for number in range(1, 6)]
    assert [line[:12] for line in sections] == [*articles, "## Beyond th"]
    headings = [number for number, line in enumerate(lines(), 1) if line.startswith("### ")]
    told = [row.line for row in rows()]
    ends = [*headings[1:], len(lines()) + 1]
    empty = [start for start, end in zip(headings, ends, strict=True) if not any(start < line < end for line in told)]
    assert not empty, report([f"{DOCUMENT}:{line}: a heading without a row" for line in empty])
    assert len(told) >= ROWS_MIN
