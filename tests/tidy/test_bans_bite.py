"""The tidy tests find what they look for: each rule is shown an offence."""

import ast
from pathlib import Path

import pytest

from tests.tidy.source import Source
from tests.tidy.test_banned import banned_methods, banned_names, set_iterations


def parsed(text: str, path: str = "broker/example.py") -> Source:
    """A Source of text that is in no file."""
    source = Source.__new__(Source)
    source.path, source.text, source.tree = Path(path), text, ast.parse(text)
    source.top = source.path.parts[0]
    return source


@pytest.mark.parametrize(
    "text",
    [
        "import time\ntime.time()",
        "import time as t\nx = t.monotonic",
        "from time import perf_counter_ns\nperf_counter_ns()",
        "from datetime import datetime\ndatetime.now()",
        "import random\nrandom.random()",
        "import random\nrandom.Random(1)",
        "import uuid\nuuid.uuid4()",
        "import asyncio\nasyncio.wait([])",
        "import asyncio\nasync def f(): await asyncio.wait_for(g(), 1)",
        "import threading\nthreading.Lock()",
        "import concurrent.futures\nconcurrent.futures.ThreadPoolExecutor()",
        "open('x')",
        "hash('x')",
    ],
)
def test_a_banned_name_is_found(text: str) -> None:
    """Whatever way a banned name is imported, its use is reported."""
    assert list(banned_names(parsed(text)))


@pytest.mark.parametrize(
    "text",
    [
        "import random\ndef f(rng: random.Random) -> None: ...",
        "def f(runtime): return runtime.now_ms()",
        "def f(log): log.open()",
        "import asyncio\nasync def f():\n    async with asyncio.timeout(1):\n        await g()",
        "timeout = 3\ntime = timeout",
    ],
)
def test_what_is_allowed_is_not_reported(text: str) -> None:
    """Annotations, the Runtime's own methods and names that merely look alike pass."""
    assert not list(banned_names(parsed(text)))


def test_methods_and_sets_are_found() -> None:
    """A method banned on every object, and a loop over a set, are reported."""
    assert list(banned_methods(parsed("loop.run_in_executor(None, f)")))
    assert list(set_iterations(parsed("for x in {1, 2}: pass")))
    assert list(set_iterations(parsed("[x for x in set(y)]")))


@pytest.mark.parametrize(
    ("path", "text", "module"),
    [
        ("broker/store/memory.py", "from .base import x", "lockstep.broker.store.base"),
        ("broker/store/memory.py", "from ..config import x", "lockstep.broker.config"),
        ("broker/store/__init__.py", "from .memory import x", "lockstep.broker.store.memory"),
        ("broker/store/__init__.py", "from ..config import x", "lockstep.broker.config"),
        ("broker/store/memory.py", "from . import base", "lockstep.broker.store"),
    ],
)
def test_relative_imports_are_made_absolute(path: str, text: str, module: str) -> None:
    """The import law cannot be slipped by with dots."""
    source = parsed(f"{text}\n", path)
    assert [found.module for found in source.imports] == [module]
