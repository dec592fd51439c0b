"""The second law: time, chance, identity, disk, network and threads come in through `remoting.runtime.Runtime`.

A ban that is right in general and wrong in one place is lifted for that file in ALLOWED, with the reason.
"""

import ast
from collections.abc import Iterator

from tests.tidy.source import Source, entry_points, modules, report, sources

THROUGH_THE_DOOR = ("protocol", "remoting", "store", "order", "broker", "client", "console", "cli", "testing")

CLOCK = "take now_ms as an argument, or ask Runtime.now_ms() / monotonic_ns()"
CHANCE = "take an rng as an argument, or use Runtime.rng"
IDENTITY = "use Runtime.new_identity()"
THREADS = "use Runtime.new_worker_pool()"
NETWORK = "use Runtime.create_connection() / create_server(); for addresses, ipaddress"
DISK = "use Runtime.storage"
SEEDED_HASH = "str hashes change with PYTHONHASHSEED; use zlib.crc32 or lockstep.protocol's Java hash"

# A qualified name, or a prefix ending in a dot that stands for all below it -> the cure.
BANS: dict[str, str] = {
    "time.": CLOCK,
    "datetime.datetime.now": CLOCK,
    "datetime.datetime.utcnow": CLOCK,
    "datetime.datetime.today": CLOCK,
    "datetime.date.today": CLOCK,
    "random.": CHANCE,
    "secrets.": CHANCE,
    "os.urandom": CHANCE,
    "uuid.": IDENTITY,
    "os.getpid": IDENTITY,
    "socket.gethostname": IDENTITY,
    "threading.": THREADS,
    "concurrent.": THREADS,
    "multiprocessing.": THREADS,
    "subprocess.": THREADS,
    "asyncio.to_thread": THREADS,
    "signal.": "signals live in __main__ alone",
    "socket.": NETWORK,
    "select.": NETWORK,
    "selectors.": NETWORK,
    "asyncio.open_connection": NETWORK,
    "asyncio.start_server": NETWORK,
    "builtins.open": DISK,
    "io.open": DISK,
    "os.open": DISK,
    "pathlib.": DISK,
    "shutil.": DISK,
    "tempfile.": DISK,
    "builtins.hash": SEEDED_HASH,
    "asyncio.wait": "it hands back sets; await the tasks one by one, or asyncio.gather",
    "asyncio.wait_for": "Python 3.11's takes more turns of the loop than 3.12's; use asyncio.timeout",
    "asyncio.as_completed": "its order is an accident; await the tasks one by one, or asyncio.gather",
    "asyncio.create_task": "use Runtime.create_task, which keeps and names the task",
    "asyncio.ensure_future": "use Runtime.create_task, which keeps and names the task",
    "asyncio.get_event_loop": "use asyncio.get_running_loop",
    "asyncio.new_event_loop": "only __main__ makes a loop",
    "asyncio.run": "only __main__ runs a loop",
}

# Methods of any object -> the cure.
BANNED_METHODS: dict[str, str] = {
    "run_in_executor": THREADS,
    "read_text": DISK,
    "write_text": DISK,
    "read_bytes": DISK,
    "write_bytes": DISK,
}

# Names whose mention is harmless: a type to annotate with. Calling them is still banned.
TYPES_ONLY = {"random.Random", "pathlib.Path", "socket.socket"}

# File -> (names allowed there, why).
ALLOWED: dict[str, tuple[set[str], str]] = {
    "remoting/host/runtime.py": ({"time.", "random.", "threading.", "socket.", "os."}, "it is the door"),
    "remoting/host/clocks.py": ({"time.", "pathlib.", "uuid."}, "it is the clock behind the door"),
    "remoting/connections/blocking_endpoint.py": (
        {"socket.", "time.", "secrets."},
        "it is the door of a thread without a loop; the blocking client has no other",
    ),
    "remoting/host/os_storage.py": ({"os.", "pathlib."}, "it is the disk behind the door"),
    "remoting/host/writable.py": ({"os.", "pathlib."}, "it asks the disk for a command, before a Runtime is there"),
    "remoting/host/report_stream.py": ({"os.", "select."}, "it is stderr of a program: what it writes must never wait"),
    "remoting/host/manual_clock.py": ({"socket."}, "a port is kept while a broker is down"),
    "remoting/tls/options.py": ({"pathlib."}, "OpenSSL reads certificates from the disk itself"),
    "broker/tls.py": ({"pathlib.", "tempfile."}, "likewise, and trustme writes them"),
    "client/consumer/ownership/lock_requests.py": ({"asyncio.wait"}, "for one reply; its sets are not looked at"),
    "client/consumer/ownership/locks.py": ({"asyncio.wait"}, "for one task, likewise"),
    "order/judge/sent.py": (
        {"builtins.hash"},
        "ids are compared for equality within one process, never kept or ordered",
    ),
    "order/judge/rules.py": ({"pathlib."}, "it reads files of processes that have ended, outside of any simulation"),
    "order/story.py": ({"pathlib."}, "likewise"),
    "cli/stdout_reader.py": ({"select."}, "whether the other end of stdout is closed; no data passes"),
    "console/server.py": ({"socket.", "secrets."}, "uvicorn serves a socket that it is given; forms have a token"),
    "testing/control.py": (
        {"socket.", "threading."},
        "it runs inside of somebody's test, which may have no loop",
    ),
    "testing/process.py": (
        {"subprocess.", "signal.", "pathlib.", "tempfile.", "time."},
        "likewise, and it starts, watches and ends processes",
    ),
}

