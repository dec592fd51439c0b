"""Brokers and name servers on virtual time, and plain clients that speak to them over endpoints."""

from collections.abc import Callable
from typing import Any

from lockstep.broker.config import BrokerConfig
from lockstep.broker.server import BrokerServer
from lockstep.protocol.bodies.broker import TopicRouteData
from lockstep.protocol.bodies.codec import WireBody, decode_body, encode_body
from lockstep.protocol.bodies.locks import LockBatchBody, LockOkBody
from lockstep.protocol.codes import RequestCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import GetRouteInfoRequestHeader
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.connections.dialer import Dialer, DialerCallbacks, DialerSettings
from lockstep.remoting.connections.endpoint import Endpoint
from lockstep.simulation import SimRuntime
from tests.broker.helpers import RecordingLog, queues_of

__all__ = ["Client", "Served", "serve"]

BROKER_PORT, NAME_SERVER_PORT = 10911, 9876


class Served:
    """A started server and its log."""

    def __init__(self, server: BrokerServer, log: RecordingLog) -> None:
        self.server = server
        self.log = log

    @property
    def address(self) -> str:
        return self.server.broker_address


async def serve(runtime: SimRuntime, **settings: Any) -> Served:
    """Start a broker, a name server or both on a host."""
    log = RecordingLog()
    server = BrokerServer(BrokerConfig(**{"host": runtime.address, **settings}), runtime, log)
    await runtime.run(server.start())
    return Served(server, log)


class Client:
    """Requests from one host; `pushed` are those that came the other way."""

    def __init__(self, runtime: SimRuntime, encoding: SerializeType = SerializeType.MSGPACK) -> None:
        self._runtime = runtime
        self.pushed: list[RemotingCommand] = []
        self.on_pushed: Callable[[], object] = lambda: None
        self.log = RecordingLog()
        offer = None if encoding is SerializeType.JSON else encoding
        self.dialer = Dialer(runtime, DialerCallbacks(self._on_request), self.log, DialerSettings(offer=offer))

    def _on_request(self, endpoint: Endpoint, command: RemotingCommand) -> None:
        self.pushed.append(command)
        self.on_pushed()

    async def call(
        self, address: str, code: int, header: tuple[Any, ...] | None = None, body: WireBody | bytes = b""
    ) -> RemotingCommand:
        async def run() -> RemotingCommand:
            endpoint = await self.dialer.endpoint(address)
            data = body if isinstance(body, bytes) else encode_body(body, endpoint.serialize_type)
            return await endpoint.request(RemotingCommand(code, header, data), 30_000)

        return await self._runtime.run(run())

    async def lock(self, address: str, client_id: str, topic: str = "T") -> tuple[MessageQueue, ...]:
        body = LockBatchBody("G", client_id, queues_of(topic, 1))
        reply = await self.call(address, RequestCode.LOCK_BATCH_MQ, None, body)
        return decode_body(LockOkBody, reply.body, reply.serialize_type).lock_ok_mq_set

    async def route(self, name_server: str, topic: str = "T") -> TopicRouteData | None:
        header = GetRouteInfoRequestHeader(topic)
        reply = await self.call(name_server, RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        return decode_body(TopicRouteData, reply.body, reply.serialize_type) if reply.code == 0 else None

    def close(self) -> None:
        self.dialer.close()
