"""Takes the pictures of docs/console.md, but not of Order: `python -m tests.console.browser.pictures FOLDER`."""

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser import BROWSER, needed_arguments
from tests.console.browser.site import GROUP, TIMEOUT_MS, TOPIC, Site, running_site
from tests.console.browser.test_takeover import owners

HISTORY_MS = 40_000  # so that ribbons and the line of the lag have something to show
# File name -> address, width, scheme, language.
PICTURES = {
    "console-group": (f"/group?group={GROUP}", 1280, "light", "en-US"),
    "console-group-phone": (f"/group?group={GROUP}", 390, "dark", "zh-CN"),
    "console-message": (f"/message?topic={TOPIC}&broker=broker-a&queue=0&offset=0", 800, "light", "en-US"),
    "console-key": (f"/key?topic={TOPIC}&key=k1", 1280, "dark", "en-US"),
    "console-broker": ("/brokers", 1280, "light", "en-US"),
    "console-doctor": ("/doctor", 800, "light", "en-US"),
    "console-reset": (f"/reset?group={GROUP}&topic={TOPIC}&to=earliest", 800, "light", "en-US"),
}


def a_history(site: Site, page: Page) -> None:
    """A third member joins, one is killed, and messages come."""
    page.goto(f"{site.address}/?group={GROUP}")
    owners(page, 2)
    site.join()
    owners(page, 3)
    page.wait_for_timeout(HISTORY_MS / 2)
    site.members["member-1"].popen.kill()
    owners(page, 2)
    lines = "".join(f'{{"order": "k{number % 5}", "number": {number}}}\n' for number in range(40, 400))
    site.lockstep("produce", TOPIC, "--key-field", "order", stdin=lines)
    page.wait_for_timeout(HISTORY_MS / 2)


def take(browser: Browser, site: Site, folder: Path) -> None:
    for name, (path, width, scheme, locale) in PICTURES.items():
        context = browser.new_context(locale=locale, color_scheme="dark" if scheme == "dark" else "light")
        page = context.new_page()
        page.set_viewport_size({"width": width, "height": 700})
        page.goto(site.address + path)
        if path == "/doctor":
            expect(page.locator("main")).to_contain_text("rules looked at", timeout=TIMEOUT_MS)
        page.wait_for_timeout(500)
        page.screenshot(path=folder / f"{name}.png", full_page=width > 390)
        context.close()


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        traces = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        site = stack.enter_context(running_site(traces))
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=BROWSER, args=list(needed_arguments()))
        a_history(site, browser.new_page())
        mixed = ("consume", TOPIC, "-g", "billing", "--from", "first")
        stack.enter_context(site.lockstep.start(*mixed, "-D", "instanceName=billing-0")).line()
        stack.enter_context(site.lockstep.start(*mixed, "--mode", "concurrent", "-D", "instanceName=billing-1"))
        take(browser, site, folder)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
