"""Real clients on our broker, our client on a real one. Run by `make interop`, which sets them up."""

from collections.abc import Generator

import pytest

from tests.interop.harness.fixtures import (  # noqa: F401
    apache,
    drivers,
    either,
    fresh_group,
    fresh_topic,
    interop_row,
    lockstep,
)
from tests.interop.harness.installed import BUILD
from tests.interop.harness.table import Rows, judge, print_table, write_json
from tests.interop.stories.java_story import quick_story, story  # noqa: F401

_ROWS = pytest.StashKey[Rows]()


def pytest_configure(config: pytest.Config) -> None:
    rows = config.stash[_ROWS] = Rows()
    config.pluginmanager.register(rows)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Rows count once: with the call, or with a set-up that did not come so far."""
    report = yield
    if report.when == "call" or (report.when == "setup" and report.outcome != "passed"):
        funcargs = getattr(item, "funcargs", {})
        judge(item, funcargs.get("interop_row"), report)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    rows = config.stash[_ROWS].all
    if rows:
        terminalreporter.section("interop")
        print_table(rows)
        write_json(rows, BUILD / "rows.json")
