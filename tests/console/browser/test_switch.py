"""Two clusters by their contexts in Chromium: one answers, the other has no broker."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from lockstep.cli.context.contexts import Context, Contexts, encode
from tests.browser import NEEDS_BROWSER
from tests.commands import Running
from tests.console.browser.looks import faults
from tests.console.browser.site import TOPIC, Site

pytestmark = [NEEDS_BROWSER, pytest.mark.process, pytest.mark.long]


def test_the_switch_of_clusters(site: Site, page: Page, tmp_path: Path, errors: list[str]) -> None:
    """By keyboard to the same page of the other one, and back; forms and live pages stay in their cluster."""
    contexts = {"east": Context(name_server=site.lockstep.name_server), "west": Context(name_server="127.0.0.1:1")}
    (tmp_path / "lockstep").mkdir()
    (tmp_path / "lockstep/contexts.json").write_bytes(encode(Contexts(None, contexts)))
    environment = {**site.lockstep.environment, "XDG_CONFIG_HOME": str(tmp_path)}
    with Running(site.lockstep.command("console", "--port", "0", "--all-contexts"), environment) as console:
        address = console.error_line().partition("console is at ")[2].split(" ")[0]
        page.goto(address)
        expect(page).to_have_url(f"{address}cluster/east/")
        expect(page.locator("main")).to_contain_text(TOPIC)
        for width in (1280, 800, 390):
            page.set_viewport_size({"width": width, "height": 900})
            assert not faults(page)
        page.get_by_role("link", name="Brokers").press("Enter")
        expect(page).to_have_url(f"{address}cluster/east/brokers")
        page.get_by_role("link", name="west").press("Enter")
        expect(page).to_have_url(f"{address}cluster/west/brokers")
        expect(page.locator("main")).to_contain_text("No broker answers yet")
        page.get_by_role("link", name="east").press("Enter")
        expect(page.locator("tbody")).to_contain_text("broker-a")
        page.goto(f"{address}cluster/east/send?topic={TOPIC}")
        page.locator("#body").press_sequentially("east")
        page.get_by_role("button", name="Send").press("Enter")
        page.locator("#stored").press("Enter")
        expect(page.locator("pre")).to_have_text("east")
    assert not [error for error in errors if "/events" not in error and "ERR_" not in error]
