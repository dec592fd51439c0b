"""The rules of the five articles, and the tests that are marked as their proof.

`articles.toml` is the list. A test that proves a rule carries its id, as in
`@pytest.mark.rule("article-1/2.1/selector-tried-once")`. Markers are read from the source: nothing has to be imported.
"""

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.tidy.source import Source, sources

__all__ = ["LIST", "Part", "Rule", "Section", "is_rule_marker", "marked_tests", "parts", "proofs_of", "rules"]

LIST = Path(__file__).with_name("articles.toml")
MARKER = "pytest.mark.rule"


class Rule(NamedTuple):
    """One mechanism.

    Attributes:
        id: `part/section/rule`, as markers write it.
        text: The mechanism in a sentence.
        functions: Names without `lockstep.` in front.
        differences: What the article, RocketMQ 4.9.8 and Lockstep do; None where all do the same.
    """

    id: str
    text: str
    functions: tuple[str, ...]
    differences: tuple[str, str, str] | None


class Section(NamedTuple):
    """One heading of an article."""

    id: str
    title: str
    rules: tuple[Rule, ...]


class Part(NamedTuple):
    """One article, or what goes beyond the articles."""

    id: str
    title: str
    sections: tuple[Section, ...]


@cache
def parts() -> tuple[Part, ...]:
    """The list, in its order."""
    found = []
    for part in tomllib.loads(LIST.read_text(encoding="utf-8"))["part"]:
        sections = []
        for section in part["section"]:
            prefix = f"{part['id']}/{section['id']}"
            sections.append(Section(prefix, section["title"], tuple(_rule(prefix, row) for row in section["rule"])))
        found.append(Part(part["id"], part["title"], tuple(sections)))
    return tuple(found)


def _rule(prefix: str, row: dict[str, object]) -> Rule:
    match row:
        case {"id": str(name), "text": str(text), "functions": list(functions)} if len(row) == 3:
            differences = None
        case {
            "id": str(name), "text": str(text), "functions": list(functions),
            "article": str(article), "apache": str(apache), "lockstep": str(ours),
        } if len(row) == 6:  # fmt: skip
            differences = (article, apache, ours)
        case _:
            raise ValueError(f"{LIST.name}: {prefix}: id, text, functions; article, apache and lockstep or none: {row}")
    return Rule(f"{prefix}/{name}", text, tuple(functions), differences)


@cache
def rules() -> tuple[Rule, ...]:
    return tuple(rule for part in parts() for section in part.sections for rule in section.rules)


def is_rule_marker(node: ast.expr) -> bool:
    """Whether a decorator is `@pytest.mark.rule(...)`."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) == MARKER


@cache
def marked_tests() -> tuple[tuple[str, Source, ast.Call], ...]:
    """`client/test_x.py::test_y`, its file and its marker, for each marker on a test, file by file."""
    return tuple(
        (f"{source.path.relative_to('tests').as_posix()}::{node.name}", source, decorator)
        for source in sources()
        if source.top == "tests"
        for node in source.tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call) and is_rule_marker(decorator)
    )


def ids_of(marker: ast.Call) -> Iterator[str]:
    """The rules that a marker names."""
    for argument in marker.args:
        yield ast.literal_eval(argument)


@cache
def proofs_of() -> dict[str, tuple[str, ...]]:
    """The tests of each rule that has one."""
    found: dict[str, list[str]] = {}
    for test, _, marker in marked_tests():
        for name in ids_of(marker):
            found.setdefault(name, []).append(test)
    return {name: tuple(tests) for name, tests in found.items()}
