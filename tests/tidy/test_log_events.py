"""Log events are short codes, and docs/log-events.md has the meaning of warnings, errors and locks' events."""

import re
from typing import Final

import pytest

from tests.tidy.log_events import LOGGING, events_of, prose
from tests.tidy.source import ROOT, report

PAGE: Final = ROOT / "docs" / "log-events.md"
ROW: Final = re.compile(r"\| `(?P<code>[a-z_]+)` \| (?P<levels>[a-z, ]+) \| (?P<meaning>.+) \|")


def page_rows(package: str) -> dict[str, frozenset[str]]:
    """The levels of each event in the table under the heading of a package."""
    _, _, section = PAGE.read_text(encoding="utf-8").partition(f"\n## {package.capitalize()}\n")
    lines = section.partition("\n## ")[0].splitlines()
    rows = {}
    for match in filter(None, map(ROW.fullmatch, lines)):
        assert match["code"] not in rows, f"{match['code']} is listed twice under {package.capitalize()}"
        rows[match["code"]] = frozenset(match["levels"].split(", "))
    assert len(rows) + 2 == sum(line.startswith("|") for line in lines), "a row of the table cannot be read"
    return rows


def test_events_are_codes() -> None:
    """No log call has prose: codes can be searched and counted, whatever the wording of a release."""
    offences = prose()
    assert not offences, report(offences)


@pytest.mark.parametrize("package", LOGGING)
def test_the_page_has_what_an_operator_looks_for(package: str) -> None:
    """Each warning, error (`..._failed` says itself what failed) and event of one lock is there, with its levels."""
    rows, levels = page_rows(package), dict[str, set[str]]()
    for event in events_of(package):
        levels.setdefault(event.code, set()).add(event.level)
    wanted = {
        code
        for code, found in levels.items()
        if (found & {"warning", "error"} or code.startswith("lock_")) and not code.endswith("_failed")
    }
    offences = [f"{code} is not on the page" for code in sorted(wanted - rows.keys())]
    offences += [f"docs/log-events.md: no code logs {code}" for code in sorted(rows.keys() - levels.keys())]
    offences += [
        f"{code} has the levels {', '.join(sorted(levels[code]))}"
        for code, row in rows.items()
        if code in levels and "" not in levels[code] and levels[code] != row
    ]
    assert not offences, report(offences)


def test_the_collector_sees_events_behind_names() -> None:
    """An event from a table, through a parameter, by a held method and with a traceback are all found."""
    broker, client = ({event.code for event in events_of(package)} for package in ("broker", "client"))
    assert {"lock_granted", "locks_granted", "lock_table_full"} <= broker
    assert {"send_back_failed", "call_not_begun", "listener_failed", "pull_failed"} <= client
