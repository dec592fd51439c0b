"""The broker's shell: sockets, timers and their end. What is decided is decided in the cores."""

import asyncio
import errno
from collections.abc import Callable
from functools import partial

from lockstep.broker.config import BrokerConfig
from lockstep.broker.core import Broker
from lockstep.broker.dispatch import BROKER_HANDLERS, NAME_SERVER_HANDLERS, dispatch
from lockstep.broker.name_server import NameServer
from lockstep.broker.processors.pull import sweep_held_pulls, wake_held_pulls
from lockstep.broker.registration import Registration
from lockstep.protocol.bodies import TopicConfig, TopicConfigs
from lockstep.protocol.command import RemotingCommand
from lockstep.remoting.endpoint import Endpoint, EndpointSettings
from lockstep.remoting.logs import EventLog
from lockstep.remoting.runtime import Listening, Runtime, TimerHandle

__all__ = ["BrokerServer", "CannotListen"]

_CLOSE_TIMEOUT_MS = 1000


class CannotListen(Exception):
    """One line: which address, why, and what to do."""

    def __init__(self, what: str, option: str, host: str, port: int, error: OSError) -> None:
        if error.errno == errno.EADDRINUSE:
            text = f"port {port} on {host} is in use; choose another for the {what} with {option} (0 picks a free one)"
        else:
            text = f"the {what} cannot listen on {host}:{port}: {error.strerror or error}"
        super().__init__(text)


