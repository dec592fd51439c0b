"""Registration of a broker and its topics with name servers (wire.md 2.7, 10.4).

The name server in the same process is updated by a call, at once. Remote name servers get all topics at start and
every 30 s, and changed topics when they change. A name server that does not answer delays nothing else.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from lockstep.broker.config import BrokerConfig
from lockstep.broker.core.broker import Broker
from lockstep.broker.name_server.kv_config import ORDER_TOPIC_CONFIG
from lockstep.broker.name_server.name_server import BrokerIdentity, NameServer
from lockstep.broker.sliced_work import Steps
from lockstep.protocol.bodies.broker import TopicConfig, TopicConfigs, TopicRouteData
from lockstep.protocol.bodies.codec import decode_body, encode_body
from lockstep.protocol.bodies.name_server import KvTable
from lockstep.protocol.codes import RequestCode, ResponseCode, SerializeType, request_name
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import BodyError, ProtocolError
from lockstep.protocol.headers.messaging import (
    GetRouteInfoRequestHeader,
    RegisterBrokerRequestHeader,
    UnregisterBrokerRequestHeader,
)
from lockstep.remoting.connections.dialer import Dialer, DialerCallbacks, DialerSettings
from lockstep.remoting.connections.endpoint import Endpoint
from lockstep.remoting.errors import RemotingError, must_succeed
from lockstep.remoting.host.runtime import Runtime
from lockstep.remoting.tls.options import TlsOptions

__all__ = ["TOPICS_A_PART", "Registration"]

# Some milliseconds to encode, and for our name server to decode.
TOPICS_A_PART: Final = 500
_REGISTERED_WITHIN_MS: Final = 1000
_RETRY_MS: Final = 3000
_UNREGISTER_TIMEOUT_MS: Final = 1000
_ROUTE_TIMEOUT_MS: Final = 1000  # clients wait 3 s for a route
_ROUTES_AT_ONCE_MAX: Final = 1000
_ROUTES_KEPT_MAX: Final = 10_000


class _OwnTopics:
    """The topics of a broker, as registrations for name servers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def all(self) -> Iterator[TopicConfigs]:
        return self.parts(_names(self._broker.catalog.topics.topics))

    def parts(self, names: Sequence[str]) -> Iterator[TopicConfigs]:
        """At least one registration, each with the topics as they are when it is made. Deleted topics are left out.

        A name server keeps the topics that it knows, and ignores a registration with the data version of the last
        one. So each part has a different version, and only the last one has the true version (wire.md 2.7).
        """
        table = self._broker.catalog.topics
        version = table.data_version
        for start in range(0, max(len(names), 1), TOPICS_A_PART):
            left = (len(names) - 1 - start) // TOPICS_A_PART if names else 0
            some = names[start : start + TOPICS_A_PART]
            topics = [config for name in some if (config := table.get(name)) is not None]
            registered = tuple(self._broker.as_registered(topics))
            part = version._replace(timestamp=version.timestamp - left)
            yield TopicConfigs(part, registered, self._broker.grpc_port)

    def request(self, configs: TopicConfigs) -> RemotingCommand:
        config = self._broker.config
        header = RegisterBrokerRequestHeader(
            config.broker_name, self._broker.address, config.cluster, "", config.broker_id
        )
        return RemotingCommand(RequestCode.REGISTER_BROKER, header, encode_body(configs, SerializeType.JSON))


