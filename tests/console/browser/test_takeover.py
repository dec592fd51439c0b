"""A member is killed while the page Order is open: the takeover appears, and the ribbons are as the traces."""

import time
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser import NEEDS_BROWSER
from tests.commands import TIMEOUT_S
from tests.console.browser.site import TIMEOUT_MS, TOPIC, Site

pytestmark = [NEEDS_BROWSER, pytest.mark.process, pytest.mark.long, pytest.mark.timeout(900)]

QUEUES = 4
SHOWN_WITHIN_MS = 2000
NEAR_MS = 5000  # the broker writes a period down when it grants it, the member when it hears of it
TRIES = 10  # a busy machine may keep the browser waiting: one of several takeovers has to be shown in time
# The owners of the queues of a topic by the last spans of their ribbons, when there are `count` of them, and the time.
OWNERS = """([topic, count]) => {
  const all = [...document.querySelectorAll("tr[data-queue]")];
  const rows = all.filter((row) => row.dataset.queue.startsWith(topic + "@"));
  const open = rows.map((row) => row.querySelector('.span[data-to=""]')?.dataset.owner).filter(Boolean);
  const names = new Set(open);
  return open.length === rows.length && rows.length > 0 && names.size === count && [Date.now(), ...names];
}"""
SPANS = """(topic) => Object.fromEntries([...document.querySelectorAll("tr[data-queue]")]
  .filter((row) => row.dataset.queue.startsWith(topic + "@"))
  .map((row) => [Number(row.dataset.queue.split(":").at(-1)), [...row.querySelectorAll(".span")]
    .map((span) => [span.dataset.owner, Number(span.dataset.from)])]))"""


def owners(page: Page, count: int) -> tuple[int, set[str]]:
    """Wait until the queues have so many owners. Returns when it was seen (epoch ms) and the client ids."""
    shown_ms, *names = page.wait_for_function(OWNERS, arg=[TOPIC, count], timeout=TIMEOUT_MS).json_value()
    return shown_ms, set(names)


def test_a_takeover_is_shown_within_two_seconds(site: Site, page: Page, errors: list[str]) -> None:
    """From the survivor's record of its last lock to the ribbon of the page, which nobody reloads."""
    page.goto(site.address)
    delays_ms = []
    for _ in range(TRIES):
        _, names = owners(page, 2)
        both_have_heard(site, page, names)
        victim = max(name for name in site.members if site.members[name].popen.poll() is None)
        (survivor,) = [name for name in names if not name.endswith(f"@{victim}")]
        site.members[victim].popen.kill()
        shown_ms, left = owners(page, 1)
        assert left == {survivor}
        taken_ms = max(r["wall_ms"] for r in site.records("acquired") if r["client_id"] == survivor)
        delays_ms.append(shown_ms - taken_ms)
        if delays_ms[-1] <= SHOWN_WITHIN_MS:
            break
        site.join()
    assert min(delays_ms) <= SHOWN_WITHIN_MS, delays_ms
    assert page.locator(".mark.taken_over").count() >= QUEUES // 2
    assert errors == []
    ribbons_are_as_traces(site, page)


def both_have_heard(site: Site, page: Page, names: set[str]) -> None:
    """Wait until each owner on the page has recorded a lock: one that is killed before would have none in its trace."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while {record["client_id"] for record in last_periods(site)} != names:
        assert time.monotonic() < deadline_s, names
        page.wait_for_timeout(20)


def last_periods(site: Site) -> list[dict[str, Any]]:
    """The last record of each queue."""
    found = sorted(site.records("acquired"), key=lambda one: one["wall_ms"])
    return list({record["queue_id"]: record for record in found}.values())


def ribbons_are_as_traces(site: Site, page: Page) -> None:
    """Each period of ownership that a member recorded is a span, in the same order and at its time, and no other is."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:  # the page may show what a member hears of later
        recorded: dict[str, list[tuple[str, int]]] = {}
        for record in sorted(site.records("acquired"), key=lambda one: one["wall_ms"]):
            recorded.setdefault(str(record["queue_id"]), []).append((record["client_id"], record["wall_ms"]))
        spans = page.evaluate(SPANS, TOPIC)
        if owners_of(spans) == owners_of(recorded):
            break
        assert time.monotonic() < deadline_s, (spans, recorded)
        page.wait_for_timeout(20)
    assert len(spans) == QUEUES
    for number, of_queue in spans.items():
        for (_, from_ms), (_, wall_ms) in zip(of_queue, recorded[number], strict=True):
            assert abs(from_ms - wall_ms) < NEAR_MS


def owners_of(periods: dict[str, Any]) -> dict[str, list[str]]:
    return {number: [owner for owner, _ in of_queue] for number, of_queue in periods.items()}


def test_a_mark_tells_its_story(site: Site, page: Page, errors: list[str]) -> None:
    """A click on a takeover says who, when and why, in a dialog that Escape closes."""
    page.goto(site.address)
    site.join()  # it takes queues over; two members that began together may not have
    page.wait_for_selector(".mark.taken_over")
    page.locator(".mark.taken_over").last.click()  # of marks near each other the last one is on top
    dialog = page.get_by_role("dialog")
    dialog.wait_for()
    assert "member-" in dialog.inner_text()
    page.keyboard.press("Escape")
    dialog.wait_for(state="hidden")
    assert errors == []
