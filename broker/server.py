"""The asyncio shell of broker and name server: sockets, timers, shutdown. The cores decide."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from lockstep.broker.cannot_listen import CannotListen
from lockstep.broker.config import VIP_PORT_BELOW, BrokerConfig
from lockstep.broker.core.broker import Broker
from lockstep.broker.core.pop import forsake
from lockstep.broker.core.pull import sweep_held_pulls, wake_held_pulls
from lockstep.broker.core.revive import run_pops, save_checkpoints
from lockstep.broker.core.transaction import check_transactions
from lockstep.broker.fronts.remoting.answers import Answers
from lockstep.broker.fronts.remoting.dispatch import NAME_SERVER_HANDLERS, dispatch
from lockstep.broker.fronts.remoting.notices import RemotingNotices
from lockstep.broker.fronts.remoting.plain_sends import PlainSendLane
from lockstep.broker.limits.connections import Connections, OpenConnection
from lockstep.broker.messages.delays.due_timer import DueTimer
from lockstep.broker.messages.stats import SAMPLE_INTERVAL_MS
from lockstep.broker.name_server.name_server import NameServer
from lockstep.broker.peer import Peer
from lockstep.broker.registration import Registration
from lockstep.protocol.bodies.attributes import MESSAGE_TYPE, NORMAL
from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.command import RemotingCommand
from lockstep.remoting.connections.endpoint import (
    Endpoint,
    EndpointCallbacks,
    EndpointSettings,
    RequestHandler,
    TakesBytes,
)
from lockstep.remoting.host.runtime import Listening, ProtocolFactory, Runtime, TimerHandle
from lockstep.remoting.limit_log import LimitLog
from lockstep.remoting.logs import EventLog
from lockstep.remoting.settings import Address, SettingError

if TYPE_CHECKING:
    from lockstep.broker.fronts.grpc.call import OnCall
    from lockstep.broker.fronts.grpc.port import GrpcPort
    from lockstep.broker.fronts.remoting.acl_gate import AclGate
    from lockstep.broker.persistence.disk_writers import DiskWriters
    from lockstep.broker.tls import MadeTls, ServerTls

__all__ = ["BrokerServer", "CallInterceptor", "Interceptor"]

C = TypeVar("C", bound=OpenConnection)

# At a shutdown, peers get so long to take the last replies.
_CLOSE_TIMEOUT_MS = 1000
# How often the files of rules and certificates are looked at; RocketMQ looks at its rules as often.
_LOOK_INTERVAL_MS = 5000
# How often RocketMQ's proxy looks for deliveries to renew.
_GRPC_CLIENTS_INTERVAL_MS = 5000


class Interceptor(Protocol):
    """Stands between the ports and the broker, for tests."""

    def intercept(self, on_request: RequestHandler) -> RequestHandler:
        """Wrap the handler of requests, to record them or to answer in its place."""

    def delay(self, factory: Callable[[], Endpoint]) -> ProtocolFactory:
        """Wrap new connections, to record or delay the bytes that arrive."""


class CallInterceptor(Protocol):
    """The same for calls of gRPC and their connections."""

    def intercept_calls(self, on_call: "OnCall") -> "OnCall": ...
    def delay(self, factory: ProtocolFactory) -> ProtocolFactory: ...


class _Port(NamedTuple):
    """What listens on a port, and the names for an error."""

    purpose: str
    option: str
    factory: ProtocolFactory
    best_effort: bool = False  # if another process has the port, go on without it


class BrokerServer:
    """A broker, a name server, or both in one process."""

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime,
        log: EventLog,
        interceptor: Interceptor | None = None,
        on_progress: Callable[[str], None] = lambda _: None,
        *,
        together: bool = True,
        call_interceptor: CallInterceptor | None = None,
    ) -> None:
        """Open the store and recover it.

        Args:
            on_progress: Called with a line of text when recovery takes long.
            together: Tell clients that many sends or commits may come in one frame (docs/wire.md 17).

        Raises:
            StoreUnusable: The data folder cannot be opened.
        """
        self._config = config
        self._runtime = runtime
        self._log = log
        self._interceptor, self._call_interceptor = interceptor, call_interceptor
        self._listening: list[tuple[_Port, Listening]] = []
        self._closed_ports: list[tuple[_Port, int]] = []  # with their numbers, while `_down`
        # The ports are closed for a test, and may open again; the server ends.
        self._down = self._stopping = False
        self._timers: dict[str, TimerHandle] = {}
        self._all_closed: asyncio.Future[None] | None = None
        self._due_timers: tuple[DueTimer, ...] = ()
        self._stop_wake_watch: Callable[[], object] = lambda: None
        self._settings = EndpointSettings(
            server=True,
            idle_close_ms=config.idle_close_ms,
            header_bytes_max=config.header_bytes_max,
            together=together,
            # Of two runs of a log the clock shows two times (wire.md 17.4).
            run=runtime.now_ms(),
        )
        self._tls = self._open_tls() if config.tls_mode != "disabled" else None
        self._made_tls: MadeTls | None = None
        self._broker_port = self._name_server_port = 0
        self._grpc: GrpcPort | None = None
        self.name_server = NameServer(config.name_server, log) if config.serve_name_server else None
        if self.name_server is not None:
            self.name_server.work.soon = self._call_soon
        self.broker: Broker | None = None
        self._writers: DiskWriters | None = None
        self._registration: Registration | None = None
        if config.serve_broker:
            self.broker = self._open_broker(on_progress)
            self._registration = Registration(self.broker, runtime, self.name_server)
            if self.name_server is not None:
                self.broker.catalog.route = self.name_server.route
        limits = self.broker.limits if self.broker is not None else LimitLog(log)
        if self.name_server is not None:
            self.name_server.limits = limits
        self._connections = Connections(config, limits, log)
        self._acl = self._open_acl() if config.acl_enable else None

    def _open_broker(self, on_progress: Callable[[str], None]) -> Broker:
        runtime = self._runtime
        broker = Broker(self._config, runtime.rng, self._log, runtime.now_ms(), runtime.storage, on_progress)
        broker.front = RemotingNotices()
        broker.work.soon = self._call_soon
        if broker.durable is not None:
            # Imported here: a broker in memory does not need it.
            from lockstep.broker.persistence.disk_writers import DiskWriters
            from lockstep.broker.persistence.restart_trace import leave_resets

            leave_resets(self._config, broker.catalog, broker.durable, runtime)
            self._writers = DiskWriters(
                runtime, lambda: broker.config, broker.durable, partial(self._after_read, broker)
            )
            broker.ownership.persistence = self._writers.lock_persistence
        return broker

    def _open_acl(self) -> "AclGate":
        from lockstep.broker.fronts.remoting.acl_gate import open_acl  # other brokers do without PyYAML

        return open_acl(self._config, self._runtime, self._log, self.broker)

    @property
    def broker_address(self) -> str:
        """ "host:port" as given to clients. Only for a server with a broker."""
        assert self._config.serve_broker
        return str(Address(self._config.advertised_host, self._broker_port))

    @property
    def name_server_address(self) -> str:
        """ "host:port". Only for a server with a name server."""
        assert self._config.serve_name_server
        return str(Address(self._config.advertised_host, self._name_server_port))

    @property
    def grpc_address(self) -> str:
        """ "host:port" for clients of RocketMQ 5; empty: there is no such port."""
        port = self.broker.grpc_port if self.broker is not None else 0
        return str(Address(self._config.advertised_host, port)) if port else ""

    def _open_tls(self) -> "ServerTls":
        from lockstep.broker.tls import ServerTls  # few servers need it

        return ServerTls(self._config, self._runtime, self._log)

    def create_topic(self, topic: str, queue_nums: int, message_type: str = NORMAL) -> None:
        """Raises LocalProtocolError for an invalid name or number of queues."""
        assert self.broker is not None
        attributes = () if message_type == NORMAL else ((MESSAGE_TYPE, message_type),)
        config, now_ms = TopicConfig(topic, queue_nums, queue_nums, attributes=attributes), self._runtime.now_ms()
        self.broker.catalog.topics.check_put(config, now_ms)
        self.broker.catalog.topics.put(config, now_ms)

    # Start and end -------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open all ports. Raises CannotListen; then none is open."""
        self._connections.watch(self._runtime)
        if self._acl is not None:
            self._every(_LOOK_INTERVAL_MS, "look at the rules", self._acl.look)
        if self._tls is not None:
            self._every(_LOOK_INTERVAL_MS, "look at the certificates", self._tls.look)
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
        if self._writers is not None:
            await self._writers.start()
        answers = Answers(broker, self._writers)
        factory = self._endpoint_factory(
            answers.answer if self._acl is None else self._acl.before_broker(answers.answer),
            on_closed=partial(self._on_broker_connection_closed, broker),
            after_read=partial(self._after_read, broker),
            on_bytes=self._plain_sends(broker, answers),
        )
        # First the port, then the registration: the name server must name no address that refuses connections.
        self._broker_port = await self._listen(_Port("broker", "--port", factory), config.port)
        broker.messages.set_port(self._broker_port)
        if config.grpc_port is not None:
            await self._start_grpc(broker, answers, config.grpc_port)
        assert self._registration is not None
        self._registration.start()
        self._due_timers = (
            DueTimer(
                self._runtime, broker.messages.delays, partial(self._deliver, broker, broker.messages.deliver_delayed)
            ),
            DueTimer(
                self._runtime, broker.messages.timers, partial(self._deliver, broker, broker.messages.deliver_timed)
            ),
            DueTimer(self._runtime, broker.messages.pops, partial(self._run_pops, broker)),
            DueTimer(self._runtime, broker.messages.halves, partial(self._check_transactions, broker)),
        )
        ends = broker.ownership.end_due
        self._due_timers += tuple(DueTimer(self._runtime, timed, ends) for timed in broker.ownership.timed)
        for due_timer in self._due_timers:
            due_timer.check()
        self._stop_wake_watch = self._runtime.on_wake(self._on_wake)
        self._every(config.scan_interval_ms, "scan clients", broker.scan)
        if broker.durable is not None:
            self._every(config.scan_interval_ms, "save checkpoints", partial(save_checkpoints, broker))
        self._every(SAMPLE_INTERVAL_MS, "sample statistics", broker.sample)
        self._every(config.hold_check_interval_ms, "sweep held pulls", partial(sweep_held_pulls, broker))
        if self.name_server is not None:
            self._every(config.register_interval_ms, "own name server", self._registration.check_own)
        # Without this port Java clients before 4.5 cannot send (wire.md 1.1). A busy one is no reason not to start.
        vip_port = self._broker_port - VIP_PORT_BELOW
        if config.vip_channel and vip_port > 0 and vip_port != config.name_server_port:
            await self._listen(_Port("VIP channel", "--port", factory, best_effort=True), vip_port)

    async def _start_grpc(self, broker: Broker, answers: Answers, number: int) -> None:
        assert self._registration is not None
        from lockstep.broker.fronts.grpc.port import GrpcPort, Shell, check_installed  # few brokers need it

        try:
            check_installed()
        except SettingError:
            if self._config.grpc_optional:
                return
            raise
        shell = Shell(
            self._connections.bounds,
            self._on_opened,
            self._remover(partial(self._on_grpc_connection_closed, broker)),
            self._connections.may_request,
            partial(self._after_read, broker),
            answers.when_kept,
            self._registration.ask_route,
            None if self._call_interceptor is None else self._call_interceptor.intercept_calls,
        )
        port = self._grpc = GrpcPort(broker, self._runtime, shell)
        factory: ProtocolFactory = port.new_connection
        if self._call_interceptor is not None:
            factory = self._call_interceptor.delay(factory)
        factory = self._plain_or_tls(port, factory) if self._tls is None else self._tls.wrap(factory)
        listens = _Port("gRPC", "--grpc-port", factory, best_effort=self._config.grpc_optional)
        broker.grpc_port = await self._listen(listens, number)
        if broker.grpc_port:
            self._every(_GRPC_CLIENTS_INTERVAL_MS, "look after gRPC clients", port.tick)

    def _plain_or_tls(self, port: "GrpcPort", factory: ProtocolFactory) -> ProtocolFactory:
        """The clients of RocketMQ 5 for Java and Go use TLS, and trust any certificate."""

        def new_protocol() -> asyncio.Protocol:
            if self._made_tls is None:
                from lockstep.broker.tls import MadeTls  # at the first connection, as all of this port

                self._made_tls = MadeTls(self._config, self._runtime, self._log)
                # Before the first handshake, which makes a certificate: both at once keep the loop for 60 ms.
                port.prepare()
            return self._made_tls.wrap(factory)()

        return new_protocol

    def _plain_sends(self, broker: Broker, answers: Answers) -> PlainSendLane | None:
        """None where each request must be looked at, or its answer waits."""
        config = self._config
        if self._acl is not None or self._interceptor is not None:
            return None
        if config.flush_sync or config.requests_per_second_max:
            return None
        return PlainSendLane(broker, answers.stored_leave_now)

    async def _start_name_server(self, server: NameServer) -> None:
        config = self._config

        def answer(endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand | None:
            return dispatch(NAME_SERVER_HANDLERS, server, endpoint, command, endpoint.read_at_ms)

        factory = self._endpoint_factory(
            answer if self._acl is None else self._acl.before_name_server(answer),
            on_closed=self._on_name_server_connection_closed,
        )
        port = _Port("name server", "--name-server-port", factory)
        self._name_server_port = await self._listen(port, config.name_server_port)
        server.config = replace(server.config, port=self._name_server_port)
        self._every(config.scan_interval_ms, "scan brokers", self._scan_brokers)

    async def _listen(self, port: _Port, number: int) -> int:
        """Returns the number of the port that was opened; for number 0 the system chooses it. 0: it is not open."""
        host = self._config.host
        try:
            listening = await self._runtime.create_server(port.factory, host, number)
        except OSError as error:
            why = CannotListen(port.purpose, port.option, host, number, error)
            if not port.best_effort:
                raise why from None
            self._log.info("listen_skipped", purpose=port.purpose, port=number, reason=str(why))
            return 0
        self._listening.append((port, listening))
        return listening.port

    async def registered(self) -> str:
        """Wait for the first registration with remote name servers. Returns why one failed; "" when all are done."""
        return await self._registration.tried() if self._registration is not None else ""

    async def close_ports(self) -> list[int]:
        """Close all ports and connections, but keep all state. Returns the numbers of the closed ports."""
        if not self._down:
            self._down = True
            listening, self._listening = self._listening, []
            self._closed_ports = [(port, one.port) for port, one in listening]
            for _, one in listening:
                one.close()
            for endpoint in self._connections:
                endpoint.abort("the broker is down")
            self._close_unopened()
            for _, one in listening:
                await one.wait_closed()
        return [number for _, number in self._closed_ports]

    async def reopen_ports(self) -> None:
        """Open the same ports again. Raises CannotListen for a port that is in use; then it may be called again."""
        self._down = False
        while self._closed_ports:
            await self._listen(*self._closed_ports[0])
            del self._closed_ports[0]

    async def shutdown(self) -> None:
        """Close the ports, unregister from name servers, and close each connection when its replies have left."""
        if self._stopping:
            return
        self._stopping = True
        self._stop_wake_watch()
        self._connections.stop()
        for timer in self._timers.values():
            timer.cancel()
        for due_timer in self._due_timers:
            due_timer.close()
        for _, listening in self._listening:
            listening.close()
        self._close_unopened()
        # First unregister: clients that are disconnected ask the name server at once, and must not be sent back here.
        if self._registration is not None:
            await self._registration.stop()
        if self._writers is not None:
            # First the flush, then the close: replies that wait for the disk leave before their connections end.
            await self._writers.flush()
        if self._grpc is not None:
            self._grpc.stop()
        await self._close_connections()
        if self._acl is not None:
            self._acl.close()
        for _, listening in self._listening:
            await listening.wait_closed()
        if self._writers is not None:
            await self._writers.stop()
        elif self.broker is not None:
            self.broker.messages.store.close()

    def _close_unopened(self) -> None:
        """End the connections that are in no list yet."""
        for tls in (self._tls, self._made_tls):
            if tls is not None:
                tls.close()

    async def _close_connections(self) -> None:
        if not self._connections:
            return
        self._all_closed = asyncio.get_running_loop().create_future()
        for endpoint in self._connections:
            endpoint.close("the broker shuts down")
        timer = self._runtime.call_later_ms(_CLOSE_TIMEOUT_MS, self._abort_connections)
        await self._all_closed
        timer.cancel()

    def _abort_connections(self) -> None:
        for endpoint in self._connections:
            endpoint.abort("the broker shuts down")

    # Connections ---------------------------------------------------------------------------------------------

    def _endpoint_factory(
        self,
        on_request: Callable[[Endpoint, RemotingCommand], RemotingCommand | None],
        *,
        on_closed: Callable[[Endpoint], None],
        after_read: Callable[[], None] | None = None,
        on_bytes: TakesBytes | None = None,
    ) -> ProtocolFactory:
        interceptor, on_request = self._interceptor, self._connections.before(on_request)
        if interceptor is not None:
            on_request = interceptor.intercept(on_request)

        callbacks = EndpointCallbacks(on_request, self._on_opened, self._remover(on_closed), after_read, on_bytes)

        def new_endpoint() -> Endpoint:
            return Endpoint(self._runtime, self._settings, callbacks, self._log, self._connections.bounds)

        factory = new_endpoint if interceptor is None else interceptor.delay(new_endpoint)
        return factory if self._tls is None else self._tls.wrap(factory)

    def _remover(self, on_closed: Callable[[C], None]) -> Callable[[C], None]:
        def remove(connection: C) -> None:
            self._connections.remove(connection)
            if not self._stopping:
                on_closed(connection)
            elif self._all_closed is not None and not self._connections and not self._all_closed.done():
                self._all_closed.set_result(None)

        return remove

    def _on_opened(self, endpoint: OpenConnection) -> None:
        self._connections.add(endpoint, self._runtime.now_ms())
        if self._stopping or self._down:
            endpoint.abort("the broker shuts down" if self._stopping else "the broker is down")

    def refresh_heartbeats(self, now_ms: int) -> None:
        """Treat every connected client as if it had just sent a heartbeat."""
        for endpoint in self._connections:
            endpoint.mark_active(now_ms)
        if self.broker is not None:
            self.broker.members.refresh(now_ms)
        if self._grpc is not None:
            self._grpc.refresh(now_ms)

    def _on_broker_connection_closed(self, broker: Broker, endpoint: Endpoint) -> None:
        # First the members leave their groups, then the lock delay of the connection's locks begins.
        forsake(broker, endpoint, self._runtime.now_ms())
        broker.on_closed(endpoint)
        broker.ownership.connection_ended(endpoint, self._runtime.now_ms())
        self._check_due_timers()

    def _on_grpc_connection_closed(self, broker: Broker, connection: Peer) -> None:
        """Its clients end with their telemetry, or come back."""
        broker.members.forget_host(connection)
        broker.messages.pops.held.on_closed(connection)
        self._check_due_timers()

    def _on_name_server_connection_closed(self, endpoint: Endpoint) -> None:
        assert self.name_server is not None
        for identity in self.name_server.on_closed(endpoint):
            self._log.warning("broker_removed", broker=identity.broker_name, why="its connection closed")

    # Timers and topics ---------------------------------------------------------------------------------------

    def _every(self, interval_ms: int, name: str, action: Callable[[int], None]) -> None:
        def fire() -> None:
            # First the next timer: an action that raises must not end the repetition.
            self._timers[name] = self._runtime.call_later_ms(interval_ms, fire)
            action(self._runtime.now_ms())
            # Who is given up leaves what is due at a time of its own; the next read may be long in coming.
            self._check_due_timers()

        self._timers[name] = self._runtime.call_later_ms(interval_ms, fire)

    def _on_wake(self, slept_ms: int) -> None:
        """Run what became due while the machine slept. Timers that repeat are only seconds late."""
        self._log.warning("machine_slept", slept_ms=slept_ms)
        for due_timer in self._due_timers:
            due_timer.rearm()
        self._connections.sweep_soon()

    def _call_soon(self, callback: Callable[[], None]) -> None:
        self._runtime.call_later_ms(0, callback)

    def _scan_brokers(self, now_ms: int) -> None:
        assert self.name_server is not None
        for identity, connection in self.name_server.scan(now_ms):
            self._log.warning("broker_removed", broker=identity.broker_name, why="no registration for too long")
            connection.abort("no registration for too long")

    def _after_read(self, broker: Broker) -> None:
        if broker.messages.hold.has_arrivals:
            wake_held_pulls(broker, self._runtime.now_ms())
        if broker.messages.pops.held.woken:
            run_pops(broker, self._runtime.now_ms())
        self._check_due_timers()
        if self._writers is not None:
            self._writers.flusher.after_read()

    def _check_due_timers(self) -> None:
        for timer in self._due_timers:
            timer.check()

    def _deliver(self, broker: Broker, deliver: Callable[[int], None], now_ms: int) -> None:
        deliver(now_ms)
        self._after_timer(broker, now_ms)

    def _run_pops(self, broker: Broker, now_ms: int) -> None:
        run_pops(broker, now_ms)
        self._after_timer(broker, now_ms)

    def _check_transactions(self, broker: Broker, now_ms: int) -> None:
        check_transactions(broker, now_ms)
        self._after_timer(broker, now_ms)

    def _after_timer(self, broker: Broker, now_ms: int) -> None:
        wake_held_pulls(broker, now_ms)
        if broker.messages.pops.held.woken:
            run_pops(broker, now_ms)
        if self._writers is not None:
            self._writers.flusher.check()