class BrokerServer:
    """A broker, a name server, or both in one. Each start is a new one: nothing is kept over a restart."""

    def __init__(self, config: BrokerConfig, runtime: Runtime, log: EventLog) -> None:
        self._config = config
        self._runtime = runtime
        self._log = log
        self._listening: list[Listening] = []
        self._timers: dict[str, TimerHandle] = {}
        self._connections: dict[Endpoint, None] = {}
        self._all_closed: asyncio.Future[None] | None = None
        self._stopping = False
        self._settings = EndpointSettings(server=True, idle_close_ms=config.idle_close_ms)
        self._broker_port = self._name_server_port = 0
        self.name_server = NameServer(config.broker_expired_timeout_ms) if config.serve_name_server else None
        self.broker = Broker(config, runtime.rng, log, self._on_topics_changed) if config.serve_broker else None
        self._registration = Registration(config, runtime, log, self._topic_configs, self.name_server)

    @property
    def broker_address(self) -> str:
        """ "host:port" as given to clients; only when a broker is served."""
        assert self._config.serve_broker
        return f"{self._config.advertised_host}:{self._broker_port}"

    @property
    def name_server_address(self) -> str:
        """ "host:port"; only when a name server is served."""
        assert self._config.serve_name_server
        return f"{self._config.advertised_host}:{self._name_server_port}"

    def create_topic(self, topic: str, queue_nums: int) -> None:
        """Raises LocalProtocolError for a topic that cannot be."""
        assert self.broker is not None
        config = TopicConfig(topic, queue_nums, queue_nums)
        self.broker.topics.check_put(config)
        self.broker.topics.put(config, self._runtime.now_ms())

    # Start and end -------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen. Raises CannotListen; nothing listens then."""
        try:
            if self.broker is not None:
                await self._start_broker(self.broker)
            if self.name_server is not None:
                await self._start_name_server(self.name_server)
        except BaseException:
            await self.shutdown()
            raise

    async def _start_broker(self, broker: Broker) -> None:
        config = self._config
        factory = self._endpoint_factory(
            lambda endpoint, command: dispatch(BROKER_HANDLERS, broker, endpoint, command, endpoint.read_at_ms),
            on_closed=broker.on_closed,
            after_read=partial(wake_held_pulls, broker),
        )
        self._broker_port = await self._listen("broker", "--port", factory, config.port)
        broker.set_port(self._broker_port)
        self._registration.start(self.broker_address)
        self._every(config.scan_interval_ms, "scan clients", broker.scan)
        self._every(config.hold_check_interval_ms, "sweep held pulls", partial(sweep_held_pulls, broker))

    async def _start_name_server(self, server: NameServer) -> None:
        config = self._config
        factory = self._endpoint_factory(
            lambda endpoint, command: dispatch(NAME_SERVER_HANDLERS, server, endpoint, command, endpoint.read_at_ms),
            on_closed=self._on_name_server_connection_closed,
        )
        port = await self._listen("name server", "--name-server-port", factory, config.name_server_port)
        self._name_server_port = port
        self._every(config.scan_interval_ms, "scan brokers", self._scan_brokers)

    async def _listen(self, what: str, option: str, factory: Callable[[], Endpoint], port: int) -> int:
        host = self._config.host
        try:
            listening = await self._runtime.create_server(factory, host, port)
        except OSError as error:
            raise CannotListen(what, option, host, port, error) from None
        self._listening.append(listening)
        return listening.port

    async def shutdown(self) -> None:
        """Stop listening, say goodbye to name servers, close every connection once its replies have left."""
        if self._stopping:
            return
        self._stopping = True
        for timer in self._timers.values():
            timer.cancel()
        for listening in self._listening:
            listening.close()
        await self._registration.stop()
        await self._close_connections()
        for listening in self._listening:
            await listening.wait_closed()
        if self.broker is not None:
            self.broker.store.close()

    async def _close_connections(self) -> None:
        if not self._connections:
            return
        self._all_closed = asyncio.get_running_loop().create_future()
        for endpoint in list(self._connections):
            endpoint.close("the broker shuts down")
        timer = self._runtime.call_later_ms(_CLOSE_TIMEOUT_MS, self._abort_connections)
        await self._all_closed
        timer.cancel()

    def _abort_connections(self) -> None:
        for endpoint in list(self._connections):
            endpoint.abort("the broker shuts down")

    # Connections ---------------------------------------------------------------------------------------------

    def _endpoint_factory(
        self,
        on_request: Callable[[Endpoint, RemotingCommand], RemotingCommand | None],
        *,
        on_closed: Callable[[Endpoint], None],
        after_read: Callable[[], None] | None = None,
    ) -> Callable[[], Endpoint]:
        def forget(endpoint: Endpoint) -> None:
            self._connections.pop(endpoint, None)
            if not self._stopping:
                on_closed(endpoint)
            elif self._all_closed is not None and not self._connections and not self._all_closed.done():
                self._all_closed.set_result(None)

        return lambda: Endpoint(
            self._runtime,
            self._settings,
            on_request=on_request,
            log=self._log,
            on_opened=self._on_opened,
            on_closed=forget,
            after_read=after_read,
        )

    def _on_opened(self, endpoint: Endpoint) -> None:
        self._connections[endpoint] = None
        if self._stopping:
            endpoint.abort("the broker shuts down")

    def _on_name_server_connection_closed(self, endpoint: Endpoint) -> None:
        assert self.name_server is not None
        for identity in self.name_server.on_closed(endpoint):
            self._log.warning("broker gone: its connection closed", broker=identity.broker_name)

    # Timers and topics ---------------------------------------------------------------------------------------

    def _every(self, interval_ms: int, name: str, action: Callable[[int], None]) -> None:
        def fire() -> None:
            self._timers[name] = self._runtime.call_later_ms(interval_ms, fire)
            action(self._runtime.now_ms())

        self._timers[name] = self._runtime.call_later_ms(interval_ms, fire)

    def _scan_brokers(self, now_ms: int) -> None:
        assert self.name_server is not None
        for identity, connection in self.name_server.scan(now_ms):
            self._log.warning("broker gone: it was silent too long", broker=identity.broker_name)
            connection.abort("no registration for too long")

    def _on_topics_changed(self) -> None:
        self._registration.on_change()

    def _topic_configs(self) -> TopicConfigs:
        assert self.broker is not None
        return TopicConfigs.of(self.broker.topics.data_version, self.broker.topics.topics)