class _RemoteNameServer:
    """Registers with one name server, in its own task: all topics at start, after a failure and every 30 s; else the
    topics that changed.
    """

    def __init__(self, address: str, broker: Broker, topics: _OwnTopics, dialer: Dialer, runtime: Runtime) -> None:
        self.address = address
        self._broker = broker
        self._topics = topics
        self._dialer = dialer
        self._runtime = runtime
        self._changed = asyncio.Event()
        self._names: dict[str, None] = {}
        self._all_due = True
        self._registering = False
        self._waiting_now: list[Callable[[], None]] = []  # for the registration under way
        self._waiting_next: list[Callable[[], None]] = []
        self.registered: bool | None = None
        self.stopped = False
        self.tried = asyncio.Event()
        self.refusal = ""

    def on_change(self, topics: Sequence[TopicConfig]) -> None:
        if len(topics) > TOPICS_A_PART:
            # To note many names would keep the loop, for each name server.
            self.register_all()
            return
        self._names.update({config.topic_name: None for config in topics})
        self._changed.set()

    def register_all(self) -> None:
        self._all_due = True
        self._changed.set()

    @property
    def is_behind(self) -> bool:
        """Whether the name server answers, but does not know the latest change yet."""
        return bool(self.registered) and (self._registering or self._changed.is_set())

    def when_registered(self, then: Callable[[], None]) -> None:
        """Call `then` when the changes until now are registered, or that has failed. Only while `is_behind`."""
        (self._waiting_next if self._changed.is_set() else self._waiting_now).append(then)

    async def run(self) -> None:
        interval_ms = self._broker.config.register_interval_ms
        while not self.stopped:
            everything_ms = self._runtime.now_ms() + interval_ms
            await self._broker.catalog.before_registering()
            await self._register_parts(self._topics.all)
            self.tried.set()
            while self.registered and not self._all_due:
                wait_ms = everything_ms - self._runtime.now_ms()
                if not await self._wait(wait_ms):
                    break
                if not self._all_due:
                    names, self._names = self._names, {}
                    await self._register_parts(partial(self._topics.parts, tuple(names)))
            if not self.registered:
                await self._wait(min(interval_ms, _RETRY_MS))

    async def _wait(self, wait_ms: int) -> bool:
        """Wait for a change. Returns False after `wait_ms` without one."""
        try:
            if not self.stopped:
                async with asyncio.timeout(max(wait_ms, 0) / 1000):
                    await self._changed.wait()
        except TimeoutError:
            return False
        if self.stopped:
            raise asyncio.CancelledError
        await self._broker.catalog.before_registering()
        return True

    async def _register_parts(self, parts: Callable[[], Iterator[TopicConfigs]]) -> None:
        self._changed.clear()
        self._all_due = False
        self._waiting_now, self._waiting_next = self._waiting_next, []
        self._registering = True
        try:
            for part in parts():
                await self._register(part)
                if not self.registered:
                    break
        finally:
            self._registering = False
            waiting, self._waiting_now = self._waiting_now, []
        for then in waiting:
            then()

    async def _register(self, configs: TopicConfigs) -> None:
        log = self._broker.log
        try:
            command = self._topics.request(configs)
            reply = await self._dialer.call(self.address, command, self._broker.config.register_timeout_ms)
            must_succeed(reply, self.address, command.code)
        except (RemotingError, ProtocolError) as error:
            # A registration may be too long for a frame.
            if self.registered is not False:
                log.warning("registration_failed", name_server=self.address, reason=str(error))
            self.registered, self.refusal = False, str(error)
        else:
            if not self.registered:
                log.info("registered", name_server=self.address)
            self.registered = True
            if reply.body:
                self._read(reply)

    def _read(self, reply: RemotingCommand) -> None:
        try:
            table = decode_body(KvTable, reply.body, reply.serialize_type).table
            self._broker.catalog.topics.set_ordered(table, self._runtime.now_ms())
        except BodyError as error:
            self._broker.log.warning("order_configs_unreadable", name_server=self.address, reason=str(error))


def _dialer_settings(config: BrokerConfig) -> DialerSettings:
    tls = None
    if config.tls_to_name_servers:
        tls = TlsOptions(ca=config.tls_name_server_ca)
        if config.tls_client_auth != "none":
            # A name server with the same settings asks for a certificate too.
            tls = replace(tls, cert=config.tls_cert, key=config.tls_key)
    return DialerSettings(credentials=config.credentials, tls=tls)


