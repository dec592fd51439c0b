"""What every page has to hold in a browser: names, headers, contrast, no overflow. `looks.js` runs in the page."""

from pathlib import Path

from playwright.sync_api import Page

__all__ = ["faults"]

_CHECKS = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")


def faults(page: Page) -> list[str]:
    """What the page on show lacks."""
    return list(page.evaluate(_CHECKS))
