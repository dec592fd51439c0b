"""The first law: imports go one way, reach no private names, and make no circles."""

import ast
from collections.abc import Iterator

from tests.tidy.source import (
    PACKAGES,
    PROGRAMS,
    ROOT,
    Source,
    entry_points,
    imported_modules,
    modules,
    programs,
    report,
    sources,
)  # fmt: skip

# Each package and what it may import besides itself. Programs may import every package.
LAYERS: list[set[str]] = [
    {"protocol"}, {"remoting"}, {"store", "order"}, {"broker", "client"}, {"console"}, {"simulation"},
    {"cli", "testing"}, {"pipeline"},
]  # fmt: skip
MAY_IMPORT: dict[str, set[str]] = {
    package: set().union(*LAYERS[:number]) for number, layer in enumerate(LAYERS) for package in layer
}
MAY_IMPORT["console"] -= {"broker", "store"}  # a tool of administrators: it asks brokers

# protocol/ is pure: bytes and their meaning, and nothing that talks to the world.
IMPURE = {
    "asyncio", "contextvars", "io", "logging", "multiprocessing", "os", "pathlib", "random", "secrets", "selectors",
    "signal", "socket", "ssl", "structlog", "subprocess", "sys", "tempfile", "threading", "time", "uuid", "uvloop",
}  # fmt: skip


def package_of(module: str) -> str | None:
    """ "broker" for "lockstep.broker.fronts.remoting.dispatch"; None for what is not ours."""
    parts = module.split(".")
    return parts[1] if parts[0] == "lockstep" and len(parts) > 1 else None


def targets(source: Source) -> Iterator[tuple[str, int]]:
    """(package or program, line) for each import of ours, `from lockstep import broker` included."""
    for found in source.imports:
        module = f"lockstep.{found.name}" if found.module == "lockstep" else found.module
        if package := package_of(module):
            yield package, found.line
        elif module.split(".")[0] in PROGRAMS:
            yield module.split(".")[0], found.line


def test_packages_import_one_way() -> None:
    """A package imports only those below it; broker and client never each other; none imports a program."""
    offences = [
        source.at(line, f"{source.top} must not import {target}; it may import {sorted(MAY_IMPORT[source.top])}")
        for source in modules().values()
        for target, line in targets(source)
        if target != source.top and target not in MAY_IMPORT[source.top]
    ]
    assert not offences, report(offences)


def test_packages_are_imported_under_lockstep() -> None:
    """`import broker` works in the tree alone, and makes every class a second time; `lockstep.broker` it is."""
    offences = [
        source.at(found.line, f"import lockstep.{found.module}, not {found.module}")
        for source in sources()
        for found in source.imports
        if found.module.split(".")[0] in PACKAGES
    ]
    assert not offences, report(offences)


def test_core_messages_and_ownership_of_the_broker_know_no_front() -> None:
    """What a broker does, and who may ask for it, is written on plain values, so that each protocol may ask."""
    rooms = tuple(f"lockstep.broker.{room}." for room in ("core", "messages", "ownership"))
    fronts = ("broker.connection", "broker.fronts", "protocol.command", "protocol.headers", "remoting.connections")
    offences = [
        source.at(found.line, f"{source.path} must not import {found.module}; a front decodes, calls and encodes")
        for source in modules().values()
        for found in source.imports
        if source.module.startswith(rooms) and found.module.removeprefix("lockstep.").startswith(fronts)
    ]
    assert not offences, report(offences)


def test_one_room_of_the_client_knows_the_ways_to_own() -> None:
    """What works under fenced locks and under RocketMQ's is known in its own room; the others ask its ports."""
    room = "lockstep.client.consumer.ownership."
    ways = tuple(room + name for name in ("fenced_commits", "fenced_locks", "lease_watch", "locks", "period_end"))
    offences = [
        source.at(found.line, f"{found.module} {found.name} is one way to own queues; ask Locks or Hold")
        for source in modules().values()
        if source.top == "client" and not source.module.startswith(room)
        for found in source.imports
        if found.module in ways or found.name == "FencedHold"
    ]
    assert not offences, report(offences)


def test_protocol_is_pure() -> None:
    """protocol/ imports nothing that knows a clock, a socket, a file, a thread or a log."""
    offences = [
        source.at(found.line, f"protocol imports {found.module}; take the value as an argument instead")
        for source in modules().values()
        if source.top == "protocol"
        for found in source.imports
        if found.module.split(".")[0] in IMPURE
        and (found.module, found.name) != ("io", "BytesIO")  # only memory
        and (source.path.name, found.module) != ("native.py", "os")  # one variable, which chooses the arm once
    ]
    assert not offences, report(offences)


def test_no_package_uses_private_names_of_another() -> None:
    """A name with a leading underscore is used in its own package only (tests may look inside)."""
    offences = []
    for source in sources():
        if source.top == "tests":
            continue
        offences += [
            source.at(found.line, f"{found.name} is private to {found.module}")
            for found in source.imports
            if found.name and is_private(found.name) and package_of(found.module) not in (None, source.top)
        ]
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Attribute) and is_private(node.attr):
                owner = source.qualified(node.value)
                if owner and package_of(owner) not in (None, source.top):
                    offences.append(source.at(node.lineno, f"{node.attr} is private to {owner}"))
    assert not offences, report(offences)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_no_import_circles() -> None:
    """No module reaches itself through imports, those inside functions included."""
    edges = {name: dict(imported_modules(source)) for name, source in programs().items()}
    done: set[str] = set()
    circles: list[str] = []

    def visit(name: str, trail: list[str]) -> None:
        if name in trail:
            circle = trail[trail.index(name) :]
            line = edges[circle[-1]][name]
            circles.append(programs()[circle[-1]].at(line, f"closes the circle {' -> '.join([*circle, name])}"))
        elif name not in done:
            for target in edges[name]:
                visit(target, [*trail, name])
            done.add(name)

    for name in edges:
        visit(name, [])
    assert not circles, report(circles)


def test_no_dead_modules() -> None:
    """Every module is imported by a package or a program, an entry point or public; a test alone keeps none alive.

    simulation/ is there for tests, so for its modules tests count.
    """
    alive = entry_points() | set((ROOT / "Makefile").read_text(encoding="utf-8").partition("API :=")[2].split())
    for source in sources():
        alive |= {
            target
            for target, _ in imported_modules(source)
            if target != source.module and (source.top != "tests" or package_of(target) == "simulation")
        }
    offences = [
        source.at(1, f"nobody imports {name}")
        for name, source in modules().items()
        if name not in alive and source.path.name not in ("__init__.py", "__main__.py")
    ]
    assert not offences, report(offences)
