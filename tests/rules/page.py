"""Writes docs/COVERAGE.md from the list of rules and the markers of tests: `make docs`."""

from collections.abc import Iterable, Iterator

from tests.rules.table import Rule, Section, parts, proofs_of

__all__ = ["coverage"]

INTRODUCTION = """\
# Coverage of the five articles

Each heading and mechanism of the five articles on RocketMQ's ordered and concurrent consumption, the functions that do
it here, and the tests that prove it. Functions are named without `lockstep.` in front, tests from the folder `tests`.
The last column says what differs between the article, RocketMQ 4.9.8 and Lockstep: "same" where nothing does.
[wire.md](wire.md) has the facts of 4.9.8, [order.md](order.md) what Lockstep promises about order,
[clients.md](clients.md) how the clients are used.

`make docs` writes this page from the list of rules, [articles.toml](../tests/rules/articles.toml), and from
the tests that carry a rule's id: `@pytest.mark.rule("article-1/2.1/selector-tried-once")`.
`make coverage-rows` runs those tests and checks that each function named here has run.

Where the articles give other intervals than 4.9.8, `client.profiles.PROFILES` has theirs, and
`lockstep consume --profile articles` runs with them. Where one article contradicts the others, the profile follows the
others: article 5 renews locks each second, articles 1, 2 and 4 every 20 s; article 4 waits 100 ms before the next run
of a busy queue, the others 10 ms.
"""
HEAD = (
    "| rule | heading or mechanism | done by | proved by | article says / 4.9.8 does / we do |\n|---|---|---|---|---|"
)


def coverage() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield INTRODUCTION.rstrip()
    for part in parts():
        yield f"\n## {part.title}"
        for section in part.sections:
            yield f"\n### {section.title}\n\n`{section.id}/...`\n\n{HEAD}"
            yield from (_row(section, rule) for rule in section.rules)


def _row(section: Section, rule: Rule) -> str:
    differences = "same"
    if rule.differences is not None:
        differences = "article: {}; 4.9.8: {}; we: {}".format(*rule.differences)
    name = rule.id.removeprefix(f"{section.id}/")
    cells = (f"`{name}`", rule.text, _code(rule.functions), _code(proofs_of().get(rule.id, ())), differences)
    return f"| {' | '.join(cells)} |"


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
