"""What a person does on the page of a played run."""

import re

from playwright.sync_api import Page, expect

__all__ = ["ADDRESS", "DRAG", "go_to", "touch"]

ADDRESS = re.compile(r"the run is at (http://\S+/)")
DRAG = """
(one, ms) => {
  one.value = ms;
  for (const name of ["input", "change"]) one.dispatchEvent(new Event(name));
}
"""


def go_to(page: Page, ms: int, within_ms: float | None = None) -> None:
    """Move the scrubber, and wait until the run is there."""
    page.locator("#scrubber").evaluate(DRAG, ms)
    there = [f"{ms / 1000:.1f} s"] * page.locator(".side").count()
    expect(page.locator(".side .clock")).to_have_text(there, timeout=within_ms)
    expect(page.locator("#busy")).to_have_text("")


def touch(page: Page, kind: str, thing: str, what: str) -> None:
    page.locator(f'[data-touch="{kind}"][data-thing="{thing}"]').first.click()
    page.get_by_role("menuitem", name=what).click()
