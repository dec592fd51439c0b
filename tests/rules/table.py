"""The rules of the five articles, read from docs/COVERAGE.md: a line for each, with its functions and its test.

A rule that an earlier article tells too names that article's section instead: "as 1/2.2.7".

A function is named as `name`, `Class` or `Class.method`, a test by its own name, or as `file::name` where two tests
have the name.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from tests.tidy.source import ROOT, sources

__all__ = ["PAGE", "Rule", "defined", "named_tests", "rules", "section_titles", "told_before"]

PAGE = ROOT / "docs" / "COVERAGE.md"
_SECTION = re.compile(r"^### (?P<title>.+)$")
_RULE = re.compile(
    r"^- (?P<text>.+?): (?P<functions>`[\w.]+`(?:, `[\w.]+`)*); (?:`(?P<test>[\w:]+)`|same test)\.(?: .+)?$"
)
_TOLD_BEFORE = re.compile(r"^- .+: as (?P<section>[1-5]/\S+)\.(?: .+)?$")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Rule(NamedTuple):
    """One mechanism.

    Args:
        line: of docs/COVERAGE.md, from 1.
        text: The mechanism in a sentence.
        functions: Those that do it.
        test: The one that proves it.
    """

    line: int
    text: str
    functions: tuple[str, ...]
    test: str


def section_titles() -> list[str]:
    """All sections, such as "1/2.2.1 The timer that locks queues in batches", in their order."""
    return [found["title"] for line in _lines() if (found := _SECTION.match(line))]


@cache
def rules() -> tuple[Rule, ...]:
    """All rules, in their order. Raises ValueError for a line that cannot be read."""
    return tuple(_rules())


def _rules() -> Iterator[Rule]:
    test = ""
    for number, line in enumerate(_lines(), 1):
        if not line.startswith("- "):
            test = test if line else ""  # "same test" does not reach over a gap
            continue
        if _TOLD_BEFORE.match(line):
            test = ""
            continue
        found = _RULE.match(line)
        if found is None:
            raise ValueError(f"{PAGE.name}:{number}: neither `- TEXT: `FUNCTION`; `TEST`.` nor `- TEXT: as SECTION.`")
        test = found["test"] or test
        yield Rule(number, found["text"], tuple(map(_whole, re.findall(r"`([\w.]+)`", found["functions"]))), test)


def _whole(name: str) -> str:
    """The name in the code of one that the page shortens."""
    return f"ConsumeMessage{name}" if name.startswith(("OrderlyService", "ConcurrentlyService")) else name


def told_before() -> list[str]:
    """The sections to which rules lead that an earlier article tells too, one for each such rule."""
    return [found["section"] for line in _lines() if (found := _TOLD_BEFORE.match(line))]


def _lines() -> list[str]:
    return PAGE.read_text(encoding="utf-8").splitlines()


@cache
def defined() -> frozenset[str]:
    """The functions and classes of the packages, and methods as `Class.method`."""
    found = set()
    for source in sources():
        for node in source.tree.body if source.top not in {"tests", "scripts", "examples"} else ():
            if isinstance(node, _Function | ast.ClassDef):
                found.add(node.name)
            if isinstance(node, ast.ClassDef):
                found |= {f"{node.name}.{item.name}" for item in node.body if isinstance(item, _Function)}
    return frozenset(found)


@cache
def named_tests() -> dict[str, list[str]]:
    """The nodes of pytest, such as `tests/client/test_x.py::test_y`, that a test's name may mean."""
    found: dict[str, list[str]] = {}
    for source in sources():
        for node in source.tree.body if source.top == "tests" else ():
            if isinstance(node, _Function) and node.name.startswith("test_"):
                for name in (node.name, f"{source.path.stem}::{node.name}"):
                    found.setdefault(name, []).append(f"{source.path.as_posix()}::{node.name}")
    return found
