"""The pytest plugin: the fixture `lockstep_broker`, for every project that has lockstep-mq installed.

One broker a session (with pytest-xdist, one a worker), started by the first test that needs it. pytest imports this
module in every run, so it imports only pytest; other imports are in the fixtures.
"""

import itertools
import os
import re
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from lockstep.testing.broker import LockstepBroker
    from lockstep.testing.session import BrokerSession

__all__ = ["lockstep_broker", "lockstep_session", "pytest_addoption"]

_VARIABLE = "NAMESRV_ADDR"
_NAME_LENGTH_MAX = 80  # a retry topic adds to it, and RocketMQ allows 127
_serials = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--lockstep-broker-args` and the ini setting `lockstep_broker_args`: options of lockstep-broker."""
    text = "more options of lockstep-broker for the fixture lockstep_broker"
    group = parser.getgroup("lockstep", "a RocketMQ broker for tests")
    group.addoption("--lockstep-broker-args", metavar="ARGS", default="", help=f"{text}, as in a shell")
    parser.addini("lockstep_broker_args", text, type="args", default=[])


@pytest.fixture(scope="session")
def lockstep_session(pytestconfig: pytest.Config) -> "Iterator[BrokerSession]":
    """The broker's process, for fixtures with a wider scope than a test; the first test that needs it starts it."""
    from lockstep.testing.session import BrokerSession

    options = [*pytestconfig.getini("lockstep_broker_args"), *shlex.split(pytestconfig.option.lockstep_broker_args)]
    session = BrokerSession(options)
    yield session
    session.end()


@pytest.fixture
def lockstep_broker(request: pytest.FixtureRequest, lockstep_session: "BrokerSession") -> "Iterator[LockstepBroker]":
    """A RocketMQ-compatible broker with a fresh topic and group for this test, and NAMESRV_ADDR set to find it."""
    name = re.sub(r"[^a-zA-Z0-9_-]+", "-", request.node.name)[:_NAME_LENGTH_MAX].strip("-")
    broker = lockstep_session.begin_test(f"{name}-{next(_serials)}", request.node.nodeid)
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = broker.name_server
    yield broker
    if before is None:
        os.environ.pop(_VARIABLE, None)
    else:
        os.environ[_VARIABLE] = before
    lockstep_session.end_test()
