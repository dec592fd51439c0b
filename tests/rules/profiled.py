"""A pytest plugin: runs the tests that are marked with a rule and checks that the rule's functions ran.

`python -m pytest -p tests.rules.profiled` selects tests by their marker, profiles them, and fails when a rule names a
function that none of its tests called. The profiler cannot see other processes (a broker process, a Spark worker):
rules whose tests all stand under `integration/`, `interop/` or `pipeline/` are not judged.
"""

import ast
import json
import sys
import threading
from collections.abc import Generator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from tests.rules.table import Rule, proofs_of, rules
from tests.tidy.source import ROOT

ELSEWHERE = ("integration/", "interop/", "pipeline/", "differential/")  # other processes do the work there
OUTPUT = ROOT / "build" / "profiled"

Key = tuple[str, str]  # file below the root, qualified name


class Calls:
    """Code objects that were called between `start` and `stop`, in every thread."""

    def __init__(self) -> None:
        self.seen: set[CodeType] = set()

    def start(self) -> None:
        self.seen.clear()
        threading.setprofile(self._called)
        sys.setprofile(self._called)

    def stop(self) -> set[Key]:
        sys.setprofile(None)
        threading.setprofile(None)
        root = f"{ROOT}/"
        return {
            (code.co_filename.removeprefix(root), code.co_qualname)
            for code in self.seen
            if code.co_filename.startswith(root)
        }

    def _called(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self.seen.add(frame.f_code)


def test_name(nodeid: str) -> str:
    """`client/test_x.py::test_y`, without the folder `tests` and without parameters, as `proofs_of` writes it."""
    return nodeid.partition("[")[0].removeprefix("tests/")


def file_and_name(function: str) -> Key:
    """`client.rebalance.Rebalance.run` as (`client/consumer/ownership/rebalance.py`, `Rebalance.run`)."""
    parts = function.split(".")
    for end in range(len(parts) - 1, 0, -1):
        path = Path(*parts[:end])
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if (ROOT / file).is_file():
                return file.as_posix(), ".".join(parts[end:])
    raise LookupError(function)


@cache
def has_code(key: Key) -> bool:
    """Whether calling it can be seen: a function, or a class with methods of its own."""
    tree = ast.parse((ROOT / key[0]).read_text(encoding="utf-8"))
    name = key[1].partition(".")[0]
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name and "." not in key[1]:
            return any(isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) for item in node.body)
    return True


def ran(function: str, called: set[Key]) -> bool:
    """Whether a function, or any method of a class, was called."""
    path, name = file_and_name(function)
    if not has_code((path, name)):
        return True
    return any(
        file == path and (called_name == name or called_name.startswith(f"{name}.")) for file, called_name in called
    )


def offence(rule: Rule, calls: dict[str, set[Key]]) -> str | None:
    """The functions that a rule names and none of its tests ran, as a line; None where all ran."""
    tests = [name for name in proofs_of().get(rule.id, ()) if not name.startswith(ELSEWHERE)]
    if not tests:
        return None
    called = set[Key]().union(*(calls.get(name, set()) for name in tests))
    missing = [function for function in rule.functions if not ran(function, called)]
    return f"{rule.id}: not run by {', '.join(tests)}: {', '.join(missing)}" if missing else None


class Profiled:
    """The plugin's state: each marked test's calls; a worker of pytest-xdist leaves its own in a file."""

    def __init__(self) -> None:
        self.calls = Calls()
        self.by_test: dict[str, set[Key]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.get_closest_marker("rule") is not None]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self.calls.start()
        try:
            return (yield)
        finally:
            self.by_test.setdefault(test_name(item.nodeid), set()).update(self.calls.stop())

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        OUTPUT.mkdir(parents=True, exist_ok=True)
        worker = getattr(session.config, "workerinput", {}).get("workerid", "main")
        told = {name: sorted(keys) for name, keys in self.by_test.items()}
        (OUTPUT / f"{worker}.json").write_text(json.dumps(told), encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        calls: dict[str, set[Key]] = {}
        for file in OUTPUT.glob("*.json"):
            for name, keys in json.loads(file.read_text(encoding="utf-8")).items():
                calls.setdefault(name, set()).update((path, function) for path, function in keys)
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
