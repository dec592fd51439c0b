"""One browser and one site for all tests of a module."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser import BROWSER, needed_arguments
from tests.console.browser.site import Site, running_site


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=BROWSER, args=list(needed_arguments()))
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running_site() as running:
        yield running
