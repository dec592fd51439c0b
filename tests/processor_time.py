"""What a run costs, in processor seconds: user and system, of pytest, its workers and all that they started.

The summary says the sum. `--cpu-ceiling=SECONDS` makes a run fail that costs more, and with `CI` in the environment a
test of `--tier=quick` fails the run when it takes over CALL_MAX_S and is not marked `long`. Processor time says the
same on a machine that is busy with other work, within about a third: caches are shared.
"""

import os
import resource
import time
from collections.abc import Generator

import pytest

from tests.forked.process import seconds_of_forked
from tests.tiers import Tier

__all__ = ["ProcessorTime", "add_options"]

# A test of two seconds is `long`. A slow and crowded machine takes three times as long for the same work, and a
# run may fail only for what a test does, not for where it runs.
CALL_MAX_S = 6.0
_PROPERTY = "processor seconds"


def add_options(parser: pytest.Parser) -> None:
    parser.addoption("--cpu-ceiling", type=float, metavar="SECONDS", help="fail if the run costs more processor time")


def seconds_of_children() -> float:
    """Of those that have ended and were waited for, with their own children, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class ProcessorTime:
    """A plugin of pytest: workers measure their tests, and the controller of xdist, or pytest alone, judges."""

    def __init__(self, config: pytest.Config) -> None:
        self._is_worker = hasattr(config, "workerinput")
        self._ceiling: float | None = config.getoption("--cpu-ceiling")
        self._judges_calls = Tier.of(config) is Tier.QUICK and "CI" in os.environ
        self._dear: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        before = time.process_time() + seconds_of_children() + seconds_of_forked()
        try:
            return (yield)
        finally:
            seconds = time.process_time() + seconds_of_children() + seconds_of_forked() - before
            item.user_properties.append((_PROPERTY, seconds))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            seconds = sum(float(str(value)) for name, value in report.user_properties if name == _PROPERTY)
            if seconds > CALL_MAX_S:
                self._dear[report.nodeid] = seconds

    @pytest.hookimpl(trylast=True)  # when the workers have ended, so that they are counted
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not self._is_worker and session.exitstatus == pytest.ExitCode.OK and self._complaints():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for complaint in self._complaints():
            terminalreporter.write_line(complaint, red=True)
        terminalreporter.write_line(f"processor seconds: {self._sum():.0f}")

    def _sum(self) -> float:
        return time.process_time() + seconds_of_children()

    def _complaints(self) -> list[str]:
        found = []
        if self._judges_calls:
            found += [
                f"{name} took {seconds:.1f} processor seconds: make it cheaper, or mark it `long`"
                for name, seconds in self._dear.items()
            ]
        if self._ceiling is not None and self._sum() > self._ceiling:
            found.append(f"the run cost {self._sum():.0f} processor seconds, and {self._ceiling:.0f} are allowed")
        return found
