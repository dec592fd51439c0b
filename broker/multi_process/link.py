"""The broker's end of the pipes to the command that started it: topics, and the end of either."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Final

from lockstep.broker.core.broker import Broker
from lockstep.broker.multi_process.pipe import Lines, Said, decode_said, encode_said
from lockstep.broker.server import BrokerServer
from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.names import is_retry_topic
from lockstep.remoting.host.runtime import Runtime
from lockstep.remoting.settings import SettingError

__all__ = ["CommandLink"]

_SPREAD_WITHIN_S: Final = 1.0


class CommandLink(asyncio.Protocol):
    """One broker of several.

    A topic that a send creates here is created on the other brokers before it is registered: its queues must not
    appear one broker after the other, or keys would go to other queues for a while.
    """

    def __init__(self, runtime: Runtime, waits: bool, closed: Callable[[], None]) -> None:
        """
        Args:
            waits: The broker serves when it is registered with the name server of the command.
            closed: Called when the command has ended.
        """
        self._runtime = runtime
        self._waits = waits
        self._closed = closed
        self._lines = Lines()
        self._broker: Broker | None = None
        self._greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._registers: Callable[[Sequence[TopicConfig]], None] = lambda _: None
        self._early: list[TopicConfig] = []  # came before the broker was there
        self._spreading = 0
        self._spread = asyncio.Event()
        self._spread.set()
        self._out: asyncio.WriteTransport | None = None

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: self, sys.stdin)
        self._out, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, sys.stdout)

    async def join(self, broker: Broker) -> None:
        """Wait for the topics that the broker begins with, and create them. From now on topics are spread."""
        await self._greeted
        self._broker = broker
        for config in self._early:
            self._create(config)
        self._registers = broker.catalog.on_topics_changed
        broker.catalog.on_topics_changed = self._on_topics_changed
        broker.catalog.topics.on_delete = lambda topic: self._say(Said(deleted=(topic,)))
        broker.catalog.on_created_by_send = self._on_created_by_send
        broker.catalog.before_registering = self._until_spread
        if broker.durable is None:
            self._say(Said(topics=tuple(broker.catalog.topics.topics)))

    async def serving(self, server: BrokerServer, addresses: dict[str, str]) -> None:
        """The broker listens at these addresses. Tell it when it is registered too.

        Raises:
            SettingError: The name server of the command refuses it.
        """
        if self._waits:
            refused = await server.registered()
            if refused:
                raise SettingError(f"cannot register with the name server at {refused}")
        self._say(Said(listening=addresses))

    def data_received(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            said = decode_said(line)
            if self._broker is None:
                self._early += said.topics
            else:
                for config in said.topics:
                    self._create(config)
            if not self._greeted.done():
                self._greeted.set_result(None)
            if said.spread:
                self._spreading -= 1
                if not self._spreading:
                    self._spread.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._greeted.done():
            self._greeted.set_result(None)
        self._spread.set()
        self._closed()

    def _say(self, said: Said) -> None:
        if self._out is not None and not self._out.is_closing():
            self._out.write(encode_said(said))

    def _create(self, config: TopicConfig) -> None:
        broker = self._broker
        assert broker is not None
        if broker.catalog.topics.get(config.topic_name) is None:
            broker.catalog.topics.put(config, self._runtime.now_ms())

    def _on_topics_changed(self, changed: Sequence[TopicConfig]) -> None:
        broker = self._broker
        assert broker is not None
        self._registers(changed)
        if changed and broker.durable is None:
            # A store in files has its topics after a restart.
            self._say(Said(topics=tuple(changed)))

    def _on_created_by_send(self, config: TopicConfig) -> None:
        if is_retry_topic(config.topic_name):
            # Each broker creates it when a member of the group comes.
            return
        self._spreading += 1
        self._spread.clear()
        self._say(Said(sent_to=config))

    async def _until_spread(self) -> None:
        """Returns when the other brokers have the topics that sends created here, at the latest after a second."""
        try:
            async with asyncio.timeout(_SPREAD_WITHIN_S):
                await self._spread.wait()
        except TimeoutError:
            self._spread.set()