# A process begins at `__main__` or at a command of pyproject.toml; there, and only there, it makes its loop.
ENTRY_MAY = {"asyncio.run", "asyncio.new_event_loop", "signal."}


def matches(name: str, patterns: set[str] | dict[str, str]) -> str | None:
    """The pattern that covers `name`: itself, or a prefix "time." of it."""
    return next((p for p in patterns if name == p or (p.endswith(".") and f"{name}.".startswith(p))), None)


def uses(source: Source) -> Iterator[tuple[str, int]]:
    """(qualified name, line) for every imported or builtin name that the file mentions, calls marked with ()."""
    called = {id(node.func) for node in ast.walk(source.tree) if isinstance(node, ast.Call)}
    inner = {id(node.value) for node in ast.walk(source.tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Name | ast.Attribute) and id(node) not in inner:
            name = source.qualified(node)
            if name and not (name in TYPES_ONLY and id(node) not in called) and name not in MODULES:
                yield name, node.lineno


MODULES = {pattern.rstrip(".") for pattern in BANS if pattern.endswith(".")}


def banned_names(source: Source) -> Iterator[str]:
    allowed = ALLOWED.get(source.path.as_posix(), (set(), ""))[0]
    if source.path.name == "__main__.py" or source.module in entry_points():
        allowed = allowed | ENTRY_MAY
    for name, line in uses(source):
        pattern = matches(name, BANS)
        if pattern and not matches(name, allowed):
            yield source.at(line, f"{name.removeprefix('builtins.')} is banned here: {BANS[pattern]}")


def banned_methods(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in BANNED_METHODS:
            yield source.at(node.lineno, f".{node.func.attr}() is banned here: {BANNED_METHODS[node.func.attr]}")


def set_iterations(source: Source) -> Iterator[str]:
    """Loops over what is plainly a set; the order would follow PYTHONHASHSEED."""
    loops = (ast.For, ast.AsyncFor, ast.comprehension)
    for node in ast.walk(source.tree):
        if isinstance(node, loops) and is_set(node.iter):
            yield source.at(node.iter.lineno, "iterates over a set; use sorted(...) or a dict")


def is_set(node: ast.expr) -> bool:
    makes_set = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("set", "frozenset")
    return makes_set or isinstance(node, ast.Set | ast.SetComp)


def test_the_world_comes_in_through_the_door() -> None:
    """No clock, chance, identity, disk, network or thread but through the Runtime, in all that must run simulated."""
    offences = [
        offence
        for source in modules().values()
        if source.top in THROUGH_THE_DOOR
        for check in (banned_names, banned_methods, set_iterations)
        for offence in check(source)
    ]
    assert not offences, report(offences)


def test_every_exception_is_still_needed() -> None:
    """ALLOWED shrinks: an entry for a file that is gone, or a name the file no longer uses, must go too."""
    files = {source.path.as_posix(): source for source in modules().values()}
    offences = []
    for path, (names, _) in ALLOWED.items():
        used = {name for name, _ in uses(files[path])} if path in files else set()
        offences += [
            f"{path}:1: no longer uses {allowed}; take it out of ALLOWED"
            for allowed in sorted(names)
            if not any(matches(name, {allowed}) for name in used)
        ]
    assert not offences, report(offences)


def test_tests_do_not_sleep() -> None:
    """time.sleep in a test waits for the wall clock; move virtual time, or wait for a condition."""
    offences = [
        source.at(line, "time.sleep in a test: move virtual time, or wait for a condition")
        for source in sources()
        if source.top == "tests"
        for name, line in uses(source)
        if name == "time.sleep"
    ]
    assert not offences, report(offences)


# Files that replace what is not theirs -> why.
REPLACES = {
    "simulation/museum/variant.py": "an exhibit puts a mistake back into the code",
    "simulation/virtual_time/nondeterminism.py": "it guards the standard library",
}


def test_the_lab_observes_the_product_through_its_ports() -> None:
    """No method of it is replaced. mypy finds one that is assigned; setattr or an ignore would hide it from mypy."""
    found = [
        (source, line)
        for source in modules().values()
        if source.top in ("simulation", "testing")
        for line in (
            *(line for name, line in uses(source) if name == "builtins.setattr"),
            *(number for number, text in enumerate(source.text.splitlines(), 1) if "ignore[method-assign" in text),
        )
    ]
    offences = [
        source.at(line, "replaces a method; give the product, or the world, a port for observers")
        for source, line in found
        if source.path.as_posix() not in REPLACES
    ]
    assert not offences, report(offences)
    assert REPLACES.keys() <= {source.path.as_posix() for source, _ in found}, "an entry is not needed any more"
