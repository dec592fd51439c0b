"""Log events are short codes, and docs/log-events.md lists every one with its levels, fields and meaning."""

import re
from typing import Final, NamedTuple

import pytest

from tests.tidy.log_events import LOGGING, events_of, prose
from tests.tidy.source import ROOT, report

PAGE: Final = ROOT / "docs" / "log-events.md"
ROW: Final = re.compile(
    r"\| `(?P<code>[a-z_]+)` \| (?P<levels>[a-z, ]+) \| (?P<fields>[`a-z0-9_, ]*) \| (?P<meaning>.+) \|"
)


class Row(NamedTuple):
    """One line of a table of the page."""

    levels: frozenset[str]
    fields: frozenset[str]
    meaning: str


def page_rows(package: str) -> dict[str, Row]:
    """The table under the heading of a package, by event."""
    _, _, section = PAGE.read_text(encoding="utf-8").partition(f"\n## {package.capitalize()}\n")
    lines = section.partition("\n## ")[0].splitlines()
    rows = {}
    for match in filter(None, map(ROW.fullmatch, lines)):
        assert match["code"] not in rows, f"{match['code']} is listed twice under {package.capitalize()}"
        fields = frozenset(re.findall(r"`(\w+)`", match["fields"]))
        rows[match["code"]] = Row(frozenset(match["levels"].split(", ")), fields, match["meaning"])
    assert len(rows) + 2 == sum(line.startswith("|") for line in lines), "a row of the table cannot be read"
    return rows


def test_events_are_codes() -> None:
    """No log call has prose: codes can be searched and counted, whatever the wording of a release."""
    offences = prose()
    assert not offences, report(offences)


@pytest.mark.parametrize("package", LOGGING)
def test_the_page_lists_every_event(package: str) -> None:
    """Events of page and source are equal."""
    rows, found = page_rows(package), events_of(package)
    missing = sorted({f"{event.place} {event.code} is not on the page" for event in found if event.code not in rows})
    gone = sorted(rows.keys() - {event.code for event in found})
    assert not missing + gone, report([*missing, *(f"docs/log-events.md: no code logs {code}" for code in gone)])


@pytest.mark.parametrize("package", LOGGING)
def test_levels_and_fields_are_on_the_page(package: str) -> None:
    """Each level and field of the source is in the row of its event, and no other level."""
    rows, found = page_rows(package), events_of(package)
    offences = []
    for code, row in rows.items():
        events = [event for event in found if event.code == code]
        levels = {event.level for event in events}
        fields = {field for event in events for field in event.fields}
        if "" not in levels and levels != row.levels:
            offences.append(f"{events[0].place} {code} has the levels {', '.join(sorted(levels))}")
        offences += [f"{events[0].place} {code} has the field {name}" for name in sorted(fields - row.fields)]
    assert not offences, report(offences)


def test_the_collector_sees_events_behind_names() -> None:
    """An event from a table, through a parameter, by a held method and with a traceback are all found."""
    broker, client = ({event.code for event in events_of(package)} for package in ("broker", "client"))
    assert {"lock_granted", "locks_granted", "lock_table_full"} <= broker
    assert {"send_back_failed", "call_not_begun", "listener_failed", "pull_failed"} <= client
