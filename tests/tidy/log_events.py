"""The log events of the packages, collected from their source.

An event is the first argument of a call such as `self._log.info("queue_acquired", queue=...)`. A name may hold it, if
the name begins with `event`: it is assigned in the function, comes from a table `..._EVENTS` of the module, or is a
parameter or a field called `event`, so that the callers have the literal.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

from tests.tidy.source import Source, modules

__all__ = ["LOGGING", "Event", "events_of", "prose"]

LOGGING: Final = ("broker", "store", "remoting", "client")
LEVELS: Final = ("debug", "info", "warning", "error")
CODE: Final = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)+|[a-z]+")
RECEIVERS: Final = ("log", "_log", "events", "_events")
NO_FIELDS: Final = ("exc_info",)  # a traceback, not a field
DEFINING: Final = ("remoting/logs.py", "broker/start_log.py")  # logs: their `event` is any event
TRACES: Final = ("record", "record_offsets", "_record")  # of the trace for the order checker, which has events too


class Event(NamedTuple):
    """One place that logs. `level` is "" where the event is held by a name."""

    code: str
    level: str
    fields: frozenset[str]
    place: str


@cache
def events_of(package: str) -> list[Event]:
    positions = _positions(package)
    literal = [event for source in _sources(package, DEFINING) for event in _direct(source)]
    return literal + [event for source in _sources(package) for event in _held(source, positions)]


def prose() -> list[str]:
    """Calls of a log with anything but a literal code or a name that begins with `event`."""
    offences = []
    for source in (one for package in LOGGING for one in _sources(package)):
        for call, _ in _log_calls(source):
            value = call.args[0] if call.args else ast.Constant("")
            is_code = isinstance(value, ast.Constant) and CODE.fullmatch(str(value.value)) is not None
            if not is_code and not _name(value).lstrip("_").startswith("event"):
                offences.append(source.at(call.lineno, f"no event in snake_case: {ast.unparse(call)[:80]}"))
    return offences


def _sources(package: str, also: tuple[str, ...] = ()) -> list[Source]:
    left_out = {*DEFINING} - {*also}
    return [one for one in modules().values() if one.top == package and str(one.path) not in left_out]


def _log_calls(source: Source) -> Iterator[tuple[ast.Call, str]]:
    """Calls of a log with their level; "" where a name holds the method: `write = log.info if calm else log.error`."""
    nodes = list(ast.walk(source.tree))
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    held = {
        _name(node.targets[0])
        for node in nodes
        if isinstance(node, ast.Assign)
        if any(_level(one) and id(one) not in called for one in ast.walk(node.value))
    }
    for node in nodes:
        if isinstance(node, ast.Call):
            if level := _level(node.func):
                yield node, level
            elif isinstance(node.func, ast.Name) and node.func.id in held:
                yield node, ""


def _level(node: ast.AST) -> str:
    is_method = isinstance(node, ast.Attribute) and node.attr in LEVELS and _name(node.value) in RECEIVERS
    return _name(node) if is_method else ""


def _direct(source: Source) -> Iterator[Event]:
    for call, level in _log_calls(source):
        if call.args and isinstance(call.args[0], ast.Constant):
            yield Event(str(call.args[0].value), level, _fields(call), source.at(call.lineno, ""))
    for node in ast.walk(source.tree):
        if (
            isinstance(node, ast.Call)
            and _name(node.func) in ("log_exception", "log_or_raise")
            and isinstance(node.args[1], ast.Constant)
        ):
            yield Event(str(node.args[1].value), "error", _fields(node) | {"error"}, source.at(node.lineno, ""))


def _fields(call: ast.Call) -> frozenset[str]:
    return frozenset(keyword.arg for keyword in call.keywords if keyword.arg) - {*NO_FIELDS}


def _held(source: Source, positions: dict[str, int]) -> Iterator[Event]:
    for node in ast.walk(source.tree):
        values: list[ast.expr] = []
        if isinstance(node, ast.Call) and _name(node.func) in positions:
            values = node.args[positions[_name(node.func)] :][:1]
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            names = [_name(one) for target in _targets(node) for one in ast.walk(target) if isinstance(one, ast.expr)]
            if any(name.startswith("event") or name.endswith("_EVENTS") for name in names):
                values = [node.value]
        for constant in (one for value in values for one in ast.walk(value) if isinstance(one, ast.Constant)):
            if isinstance(constant.value, str) and CODE.fullmatch(constant.value):
                yield Event(constant.value, "", frozenset(), source.at(constant.lineno, ""))


def _positions(package: str) -> dict[str, int]:
    """Functions and classes, of the package and of remoting, that take an event: name -> which argument it is."""
    found = {}
    for source in (*_sources(package), *_sources("remoting")):
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef):
                fields = [_name(one.target) for one in node.body if isinstance(one, ast.AnnAssign)]
                starts = [_parameters(one) for one in node.body if _is_init(one)]
                names = starts[0] if starts else fields
            else:
                names = _parameters(node) if isinstance(node, ast.FunctionDef) else []
            if "event" in names and getattr(node, "name", "") not in (*TRACES, *LEVELS, "__init__"):
                found[node.name] = names.index("event")  # type: ignore[attr-defined]
    return found


def _is_init(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == "__init__"


def _parameters(node: ast.AST) -> list[str]:
    assert isinstance(node, ast.FunctionDef)
    return [one.arg for one in node.args.args if one.arg != "self"]


def _targets(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
