"""MQClientInstance: the parts that every client has: an id, connections, routes, heartbeats."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from lockstep.client.config import DEFAULT_INSTANCE, ClientConfig
from lockstep.client.errors import NoRouteError
from lockstep.client.instance.name_servers import NameServers
from lockstep.client.instance.routes import Routes
from lockstep.client.instance.scheduler import Schedule
from lockstep.protocol.bodies.codec import WireBody, decode_body, encode_body
from lockstep.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData
from lockstep.protocol.codes import RequestCode, ResponseCode, request_name
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import NotifyConsumerIdsChangedRequestHeader, UnregisterClientRequestHeader
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.messages.pulled import Pulled, unpack, unpack_all
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.connections.dialer import Dialer, DialerCallbacks, DialerSettings
from lockstep.remoting.connections.endpoint import Endpoint
from lockstep.remoting.errors import RemotingError, RequestRefused, must_succeed
from lockstep.remoting.host.runtime import Identity, Runtime, WorkerPool
from lockstep.remoting.logs import EventLog
from lockstep.remoting.settings import Address, SettingError, parse_address, parse_addresses

__all__ = ["BrokerCall", "ClientRole", "MQClientInstance", "name_server_addresses"]

T = TypeVar("T")
B = TypeVar("B", bound=WireBody)
BrokerCall = Callable[[Endpoint, RemotingCommand], RemotingCommand | None]

NAME_SERVER_VARIABLE = "NAMESRV_ADDR"
_DISCOVER_FIRST_MS = 10_000
_VIP_PORT_BELOW = 2
_UNREGISTER_TIMEOUT_MS: Final = 3000


def name_server_addresses(given: str | None, config: ClientConfig | None = None) -> tuple[Address, ...]:
    """The addresses in `given`, or in the environment variable NAMESRV_ADDR as every RocketMQ client reads it.

    Returns:
        An empty tuple when neither is set and `config` names a domain to get the addresses from.

    Raises:
        SettingError: Nothing is set, or a text is not an address.
    """
    text = given or os.environ.get(NAME_SERVER_VARIABLE)
    if not text and config is not None and config.name_server_domain:
        return ()
    if not text:
        raise SettingError(f"no name server: give name_server='host:port' or set {NAME_SERVER_VARIABLE}")
    return parse_addresses(text)


def _vip_address(address: str) -> str:
    """A broker's VIP channel: a second port, two below the first, for all requests but pulls (wire.md 1.1)."""
    host, port = parse_address(address)
    return str(Address(host, port - _VIP_PORT_BELOW))


class ClientRole(NamedTuple):
    """What a client is to its brokers. An administrator's client is neither a producer nor a consumer.

    Args:
        producer_group: The group of a producer.
        consumer_data: The group and subscriptions of a consumer; called for each heartbeat. None: it left its group.
        instance_name: A name to use as it is. Without one the setting counts, and DEFAULT becomes a unique name.
        on_ids_changed: `on_ids_changed(group)` is called when a broker notifies of changed members.
        on_broker_connected: `on_broker_connected(address, endpoint)` is awaited on each new connection to a broker,
            after its heartbeat and before any other caller may use the connection.
        on_connection_ended: `on_connection_ended(address)` is called for every connection that ends.
    """

    producer_group: str | None = None
    consumer_data: Callable[[], ConsumerData | None] | None = None
    instance_name: str | None = None
    on_ids_changed: Callable[[str], None] | None = None
    on_broker_connected: Callable[[str, Endpoint], Awaitable[None]] | None = None
    on_connection_ended: Callable[[str], None] | None = None


_ADMINISTRATOR: Final = ClientRole()


