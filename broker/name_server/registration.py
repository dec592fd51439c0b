"""How a broker tells name servers of itself and its topics (wire.md 2.7, 10.4).

The one in its own process is told by a call, before anything else happens. Others are told over the wire: of all
topics at start and every 30 s, and of a change when it happens; one that is away is tried again and costs nobody else
anything.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from lockstep.broker.config import BrokerConfig
from lockstep.broker.name_server.kv_config import ORDER_TOPIC_CONFIG
from lockstep.broker.name_server.name_server import BrokerIdentity, NameServer
from lockstep.broker.state.broker import Broker
from lockstep.broker.state.sliced_work import Steps
from lockstep.broker.state.topics import TopicConfigManager
from lockstep.protocol.bodies.broker import TopicConfig, TopicConfigs
from lockstep.protocol.bodies.codec import decode_body, encode_body
from lockstep.protocol.bodies.name_server import KvTable
from lockstep.protocol.codes import RequestCode, ResponseCode, SerializeType, request_name
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import BodyError, ProtocolError
from lockstep.protocol.headers.messaging import RegisterBrokerRequestHeader, UnregisterBrokerRequestHeader
from lockstep.remoting.dialer import Dialer, DialerCallbacks
from lockstep.remoting.endpoint import Endpoint
from lockstep.remoting.errors import RemotingError, RequestRefused
from lockstep.remoting.logs import EventLog
from lockstep.remoting.runtime import Runtime

__all__ = ["Registration"]

TOPICS_A_PART: Final = 500  # some milliseconds to write, and for a name server of ours to read
_TOLD_WITHIN_MS: Final = 1000
_RETRY_MS: Final = 3000
_GOODBYE_TIMEOUT_MS: Final = 1000


class _Source(NamedTuple):
    """Where topics come from: those that there are, and how name servers are told of them."""

    topics: TopicConfigManager
    as_told: Callable[[Sequence[TopicConfig]], Sequence[TopicConfig]]

    def all(self) -> Iterator[TopicConfigs]:
        return self.parts(_names(self.topics.topics))

    def parts(self, names: Sequence[str]) -> Iterator[TopicConfigs]:
        """At least one registration. A name server keeps the topics that it knows, and reads a registration whose
        version is another than the last: only the last of several has the true one. Each has topics as they are when
        it is made; of one that was deleted nothing is told (wire.md 2.7).
        """
        version = self.topics.data_version
        for start in range(0, max(len(names), 1), TOPICS_A_PART):
            left = (len(names) - 1 - start) // TOPICS_A_PART if names else 0
            some = names[start : start + TOPICS_A_PART]
            topics = [config for name in some if (config := self.topics.get(name)) is not None]
            yield TopicConfigs(version._replace(timestamp=version.timestamp - left), tuple(self.as_told(topics)))


class _RemoteNameServer:
    """Keeps one name server informed, in a task of its own: of all topics at first, after a failure and from time to
    time, else of those that changed.
    """

    def __init__(
        self,
        address: str,
        dialer: Dialer,
        config: BrokerConfig,
        runtime: Runtime,
        log: EventLog,
        source: _Source,
        request: Callable[[TopicConfigs], RemotingCommand],
        on_order_confs: Callable[[Iterable[str]], None],
    ) -> None:
        self.address = address
        self._on_order_confs = on_order_confs
        self._dialer = dialer
        self._config = config
        self._runtime = runtime
        self._log = log
        self._source = source
        self._request = request
        self._changed = asyncio.Event()
        self._names: dict[str, None] = {}
        self._all_due = True
        self._telling = False
        self._told_now: list[Callable[[], None]] = []  # who waits for what is told just now
        self._told_next: list[Callable[[], None]] = []
        self.registered: bool | None = None

    def on_change(self, topics: Iterable[TopicConfig]) -> None:
        self._names.update({config.topic_name: None for config in topics})
        self._changed.set()

    def tell_all(self) -> None:
        self._all_due = True
        self._changed.set()

    @property
    def is_behind(self) -> bool:
        """It is there, and has not been told of a change yet."""
        return bool(self.registered) and (self._telling or self._changed.is_set())

    def when_told(self, then: Callable[[], None]) -> None:
        """`then` is called when it has been told of what changed until now, or could not be; only when it is behind."""
        (self._told_next if self._changed.is_set() else self._told_now).append(then)

    async def run(self) -> None:
        while True:
            everything_ms = self._runtime.now_ms() + self._config.register_interval_ms
            await self._tell(self._source.all)
            while self.registered and not self._all_due:
                wait_ms = everything_ms - self._runtime.now_ms()
                if not await self._wait(wait_ms):
                    break
                if not self._all_due:
                    names, self._names = self._names, {}
                    await self._tell(partial(self._source.parts, tuple(names)))
            if not self.registered:
                await self._wait(min(self._config.register_interval_ms, _RETRY_MS))

    async def _wait(self, wait_ms: int) -> bool:
        """Whether something changed meanwhile."""
        try:
            await asyncio.wait_for(self._changed.wait(), max(wait_ms, 0) / 1000)
        except TimeoutError:
            return False
        return True

    async def _tell(self, parts: Callable[[], Iterator[TopicConfigs]]) -> None:
        self._changed.clear()
        self._all_due = False
        self._told_now, self._told_next = self._told_next, []
        self._telling = True
        try:
            for part in parts():
                await self._register(part)
                if not self.registered:
                    break
        finally:
            self._telling = False
            told, self._told_now = self._told_now, []
        for then in told:
            then()

    async def _register(self, configs: TopicConfigs) -> None:
        try:
            command = self._request(configs)
            reply = await self._dialer.call(self.address, command, self._config.register_timeout_ms)
            if reply.code != ResponseCode.SUCCESS:
                raise RequestRefused(self.address, request_name(command.code), reply.code, reply.remark)
        except (RemotingError, ProtocolError) as error:  # a registration may be too long for a frame
            if self.registered is not False:
                self._log.warning("registration_failed", name_server=self.address, reason=str(error))
            self.registered = False
        else:
            if not self.registered:
                self._log.info("registered", name_server=self.address)
            self.registered = True
            if reply.body:
                self._read(reply)

    def _read(self, reply: RemotingCommand) -> None:
        try:
            self._on_order_confs(decode_body(KvTable, reply.body, reply.serialize_type).table)
        except BodyError as error:
            self._log.warning("order_configs_unreadable", name_server=self.address, reason=str(error))


class Registration:
    """Of one broker. Its topics that name servers have order configurations of are marked."""

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime,
        log: EventLog,
        broker: Broker,
        name_server: NameServer | None,
    ) -> None:
        self._config = config
        self._runtime = runtime
        self._log = log
        self._broker = broker
        self._source = _Source(broker.topics, broker.as_told)
        self._name_server = name_server
        self._identity: BrokerIdentity | None = None
        callbacks = DialerCallbacks(_answer_nothing, on_closed=self._on_connection_closed)
        self._dialer = Dialer(runtime, callbacks, log)
        self._remotes = [
            _RemoteNameServer(
                str(address), self._dialer, config, runtime, log, self._source, self._request, self._on_order_confs
            )
            for address in config.name_server_addresses
        ]
        self._tasks: list[asyncio.Task[None]] = []
        if self._remotes:
            broker.when_told = self._when_told

    def start(self, broker_addr: str) -> None:
        config = self._config
        self._identity = BrokerIdentity(config.cluster, config.broker_name, config.broker_id, broker_addr)
        if self._name_server is not None:
            for part in self._source.all():
                self._tell_own(part)
        for remote in self._remotes:
            task = self._runtime.create_task(remote.run(), name=f"register with {remote.address}")
            self._tasks.append(task)

    def on_change(self, topics: Sequence[TopicConfig]) -> None:
        """Topics were made or changed: the own name server knows when this returns, or soon when they are many; others
        a moment later.
        """
        if self._identity is None:
            return
        if self._name_server is not None:
            self._broker.work.start(self, self._tell_own_steps(self._source.parts(_names(topics))))
        for remote in self._remotes:
            remote.on_change(topics)

    def _tell_own_steps(self, parts: Iterator[TopicConfigs]) -> Steps:
        for number, part in enumerate(parts):
            if number:
                yield None
            self._tell_own(part)

    def check_own(self) -> None:
        """As often as others are told: the name server in this process must know us, whatever it was told, and has the
        order configurations that administrators told it.
        """
        identity, name_server = self._identity, self._name_server
        if name_server is None or identity is None:
            return
        if name_server.touch(identity, self._runtime.now_ms()) is None:
            self._log.warning("registered_again", name_server="own")
            self._broker.work.start(self, self._tell_own_steps(self._source.all()))
        self._on_order_confs(name_server.kv_configs.namespace(ORDER_TOPIC_CONFIG) or {})

    def _when_told(self, then: Callable[[], None]) -> None:
        """`then` is called once: when the name servers that know us know all topics, and soon in any case."""
        behind = [remote for remote in self._remotes if remote.is_behind]
        if not behind:
            then()
            return
        outstanding = len(behind)

        def told() -> None:
            nonlocal outstanding
            outstanding -= 1
            if outstanding == 0:
                timer.cancel()
                then()

        def too_long() -> None:
            nonlocal outstanding
            outstanding = 0  # who is told later calls for nothing
            then()

        timer = self._runtime.call_later_ms(_TOLD_WITHIN_MS, too_long)
        for remote in behind:
            remote.when_told(told)

    async def stop(self) -> None:
        """Tell those that know us that we go."""
        for task in self._tasks:
            task.cancel()
        identity = self._identity
        if identity is not None:
            if self._name_server is not None:
                self._name_server.unregister(identity, None)
            for remote in self._remotes:
                if remote.registered:
                    await self._say_goodbye(remote.address, identity)
        self._dialer.close()

    async def _say_goodbye(self, address: str, identity: BrokerIdentity) -> None:
        cluster, name, broker_id, addr = identity
        header = UnregisterBrokerRequestHeader(name, addr, cluster, broker_id)
        try:
            command = RemotingCommand(RequestCode.UNREGISTER_BROKER, header)
            await self._dialer.call(address, command, _GOODBYE_TIMEOUT_MS)
        except RemotingError:
            pass  # it notices when the connection closes

    def _tell_own(self, configs: TopicConfigs) -> None:
        if self._name_server is not None and self._identity is not None:
            self._name_server.register(self._identity, configs, None, self._runtime.now_ms())

    def _on_order_confs(self, topics: Iterable[str]) -> None:
        self._broker.topics.set_ordered(topics, self._runtime.now_ms())

    def _request(self, configs: TopicConfigs) -> RemotingCommand:
        identity = self._identity
        assert identity is not None, "remotes run only after start"
        header = RegisterBrokerRequestHeader(
            identity.broker_name, identity.broker_addr, identity.cluster, "", identity.broker_id
        )
        return RemotingCommand(RequestCode.REGISTER_BROKER, header, encode_body(configs, SerializeType.JSON))

    def _on_connection_closed(self, address: str) -> None:
        """A name server forgets a broker whose connection closed: register again at once, not in 30 s."""
        for remote in self._remotes:
            if remote.address == address and remote.registered:
                remote.tell_all()


def _names(topics: Iterable[TopicConfig]) -> list[str]:
    return [config.topic_name for config in topics]


def _answer_nothing(endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand:
    remark = f"{request_name(command.code)} is not supported here"
    return command.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
