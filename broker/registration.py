"""How a broker tells name servers of itself and its topics (wire.md 2.7, 10.4).

The one in its own process is told by a call, before anything else happens. Others are told over the wire at start,
at every change and every 30 s; one that is away is tried again and costs nobody else anything.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from lockstep.broker.config import BrokerConfig
from lockstep.broker.kv_config import ORDER_TOPIC_CONFIG
from lockstep.broker.name_server import BrokerIdentity, NameServer
from lockstep.protocol.bodies import TopicConfigs
from lockstep.protocol.body_codec import decode_body, encode_body
from lockstep.protocol.codes import RequestCode, ResponseCode, SerializeType, request_name
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import BodyError, ProtocolError
from lockstep.protocol.headers import RegisterBrokerRequestHeader, UnregisterBrokerRequestHeader
from lockstep.protocol.name_server_bodies import KvTable
from lockstep.remoting.dialer import Dialer
from lockstep.remoting.endpoint import Endpoint
from lockstep.remoting.errors import RemotingError, RequestRefused
from lockstep.remoting.logs import EventLog
from lockstep.remoting.runtime import Runtime

__all__ = ["Registration"]

_RETRY_MS: Final = 3000
_GOODBYE_TIMEOUT_MS: Final = 1000


class _RemoteNameServer:
    """Keeps one name server informed, in a task of its own."""

    def __init__(
        self,
        address: str,
        dialer: Dialer,
        config: BrokerConfig,
        log: EventLog,
        request: Callable[[], RemotingCommand],
        on_order_confs: Callable[[Iterable[str]], None],
    ) -> None:
        self.address = address
        self._on_order_confs = on_order_confs
        self._dialer = dialer
        self._config = config
        self._log = log
        self._request = request
        self._changed = asyncio.Event()
        self.registered: bool | None = None

    def on_change(self) -> None:
        self._changed.set()

    async def run(self) -> None:
        while True:
            self._changed.clear()
            await self._register()
            wait_ms = self._config.register_interval_ms
            if not self.registered:
                wait_ms = min(wait_ms, _RETRY_MS)
            try:
                await asyncio.wait_for(self._changed.wait(), wait_ms / 1000)
            except TimeoutError:
                pass

    async def _register(self) -> None:
        command = self._request()
        try:
            reply = await self._dialer.call(self.address, command, self._config.register_timeout_ms)
            if reply.code != ResponseCode.SUCCESS:
                raise RequestRefused(self.address, request_name(command.code), reply.code, reply.remark)
        except (RemotingError, ProtocolError) as error:  # a registration may be too long for a frame
            if self.registered is not False:
                self._log.warning("name server does not know us", name_server=self.address, reason=str(error))
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
            self._log.warning("order configurations not read", name_server=self.address, reason=str(error))


class Registration:
    """`topics` gives the broker's topics as they are now; `on_order_confs` hears which of them name servers have order
    configurations of.
    """

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime,
        log: EventLog,
        topics: Callable[[], TopicConfigs],
        name_server: NameServer | None,
        on_order_confs: Callable[[Iterable[str]], None],
    ) -> None:
        self._config = config
        self._runtime = runtime
        self._topics = topics
        self._name_server = name_server
        self._on_order_confs = on_order_confs
        self._identity: BrokerIdentity | None = None
        self._dialer = Dialer(runtime, on_request=_answer_nothing, log=log, on_closed=self._on_connection_closed)
        self._remotes = [
            _RemoteNameServer(str(address), self._dialer, config, log, self._request, on_order_confs)
            for address in config.name_server_addresses
        ]
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, broker_addr: str) -> None:
        config = self._config
        self._identity = BrokerIdentity(config.cluster, config.broker_name, config.broker_id, broker_addr)
        self._tell_own()
        for remote in self._remotes:
            task = self._runtime.create_task(remote.run(), name=f"register with {remote.address}")
            self._tasks.append(task)

    def on_change(self) -> None:
        """A topic was made or changed: the own name server knows when this returns, others soon after."""
        if self._identity is not None:
            self._tell_own()
            for remote in self._remotes:
                remote.on_change()

    def read_own_order_confs(self) -> None:
        """As often as others are asked: what administrators told the name server in this process."""
        if self._name_server is not None and self._identity is not None:
            self._on_order_confs(self._name_server.kv_configs.namespace(ORDER_TOPIC_CONFIG) or {})

    async def stop(self) -> None:
        """Tell those that know us that we go."""
        for task in self._tasks:
            task.cancel()
        identity = self._identity
        if identity is not None:
            if self._name_server is not None:
                self._name_server.unregister(identity)
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

    def _tell_own(self) -> None:
        if self._name_server is not None and self._identity is not None:
            self._name_server.register(self._identity, self._topics(), None, self._runtime.now_ms())

    def _request(self) -> RemotingCommand:
        identity = self._identity
        assert identity is not None, "remotes run only after start"
        header = RegisterBrokerRequestHeader(
            identity.broker_name, identity.broker_addr, identity.cluster, "", identity.broker_id
        )
        body = encode_body(self._topics(), SerializeType.JSON)
        return RemotingCommand(RequestCode.REGISTER_BROKER, header, body)

    def _on_connection_closed(self, address: str) -> None:
        """A name server forgets a broker whose connection closed: register again at once, not in 30 s."""
        for remote in self._remotes:
            if remote.address == address and remote.registered:
                remote.on_change()


def _answer_nothing(endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand:
    remark = f"{request_name(command.code)} is not supported here"
    return command.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
