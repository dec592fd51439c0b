"""docs/COVERAGE.md leads from each rule of the articles to functions and to a test that are there."""

from tests.rules.table import PAGE, defined, named_tests, rules, section_titles, told_before
from tests.tidy.source import report

RULES_MIN = 400  # five articles, heading by heading


def test_every_function_exists() -> None:
    """A rule names functions, classes or methods of the packages."""
    offences = [
        f"{PAGE.name}:{rule.line}: no such function: {name}"
        for rule in rules()
        for name in rule.functions
        if name not in defined()
    ]
    assert not offences, report(offences)


def test_every_rule_has_a_test() -> None:
    """It names one test that exists; where two have the name, the file stands before it."""
    offences = [
        f"{PAGE.name}:{rule.line}: {rule.test or 'no test'} means {len(found)} tests, not one"
        for rule in rules()
        if len(found := named_tests().get(rule.test, [])) != 1
    ]
    assert not offences, report(offences)


def test_the_articles_are_whole() -> None:
    """There are rules of all five articles; those that were told before lead to a section."""
    sections = {title.partition(" ")[0] for title in section_titles()}
    assert {section.partition("/")[0] for section in sections} == {"1", "2", "3", "4", "5"}
    assert {*told_before()} <= sections
    assert len(rules()) + len(told_before()) >= RULES_MIN