class MQClientInstance:
    """One client and its connections.

    Args:
        runtime: Its clock, network and threads.
        name_servers: The addresses that the user gave; when empty, they come from the domain of `config`.
        config: The settings that producers and consumers share.
        log: For what fails and what changes.
        role: What the client is to its brokers.
    """

    def __init__(
        self,
        runtime: Runtime,
        name_servers: tuple[Address, ...],
        config: ClientConfig,
        log: EventLog,
        role: ClientRole = _ADMINISTRATOR,
    ) -> None:
        self.runtime = runtime
        self.config = config
        self.log = log
        self.identity: Identity = runtime.new_identity()
        name = role.instance_name or config.instance_name
        if role.instance_name is None and name == DEFAULT_INSTANCE:
            name = f"{self.identity.pid}#{self.identity.serial}"
        unit = f"@{config.unit_name}" if config.unit_name else ""
        self.client_id = f"{self.identity.host}@{name}{unit}"
        self._role = role
        self._in_group = bool(role.producer_group or role.consumer_data)
        self._broker_calls: Mapping[int, BrokerCall] = {}
        settings = DialerSettings(
            config.serialize_type,
            config.connect_timeout_ms,
            config.idle_close_ms,
            config.credentials,
            config.tls,
        )
        callbacks = DialerCallbacks(self._on_request, self._greet, role.on_connection_ended)
        self.dialer = Dialer(runtime, callbacks, log, settings)
        self.name_servers = NameServers(runtime, name_servers, config, self.dialer, log)
        self.routes = Routes(self.name_servers, log)
        self.schedule = Schedule(runtime, log)
        self._unpacking: WorkerPool | None = None
        self._last_beat: tuple[tuple[HeartbeatData, int] | None, bytes] = (None, b"")

    async def unpack(self, pulled: Pulled) -> Pulled:
        """Decompress the bodies of a pull, on a thread: a body of a few kilobytes may become many megabytes."""
        return await self._on_thread(lambda: unpack(pulled)) if pulled.packed else pulled

    async def unpack_all(self, pulled: Pulled) -> list[MessageExt]:
        """As `unpack`, for messages that no pull brought. Each message that cannot be read is logged as an ERROR."""
        if not pulled.packed:
            return pulled.messages
        messages = await self._on_thread(lambda: unpack_all(pulled))
        for message in messages:
            if message.body_error is not None:
                self.log_unreadable(message)
        return messages

    async def _on_thread(self, work: Callable[[], T]) -> T:
        if self._unpacking is None:
            self._unpacking = self.runtime.new_worker_pool(f"{self.client_id} unpacking", 1)
        return await self._unpacking.submit(work)

    def log_unreadable(self, message: MessageExt) -> None:
        self.log.error(
            "message_unreadable",
            queue=str(MessageQueue(message.topic, message.broker_name, message.queue_id)),
            offset=message.queue_offset,
            msg_id=message.msg_id,
            error=message.body_error,
        )

    def start(self) -> None:
        if self.name_servers.url is not None:
            discover_ms = self.config.fetch_name_server_interval_ms
            self.schedule.every(discover_ms, self.name_servers.discover, first_ms=_DISCOVER_FIRST_MS, name="discovery")
        poll_ms, beat_ms = self.config.poll_name_server_interval_ms, self.config.heartbeat_broker_interval_ms
        self.schedule.every(poll_ms, self.routes.refresh, first_ms=poll_ms, name="route refresh")
        if self._in_group:
            self.schedule.every(beat_ms, self.heartbeat_all, first_ms=1000, name="heartbeat")

    def serve(self, broker_calls: Mapping[int, BrokerCall]) -> None:
        """Answer the requests of brokers with these functions, by code. None means that the reply is sent later."""
        self._broker_calls = broker_calls

    async def shutdown(self) -> None:
        """Unregister from the brokers with an open connection, and close."""
        await self.schedule.stop()
        await self.leave(None)
        self.close()

    def close(self) -> None:
        self.dialer.close()
        if self._unpacking is not None:
            self._unpacking.close()

    async def leave(self, consumer_group: str | None) -> None:
        """Unregister from the brokers with an open connection."""
        header = UnregisterClientRequestHeader(self.client_id, self._role.producer_group, consumer_group)
        for address in self.routes.broker_addresses(masters_only=False):
            endpoint = self.dialer.open_endpoint(address)
            if endpoint is None:
                continue
            try:
                await endpoint.request(RemotingCommand(RequestCode.UNREGISTER_CLIENT, header), _UNREGISTER_TIMEOUT_MS)
            except RemotingError as error:
                self.log.warning("unregister_failed", broker=address, error=str(error))

    # Brokers -------------------------------------------------------------------------------------------------

    def address_of(self, broker_name: str) -> str:
        """The address of a broker's master. Raises NoRouteError when no route names it."""
        address = self.routes.master_address(broker_name)
        if address is None:
            raise NoRouteError(f"no route names a master of broker {broker_name!r}")
        return address

    def open_sender(self, broker_name: str) -> Endpoint | None:
        """The connection to send messages over, if one is open: to the master, or to its VIP channel."""
        address = self.routes.master_address(broker_name)
        if address is None:
            return None
        return self.dialer.open_endpoint(_vip_address(address) if self.config.vip_channel_enabled else address)

    async def sender(self, broker_name: str) -> Endpoint:
        """As `open_sender`; the connection is made when there is none. Raises NoRouteError, ConnectFailed."""
        address = self.address_of(broker_name)
        return await self.dialer.endpoint(_vip_address(address) if self.config.vip_channel_enabled else address)

    async def call(
        self,
        broker_name: str,
        code: int,
        header: tuple[Any, ...] | None = None,
        *,
        body: WireBody | None = None,
        timeout_ms: int | None = None,
        over: Endpoint | None = None,
    ) -> RemotingCommand:
        """Send a request to a broker's master.

        Args:
            broker_name: The broker.
            code: The request code.
            header: The typed header of that code.
            body: A structured body, encoded as the connection's headers are.
            timeout_ms: By default `request_timeout_ms` of the settings.
            over: A new connection that other callers may not use yet.

        Returns:
            The reply, whatever its code.

        Raises:
            NoRouteError: No route names a master of the broker.
            RemotingError: There is no reply.
        """
        address = self.address_of(broker_name)
        return await self.call_address(address, code, header, body=body, timeout_ms=timeout_ms, over=over)

    async def call_address(
        self,
        address: str,
        code: int,
        header: tuple[Any, ...] | None = None,
        *,
        body: WireBody | None = None,
        timeout_ms: int | None = None,
        over: Endpoint | None = None,
    ) -> RemotingCommand:
        """As `call`, by address."""
        endpoint = over or await self.dialer.endpoint(address)
        data = b"" if body is None else encode_body(body, endpoint.serialize_type)
        timeout_ms = timeout_ms or self.config.request_timeout_ms
        return await endpoint.request(RemotingCommand(code, header, data), timeout_ms)

    async def call_for(
        self, body_class: type[B], broker_name: str, code: int, header: tuple[Any, ...] | None = None, **kwargs: Any
    ) -> B:
        """As `call`, for a reply with a structured body. Raises RequestRefused for any code but SUCCESS."""
        reply = await self.call(broker_name, code, header, **kwargs)
        self.check_reply(reply, broker_name, code)
        return decode_body(body_class, reply.body, reply.serialize_type)

    def check_reply(self, reply: RemotingCommand, broker_name: str, code: int) -> None:
        """Raises RequestRefused for any code but SUCCESS."""
        if reply.code != ResponseCode.SUCCESS:
            raise RequestRefused(self.address_of(broker_name), request_name(code), reply.code, reply.remark)

    # Heartbeats ----------------------------------------------------------------------------------------------

    async def heartbeat_all(self) -> None:
        """Send a heartbeat to every broker of the known routes, a producer to masters only (wire.md 12.1)."""
        begun: dict[str, asyncio.Future[RemotingCommand] | None] = {}
        # To all brokers before anything is awaited: a pull with a new version of a subscription comes after the
        # heartbeat that has it. Else the broker refuses the pull, and the queue waits a second for the next one.
        for address in self.routes.broker_addresses(masters_only=self._role.consumer_data is None):
            endpoint = self.dialer.open_endpoint(address)
            try:
                begun[address] = None if endpoint is None else self._begin_heartbeat(endpoint)
            except RemotingError as error:
                self._heartbeat_failed(address, error)
        for address, reply in begun.items():
            try:
                if reply is None:
                    await self.dialer.endpoint(address)  # greets with a heartbeat
                else:
                    must_succeed(await reply, address, RequestCode.HEART_BEAT)
            except RemotingError as error:
                self._heartbeat_failed(address, error)

    def _heartbeat_failed(self, address: str, error: RemotingError) -> None:
        self.log.warning("heartbeat_failed", broker=address, error=str(error))

    def _begin_heartbeat(self, endpoint: Endpoint) -> asyncio.Future[RemotingCommand]:
        """Returns a future of the reply. Raises ConnectionLost."""
        producer_group, consumer_data = self._role.producer_group, self._role.consumer_data
        producers = (ProducerData(producer_group),) if producer_group else ()
        consumer = consumer_data() if consumer_data else None
        consumers = () if consumer is None else (consumer,)
        beat = HeartbeatData(self.client_id, producers, consumers), endpoint.serialize_type
        if beat != self._last_beat[0]:
            # Nearly all repeat the last one.
            self._last_beat = beat, encode_body(*beat)
        command = RemotingCommand(RequestCode.HEART_BEAT, body=self._last_beat[1])
        reply = endpoint.request_nowait(command, self.config.request_timeout_ms)
        # It may fail while another broker is waited for, and the wait may end with its task.
        reply.add_done_callback(lambda done: done.cancelled() or done.exception())
        return reply

    async def _greet(self, address: str, endpoint: Endpoint) -> None:
        """Register with a broker on a new connection, before any other request uses it (wire.md 6.2)."""
        if address in self.name_servers or not self._in_group:
            return
        must_succeed(await self._begin_heartbeat(endpoint), endpoint.address, RequestCode.HEART_BEAT)
        if self._role.on_broker_connected is not None:
            await self._role.on_broker_connected(address, endpoint)

    def _on_request(self, endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand | None:
        if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            header = command.decode_header(NotifyConsumerIdsChangedRequestHeader)
            if self._role.on_ids_changed is not None:
                self._role.on_ids_changed(header.consumer_group)
            return None
        answer = self._broker_calls.get(command.code)
        if answer is not None:
            return answer(endpoint, command)
        remark = f"{request_name(command.code)} is not supported by this client"
        return command.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
