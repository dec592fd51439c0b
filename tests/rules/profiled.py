"""A pytest plugin: runs the tests that docs/COVERAGE.md names and checks that the functions of their rules ran.

`python -m pytest -p tests.rules.profiled` selects these tests, profiles them, and fails when a rule names a function
that its test did not call. The profiler cannot see other processes (a broker process, a Spark worker): rules whose test
stands under `integration/`, `interop/` or `pipeline/` are not judged.
"""

import json
import sys
import threading
from collections.abc import Generator
from functools import cache
from types import CodeType, FrameType
from typing import Any

import pytest

from tests.rules.table import PAGE, Rule, defined, named_tests, rules
from tests.tidy.source import ROOT

ELSEWHERE = (
    "tests/integration/",
    "tests/interop/",
    "tests/pipeline/",
    "tests/differential/",
)  # other processes do the work there
OUTPUT = ROOT / "build" / "profiled"


class Calls:
    """Code objects that were called between `start` and `stop`, in every thread."""

    def __init__(self) -> None:
        self.seen: set[CodeType] = set()

    def start(self) -> None:
        self.seen.clear()
        threading.setprofile(self._called)
        sys.setprofile(self._called)

    def stop(self) -> set[str]:
        sys.setprofile(None)
        threading.setprofile(None)
        root = f"{ROOT}/"
        return {code.co_qualname for code in self.seen if code.co_filename.startswith(root)}

    def _called(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self.seen.add(frame.f_code)


def ran(function: str, called: set[str]) -> bool:
    """Whether a function, or any method of a class, was called. A class without methods cannot be seen."""
    return function not in with_code() or any(name == function or name.startswith(f"{function}.") for name in called)


@cache
def with_code() -> frozenset[str]:
    """What can be seen when it is called: functions, and classes with methods of their own."""
    return frozenset(name for name in defined() if "." in name or name[0].islower() or name[0] == "_") | frozenset(
        name.partition(".")[0] for name in defined() if "." in name
    )


def offence(rule: Rule, calls: dict[str, set[str]]) -> str | None:
    """The functions that a rule names and its test did not run, as a line; None where all ran."""
    (test,) = named_tests()[rule.test]
    if test.startswith(ELSEWHERE):
        return None
    missing = [function for function in rule.functions if not ran(function, calls.get(test, set()))]
    return f"{PAGE.name}:{rule.line}: not run by {test}: {', '.join(missing)}" if missing else None


class Profiled:
    """The plugin's state: each test's calls; a worker of pytest-xdist leaves its own in a file."""

    def __init__(self) -> None:
        self.calls = Calls()
        self.by_test: dict[str, set[str]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        wanted = {named_tests()[rule.test][0] for rule in rules()}
        items[:] = [item for item in items if item.nodeid.partition("[")[0] in wanted]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self.calls.start()
        try:
            return (yield)
        finally:
            self.by_test.setdefault(item.nodeid.partition("[")[0], set()).update(self.calls.stop())

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        OUTPUT.mkdir(parents=True, exist_ok=True)
        worker = getattr(session.config, "workerinput", {}).get("workerid", "main")
        called = {name: sorted(functions) for name, functions in self.by_test.items()}
        (OUTPUT / f"{worker}.json").write_text(json.dumps(called), encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        calls: dict[str, set[str]] = {}
        for file in OUTPUT.glob("*.json"):
            for name, functions in json.loads(file.read_text(encoding="utf-8")).items():
                calls.setdefault(name, set()).update(functions)
        offences = [told for rule in rules() if (told := offence(rule, calls)) is not None]
        terminalreporter.section("rules whose tests do not run their functions")
        for told in offences:
            terminalreporter.write_line(told)
        terminalreporter.write_line(f"{len(offences)} of {len(rules())} rules")
        if offences:
            terminalreporter._session.exitstatus = 1


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        for file in OUTPUT.glob("*.json"):
            file.unlink()
    config.pluginmanager.register(Profiled(), "lockstep-profiled")
