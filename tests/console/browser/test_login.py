"""The login in Chromium, by keyboard: to the page that was asked for, what a reader sees, and out again."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser import NEEDS_BROWSER
from tests.console.browser.looks import faults
from tests.console.browser.site import TOPIC, Site

pytestmark = [NEEDS_BROWSER, pytest.mark.process, pytest.mark.long]

ACCOUNTS = """
accounts:
- {accessKey: the-chief, secretKey: chief-secret, admin: true}
- {accessKey: the-reader, secretKey: reader-secret}
"""


def test_a_reader_and_a_chief(site: Site, page: Page, tmp_path: Path, errors: list[str]) -> None:
    """A wrong password is told; a page that is open when its session ends leads to the login."""
    path = tmp_path / "plain_acl.yml"
    path.write_text(ACCOUNTS)
    with site.lockstep.start("console", "--port", "0", "--login", str(path)) as console:
        address = console.error_line().partition("console is at ")[2].split(" ")[0]
        page.goto(f"{address}topic?topic={TOPIC}")
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            for width in (1280, 800, 390):
                page.set_viewport_size({"width": width, "height": 900})
                assert not faults(page)
        page.locator("#name").press_sequentially("the-reader")
        page.locator("#secret").press_sequentially("wrong")
        page.locator("#secret").press("Enter")
        expect(page.get_by_role("alert")).to_have_text("This account and password do not belong together.")
        assert not faults(page)
        expect(page.locator("#name")).to_have_value("the-reader")
        page.locator("#secret").press_sequentially("reader-secret")
        page.locator("#secret").press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text(f"Topic {TOPIC}")
        expect(page.get_by_role("link", name="Delete")).to_have_count(0)
        assert not faults(page)
        other = page.context.new_page()
        other.goto(address)
        page.get_by_role("button", name="Log out the-reader").press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
        expect(other.get_by_role("heading", level=1)).to_have_text("Log in")
        page.goto(f"{address}topic?topic={TOPIC}")
        page.locator("#name").press_sequentially("the-chief")
        page.locator("#secret").press_sequentially("chief-secret")
        page.locator("#secret").press("Enter")
        expect(page.get_by_role("link", name="Delete")).to_be_visible()
    assert not [error for error in errors if "status of 403" not in error and "status of 401" not in error
                and "ERR_" not in error]  # fmt: skip
