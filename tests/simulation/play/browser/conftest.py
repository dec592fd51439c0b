"""`lockstep-sim play` as a process, and a page of the console's browser on it."""

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from tests.commands import SCRIPTS, TIMEOUT_S, Running
from tests.console.browser.conftest import browser, errors, page

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["browser", "errors", "page", "play"]

collect_ignore_glob = [] if find_spec("playwright") else ["test_*.py"]
EXPECTED = "status of 400"
SHOWN_MS = TIMEOUT_S * 1000  # of a replay on a busy machine


@pytest.fixture
def play(page: "Page", errors: list[str]) -> Iterator[Callable[..., str]]:
    """Starts a run with these arguments, opens its page, and waits for the first scene. Returns the address."""
    from playwright.sync_api import expect

    expect.set_options(timeout=SHOWN_MS)
    with ExitStack() as running:

        def begin(*arguments: str) -> str:
            command = [str(SCRIPTS / "lockstep-sim"), "play", "--no-open", "--port", "0", *arguments]
            started = Running(command, os.environ, starter=subprocess.Popen)
            running.enter_context(started)
            from tests.simulation.play.browser.driven import ADDRESS

            found = ADDRESS.search(started.error_line())
            assert found
            page.goto(found[1])
            page.locator(".side").first.wait_for()
            return found[1]

        yield begin
        page.goto("about:blank")
        assert [error for error in errors if not re.search(EXPECTED, error)] == []  # the browser tells of a refusal too
