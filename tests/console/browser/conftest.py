"""One browser and one site for all tests of a module.

`make test` does not install what drives the browser, 165 MB: without it these tests are not collected. `make test-all`
installs it first.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

from tests.browser import BROWSER, needed_arguments
from tests.console.browser.site import TIMEOUT_MS, Site, running_site

collect_ignore_glob = [] if find_spec("playwright") else ["test_*.py"]


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=BROWSER, args=list(needed_arguments()))
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_site(tmp_path_factory.mktemp("traces")) as running:
        yield running


@pytest.fixture
def errors() -> list[str]:
    return []


@pytest.fixture
def page(browser: "Browser", errors: list[str]) -> "Iterator[Page]":
    """A page whose errors are written down. What is expected of it may take its time."""
    from playwright.sync_api import expect

    expect.set_options(timeout=TIMEOUT_MS)
    context = browser.new_context(locale="en-US")
    context.set_default_timeout(TIMEOUT_MS)
    opened = context.new_page()
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("console", lambda said: errors.append(said.text) if said.type in ("error", "warning") else None)
    yield opened
    context.close()
