"""What a run costs, in processor seconds: user and system, of pytest, its workers and all that they started.

The summary says the sum. `--cpu-ceiling=SECONDS` makes a run fail that costs more, and with `CI` in the environment the
tests of `--tier=quick` that take over CALL_MAX_S are named. They do not fail the run: one test may meet a bad moment.
A crowded machine takes twice the processor time for the same work, as caches and cores are shared. So both bounds are
of a quiet machine: what was taken is divided by the machine's slowness (tests/yardstick.py), measured beside the tests.
"""

import os
import resource
import statistics
import time
from collections.abc import Generator

import pytest

from tests.forked.process import seconds_of_forked
from tests.tiers import Tier
from tests.yardstick import slowness

__all__ = ["ProcessorTime", "add_options"]

# A test of two seconds is `long`. The yardstick is short and may meet a better moment than the test: three times that.
CALL_MAX_S = 6.0
_PROPERTY = "processor seconds"
_SLOWNESS = "slowness of the machine"
_MEASURED_EACH = 50  # tests: some 150 times in `make test`, which costs 3 s


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
        self._names_dear_tests = Tier.of(config) is Tier.QUICK and "CI" in os.environ
        self._dear: dict[str, float] = {}
        self._count = 0
        self._slowness: list[float] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        before = time.process_time() + seconds_of_children() + seconds_of_forked()
        try:
            return (yield)
        finally:
            seconds = time.process_time() + seconds_of_children() + seconds_of_forked() - before
            item.user_properties.append((_PROPERTY, seconds))
            if self._is_judged and (self._count % _MEASURED_EACH == 0 or seconds > CALL_MAX_S):
                item.user_properties.append((_SLOWNESS, slowness()))
            self._count += 1

    @property
    def _is_judged(self) -> bool:
        return self._names_dear_tests or self._ceiling is not None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            of = {name: float(str(value)) for name, value in report.user_properties if name in {_PROPERTY, _SLOWNESS}}
            if _SLOWNESS in of:
                self._slowness.append(of[_SLOWNESS])
            seconds = of.get(_PROPERTY, 0.0) / of.get(_SLOWNESS, 1.0)
            if self._names_dear_tests and seconds > CALL_MAX_S:
                self._dear[report.nodeid] = seconds

    @pytest.hookimpl(trylast=True)  # when the workers have ended, so that they are counted
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not self._is_worker and session.exitstatus == pytest.ExitCode.OK and self._too_much():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in (*self._dear_tests(), *self._too_much()):
            terminalreporter.write_line(line, red=True)
        told = f", on a machine {self._slower:.1f} times as slow as a quiet one" if self._slowness else ""
        terminalreporter.write_line(f"processor seconds: {self._sum():.0f}{told}")

    def _sum(self) -> float:
        return time.process_time() + seconds_of_children()

    @property
    def _slower(self) -> float:
        return statistics.fmean(self._slowness) if self._slowness else 1.0

    def _dear_tests(self) -> list[str]:
        return [
            f"{name} took {seconds:.1f} processor seconds of a quiet machine: make it cheaper, or mark it `long`"
            for name, seconds in self._dear.items()
        ]

    def _too_much(self) -> list[str]:
        seconds = self._sum() / self._slower
        if self._ceiling is None or seconds <= self._ceiling:
            return []
        return [f"the run cost {seconds:.0f} processor seconds, and {self._ceiling:.0f} are allowed"]