class Registration:
    """Registers one broker with the name server in this process and with remote ones.

    Topics for which a name server has an order configuration are marked as ordered.
    """

    def __init__(self, broker: Broker, runtime: Runtime, name_server: NameServer | None) -> None:
        """`name_server`: the one in this process, if any."""
        self._runtime = runtime
        self._broker = broker
        self._topics = _OwnTopics(broker)
        self._name_server = name_server
        self._identity: BrokerIdentity | None = None
        callbacks = DialerCallbacks(_refuse_request, on_closed=self._on_connection_closed)
        self._dialer = Dialer(runtime, callbacks, broker.log, _dialer_settings(broker.config))
        self._remotes = [
            _RemoteNameServer(str(address), broker, self._topics, self._dialer, runtime)
            for address in broker.config.name_server_addresses
        ]
        self._tasks: list[asyncio.Task[None]] = []
        self._asking = 0  # for routes
        self._routes: dict[str, TopicRouteData] = {}  # as they were told last
        broker.catalog.on_topics_changed = self.on_change
        if self._remotes:
            broker.catalog.topics_registered = self._when_registered

    def start(self) -> None:
        """Call it when the port of the broker is known."""
        config = self._broker.config
        self._identity = BrokerIdentity(config.cluster, config.broker_name, config.broker_id, self._broker.address)
        if self._name_server is not None:
            for part in self._topics.all():
                self._register_own(part)
        for remote in self._remotes:
            task = self._runtime.create_task(remote.run(), name=f"register with {remote.address}")
            self._tasks.append(task)

    async def tried(self) -> str:
        """Wait for the first registration with each name server. Returns why one failed, "" when all are done."""
        for remote in self._remotes:
            await remote.tried.wait()
        return next((f"{one.address}: {one.refusal}" for one in self._remotes if not one.registered), "")

    def on_change(self, topics: Sequence[TopicConfig]) -> None:
        """Topics were created or changed.

        The name server in this process knows them when this returns; if there are many, a moment later, as remote name
        servers do.
        """
        if self._identity is None:
            return
        if self._name_server is not None:
            self._broker.work.start(self, self._register_own_steps(self._topics.parts(_names(topics))))
        for remote in self._remotes:
            remote.on_change(topics)

    def _register_own_steps(self, parts: Iterator[TopicConfigs]) -> Steps:
        for number, part in enumerate(parts):
            if number:
                yield None
            self._register_own(part)

    def ask_route(self, topic: str, then: Callable[[TopicRouteData | None], None]) -> None:
        """Call `then` with the route of a topic over all brokers; None: no name server has told one.

        While none tells, the last one counts, as for clients of RocketMQ 4: with a shorter route, messages of one group
        would go to another broker.
        """
        if self._name_server is not None:
            then(self._name_server.route_for(None, topic))
        elif self._asking >= _ROUTES_AT_ONCE_MAX:
            then(self._routes.get(topic))
        else:
            self._asking += 1
            self._runtime.create_task(self._ask_route(topic, then), name=f"route of {topic}")

    async def _ask_route(self, topic: str, then: Callable[[TopicRouteData | None], None]) -> None:
        route = None
        try:
            for remote in self._remotes:
                if remote.registered and (route := await self._route_at(remote.address, topic)) is not None:
                    break
        finally:
            self._asking -= 1
        if route is not None:
            self._routes.pop(topic, None)
            self._routes[topic] = route
            if len(self._routes) > _ROUTES_KEPT_MAX:
                del self._routes[next(iter(self._routes))]
        then(self._routes.get(topic))

    async def _route_at(self, address: str, topic: str) -> TopicRouteData | None:
        command = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic))
        try:
            reply = await self._dialer.call(address, command, _ROUTE_TIMEOUT_MS)
            return decode_body(TopicRouteData, reply.body, reply.serialize_type) if reply.body else None
        except (RemotingError, ProtocolError) as error:
            self._broker.log.info("route_not_told", name_server=address, topic=topic, reason=str(error))
            return None

    def check_own(self, now_ms: int) -> None:
        """Called every 30 s: register again if the own name server lost the broker; read its order configurations."""
        identity, name_server = self._identity, self._name_server
        if name_server is None or identity is None:
            return
        if name_server.touch(identity, now_ms) is None:
            self._broker.log.warning("registered_again", name_server="own")
            self._broker.work.start(self, self._register_own_steps(self._topics.all()))
        order_configs = name_server.kv_configs.namespace(ORDER_TOPIC_CONFIG) or {}
        self._broker.catalog.topics.set_ordered(order_configs, self._runtime.now_ms())

    def _when_registered(self, then: Callable[[], None]) -> None:
        """Call `then` once: when the name servers that answer know all topics, at the latest after a second."""
        behind = [remote for remote in self._remotes if remote.is_behind]
        if not behind:
            then()
            return
        outstanding = len(behind)

        def on_registered() -> None:
            nonlocal outstanding
            outstanding -= 1
            if outstanding == 0:
                timer.cancel()
                then()

        def on_timeout() -> None:
            nonlocal outstanding
            outstanding = 0  # later answers have no effect
            then()

        timer = self._runtime.call_later_ms(_REGISTERED_WITHIN_MS, on_timeout)
        for remote in behind:
            remote.when_registered(on_registered)

    async def stop(self) -> None:
        """Unregister from the name servers that know this broker."""
        for remote in self._remotes:
            remote.stopped = True
        for task in self._tasks:
            task.cancel()
        identity = self._identity
        if identity is not None:
            if self._name_server is not None:
                self._name_server.unregister(identity, None)
            for remote in self._remotes:
                if remote.registered:
                    await self._unregister(remote.address, identity)
        self._dialer.close()

    async def _unregister(self, address: str, identity: BrokerIdentity) -> None:
        cluster, name, broker_id, addr = identity
        header = UnregisterBrokerRequestHeader(name, addr, cluster, broker_id)
        try:
            command = RemotingCommand(RequestCode.UNREGISTER_BROKER, header)
            await self._dialer.call(address, command, _UNREGISTER_TIMEOUT_MS)
        except RemotingError:
            # The name server also removes the broker when the connection closes.
            pass

    def _register_own(self, configs: TopicConfigs) -> None:
        if self._name_server is not None and self._identity is not None:
            self._name_server.register(self._identity, configs, None, self._runtime.now_ms())

    def _on_connection_closed(self, address: str) -> None:
        """A name server removes a broker whose connection closed: register again at once, not after 30 s."""
        for remote in self._remotes:
            if remote.address == address and remote.registered:
                remote.register_all()


def _names(topics: Iterable[TopicConfig]) -> list[str]:
    return [config.topic_name for config in topics]


def _refuse_request(endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand:
    remark = f"{request_name(command.code)} is not supported here"
    return command.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
