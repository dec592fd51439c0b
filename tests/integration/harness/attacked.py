"""A broker with its name server under attack: on the simulated network, or as a process. Stories run against both."""

import asyncio
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from lockstep.broker.options import parse_options
from lockstep.broker.server import BrokerServer
from lockstep.client import AdminClient, Producer, ProducerConfig
from lockstep.remoting.host.runtime import AsyncioRuntime, Runtime
from lockstep.simulation import SimRuntime, World, simulate
from lockstep.testing.peer import Peer
from tests.broker.helpers import RecordingLog
from tests.integration.harness.processes import PATIENT_CLIENT, Broker, Processes
from tests.integration.harness.raw import raw_peer

__all__ = [
    "BOTH_PORTS",
    "CLIENT_HOSTS",
    "Attack",
    "Attacked",
    "InProcess",
    "Story",
    "admin_of",
    "limits_met",
    "on_a_process",
    "on_the_simulated_network",
    "producer_of",
]

BOTH_PORTS = ("broker", "name server")
CLIENT_HOSTS = "127.0.0.1,10.0.0.1"  # addresses of the clients: beside a process, and on the simulated network
LINE_MAX = 2000  # characters
OTHER_HOST = "127.0.0.2"  # of the same machine


class Attacked(Protocol):
    """What a story sees of the broker."""

    @property
    def address(self) -> str:
        """ "host:port" of the broker."""

    @property
    def name_server(self) -> str: ...
    @property
    def runtime(self) -> Runtime:
        """Of the clients, which are on the broker's machine."""

    @property
    def other_host(self) -> str:
        """Another address than that of the clients."""

    def peer(self, port: str = "broker", *, elsewhere: bool = False) -> AbstractAsyncContextManager[Peer]:
        """A connection to a port of BOTH_PORTS. `elsewhere`: it comes from `other_host`."""

    def events(self, event: str) -> list[dict[str, Any]]:
        """Log records of this name, oldest first."""

    def log(self) -> list[str]:
        """All lines so far."""

    def is_alive(self) -> bool: ...


Story = Callable[[Attacked], Awaitable[None]]
Attack = Callable[..., None]  # (story, *options of lockstep-broker)


def admin_of(target: Attacked) -> AdminClient:
    """A client that waits on a busy machine for as long as it must."""
    return AdminClient(name_server=target.name_server, config=PATIENT_CLIENT, runtime=target.runtime)


def producer_of(target: Attacked, config: ProducerConfig) -> Producer:
    return Producer("shop", name_server=target.name_server, config=config, runtime=target.runtime)


async def limits_met(target: Attacked) -> dict[str, int]:
    """How often the broker reached each limit."""
    async with admin_of(target) as admin:
        said = await admin.broker_runtime(target.address)
    return {name.removeprefix("limits."): int(value) for name, value in said.items() if name.startswith("limits.")}


# On the simulated network ------------------------------------------------------------------------------------


class Simulated:
    """As `Attacked`."""

    def __init__(self, world: World, server: BrokerServer, log: RecordingLog) -> None:
        self.address, self.name_server = server.broker_address, server.name_server_address
        self.runtime: SimRuntime = world.host("broker")
        self._elsewhere = world.host("elsewhere")
        self.other_host = self._elsewhere.address
        self._log = log

    @asynccontextmanager
    async def peer(self, port: str = "broker", *, elsewhere: bool = False) -> AsyncIterator[Peer]:
        runtime = self._elsewhere if elsewhere else self.runtime
        host, _, number = (self.address if port == "broker" else self.name_server).partition(":")
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await runtime.create_connection(lambda: protocol, host, int(number))
        peer = Peer(reader, asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop()))
        try:
            yield peer
        finally:
            peer.abort()

    def events(self, event: str) -> list[dict[str, Any]]:
        return [fields for _, name, fields in self._log.events if name == event]

    def log(self) -> list[str]:
        return [f"{level} {event} {_in_words(fields)}" for level, event, fields in self._log.events]

    def is_alive(self) -> bool:
        return True


def _in_words(fields: dict[str, Any]) -> str:
    errors = [each for each in fields.values() if isinstance(each, BaseException)]
    return f"{fields} {''.join(line for error in errors for line in traceback.format_exception(error))}"


def on_the_simulated_network(story: Story, *options: str) -> None:
    """Every connection, task and timer of the broker and of the clients must come to an end."""

    async def scenario(world: World) -> None:
        runtime, log = world.host("broker"), RecordingLog()
        given = parse_options(list(options))
        server = BrokerServer(replace(given.config, host=runtime.address), runtime, log)
        for topic in given.topics:
            server.create_topic(topic.name, topic.queue_nums)
        await runtime.run(server.start())
        target = Simulated(world, server, log)
        await target.runtime.run(story(target))  # type: ignore[arg-type]
        await server.shutdown()

    scenario.__module__ = story.__module__
    simulate(scenario, seed=5)


# As a process ------------------------------------------------------------------------------------------------


class InProcess:
    """As `Attacked`."""

    def __init__(self, broker: Broker) -> None:
        self.address, self.name_server = broker.address, broker.name_server
        self.runtime = AsyncioRuntime()
        self.other_host = OTHER_HOST
        self._broker = broker
        self.events = broker.events

    def peer(self, port: str = "broker", *, elsewhere: bool = False) -> AbstractAsyncContextManager[Peer]:
        if elsewhere and sys.platform != "linux":
            pytest.skip("other systems have one address of loopback")
        number = self._broker.port if port == "broker" else self._broker.name_server_port
        return raw_peer(number, OTHER_HOST if elsewhere else "127.0.0.1")

    def log(self) -> list[str]:
        return self._broker.stderr().splitlines()

    def is_alive(self) -> bool:
        return self._broker.status is None


def on_a_process(folder: Path, story: Story, *options: str) -> None:
    """Whatever a peer sends, no line of the log is long."""

    async def play() -> None:
        with Processes(folder) as processes:
            target = InProcess(await processes.broker(*options))
            await story(target)
            assert max(map(len, target.log()), default=0) < LINE_MAX

    asyncio.run(play())
