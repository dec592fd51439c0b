"""Fixtures of the tests with other people's clients and brokers; a conftest imports those it wants."""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.harness.drivers import Drivers
from tests.interop.harness.servers import DECIDED_MS, Server, apache_server, lockstep_server
from tests.interop.harness.table import RowMaker

__all__ = ["apache", "drivers", "either", "fresh_group", "fresh_topic", "interop_row", "lockstep"]

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Apache's name server and broker, one pair a session."""
    with apache_server(tmp_path_factory.mktemp("apache"), {"transactionTimeOut": DECIDED_MS}) as server:
        yield server


@pytest.fixture(scope="session")
def lockstep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Our broker in a process of its own, one a session."""
    with lockstep_server(tmp_path_factory.mktemp("lockstep")) as server:
        yield server


@pytest.fixture(params=["lockstep", "apache"])
def either(request: pytest.FixtureRequest) -> Server:
    """Each of the two, one after the other."""
    server: Server = request.getfixturevalue(request.param)
    return server


@pytest.fixture
def drivers(tmp_path: Path) -> Iterator[Drivers]:
    """Starts drivers: drivers.java("OrderedProducer", name_server=...), .java5(...), .node(...), .cpp(...),
    .go(...), .python(...), .node5(...), .go5(...), .python5(...), .rust5(...)."""
    started = Drivers(tmp_path)
    try:
        yield started
    finally:
        started.end()


@pytest.fixture
def fresh_topic() -> Callable[[], str]:
    """Names of topics that nobody has used; server.create_topic makes one."""
    return lambda: f"topic-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def fresh_group() -> Callable[[], str]:
    """Names of groups that nobody has used."""
    return lambda: f"group-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def interop_row() -> RowMaker:
    """A line of the table at the end: see RowMaker."""
    return RowMaker()
