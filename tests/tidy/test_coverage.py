"""Each rule of the articles has functions that exist and a test that is marked with it; docs/COVERAGE.md says so."""

import ast
import re
from collections import Counter
from functools import cache

from tests.pages import COVERAGE
from tests.rules.page import coverage
from tests.rules.table import LIST, is_rule_marker, marked_tests, parts, proofs_of, rules
from tests.tidy.source import modules, report, sources

RULES_MIN = 400  # five articles, heading by heading
PLACE = LIST.name


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


def test_ids_are_readable_and_unique() -> None:
    """Lower-case words, figures and dashes, once each; no text is empty, none would break a table."""
    pattern = re.compile(r"(article-[1-5]|beyond)/[a-z0-9.-]+/[a-z0-9.-]+")
    offences = [f"{PLACE}: {rule.id}: not an id" for rule in rules() if not pattern.fullmatch(rule.id)]
    offences += [f"{PLACE}: {name}: twice" for name, times in Counter(r.id for r in rules()).items() if times > 1]
    for rule in rules():
        texts = (rule.text, *(rule.differences or ()))
        if not all(texts) or any("|" in text or "\n" in text for text in texts):
            offences.append(f"{PLACE}: {rule.id}: an empty text, or one with a bar or a new line")
    assert not offences, report(offences)


def test_every_function_exists() -> None:
    """A rule names functions, methods or classes of ours, at least one."""
    offences = [f"{PLACE}: {r.id}: no such function: {f}" for r in rules() for f in r.functions if not is_defined(f)]
    offences += [f"{PLACE}: {rule.id}: no function is named" for rule in rules() if not rule.functions]
    assert not offences, report(offences)


def test_every_rule_has_a_test() -> None:
    """At least one test carries the rule's id."""
    offences = [f"{PLACE}: {rule.id}: no test is marked with it" for rule in rules() if rule.id not in proofs_of()]
    assert not offences, report(offences)


def test_every_marker_names_rules() -> None:
    """A marker stands on a test and names rules of the list, each once and as plain strings."""
    known = {rule.id for rule in rules()}
    offences = []
    for test, source, marker in marked_tests():
        values = [argument.value for argument in marker.args if isinstance(argument, ast.Constant)]
        names = [value for value in values if isinstance(value, str)]
        if not names or len(names) != len(marker.args) or marker.keywords:
            offences.append(source.at(marker.lineno, f"{test}: a rule marker holds ids, as plain strings"))
        elif not test.partition("::")[2].startswith("test_"):
            offences.append(source.at(marker.lineno, f"{test} is not a test"))
        offences += [source.at(marker.lineno, f"{PLACE} has no rule {name}") for name in names if name not in known]
        offences += [source.at(marker.lineno, f"{name} twice") for name, times in Counter(names).items() if times > 1]
    seen = {id(marker) for _, _, marker in marked_tests()}
    offences += [
        source.at(node.lineno, "a rule marker belongs on a test function")
        for source in sources()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and is_rule_marker(node) and id(node) not in seen
    ]
    assert not offences, report(offences)


def test_the_page_is_written_from_the_list() -> None:
    """docs/COVERAGE.md is what `make docs` writes."""
    assert COVERAGE.read_text(encoding="utf-8") == coverage(), "run `python -m tests.pages`"


def test_all_five_articles_are_there() -> None:
    """Each article is a part, and there is one for what they do not have; each heading has rules."""
    assert [part.id for part in parts()] == [*(f"article-{number}" for number in range(1, 6)), "beyond"]
    assert all(section.rules for part in parts() for section in part.sections)
    assert len(rules()) >= RULES_MIN
