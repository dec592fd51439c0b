"""Takes the pictures of docs/console.md: `python -m tests.console.browser.pictures FOLDER`. Chinese needs a font."""

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from threading import Thread

from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser import BROWSER, needed_arguments
from tests.console.browser.site import GROUP, TIMEOUT_MS, TOPIC, Site, running_site
from tests.console.browser.test_takeover import owners

STEPS, STEP_MS = 16, 5000  # a history that fills the range of a minute
JOINS, KILLED = 4, 10  # steps
# File name -> address, width, scheme, language.
PICTURES = {
    "console-order-1280-light": ("/?minutes=1", 1280, "light", "en-US"),
    "console-order-800-dark": ("/?minutes=1", 800, "dark", "en-US"),
    "console-order-390-light": ("/?minutes=1", 390, "light", "en-US"),
    "console-broker": ("/brokers?minutes=1", 1280, "light", "en-US"),
    "console-group": (f"/group?group={GROUP}&minutes=1", 1280, "light", "en-US"),
    "console-group-phone": (f"/group?group={GROUP}&minutes=1", 390, "dark", "zh-CN"),
    "console-message": (f"/message?topic={TOPIC}&broker=broker-a&queue=0&offset=0", 800, "light", "en-US"),
    "console-key": (f"/key?topic={TOPIC}&key=k1&group={GROUP}", 1280, "dark", "en-US"),
    "console-doctor": ("/doctor", 800, "light", "en-US"),
    "console-reset": (f"/reset?group={GROUP}&topic={TOPIC}&to=earliest", 800, "light", "en-US"),
}
DOCTOR = "console-doctor"  # it needs a group that breaks order
WHOLE = ("console-broker", "console-message", DOCTOR, "console-reset")  # the others as far as a window shows


def a_history(site: Site, page: Page) -> None:
    """Messages come all the time, a third member joins, and one is killed."""
    page.goto(f"{site.address}/?group={GROUP}")
    owners(page, 2)
    for name in site.members:
        drain(site, name)
    for step in range(STEPS):
        lines = "".join(f'{{"order": "k{number % 5}", "number": {number}}}\n' for number in range(20 + step % 4 * 15))
        site.lockstep("produce", TOPIC, "--key-field", "order", stdin=lines)
        if step == JOINS:
            drain(site, site.join())
        if step == KILLED:
            site.members["member-1"].popen.kill()
        page.wait_for_timeout(STEP_MS)


def drain(site: Site, name: str) -> None:
    """Read what a member prints: a full pipe would stop it."""
    stream = site.members[name].popen.stdout
    assert stream is not None
    Thread(target=stream.read, daemon=True).start()


def take(browser: Browser, site: Site, folder: Path, *names: str) -> None:
    for name in names:
        path, width, scheme, locale = PICTURES[name]
        context = browser.new_context(locale=locale, color_scheme="dark" if scheme == "dark" else "light")
        page = context.new_page()
        page.set_viewport_size({"width": width, "height": 600 if name in WHOLE else 900})
        page.goto(site.address + path)
        if path == "/doctor":
            expect(page.locator("main")).to_contain_text("rules looked at", timeout=TIMEOUT_MS)
        page.wait_for_timeout(500)
        page.screenshot(path=folder / f"{name}.png", full_page=name in WHOLE)
        context.close()


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        traces = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        site = stack.enter_context(running_site(traces))
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=BROWSER, args=list(needed_arguments()))
        a_history(site, browser.new_page())
        take(browser, site, folder, *(name for name in PICTURES if name != DOCTOR))
        mixed = ("consume", TOPIC, "-g", "billing", "--from", "first")
        stack.enter_context(site.lockstep.start(*mixed, "-D", "instanceName=billing-0")).line()
        stack.enter_context(site.lockstep.start(*mixed, "--mode", "concurrent", "-D", "instanceName=billing-1"))
        take(browser, site, folder, DOCTOR)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
