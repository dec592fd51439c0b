"""Request and reply: a producer sends a message and waits for the consumer's reply (wire.md 2.1, 12.11)."""

import asyncio
import struct
from collections.abc import Mapping
from dataclasses import dataclass, fields
from ipaddress import ip_address

from lockstep.client.errors import ClientError, NoRouteError, RequestTimeoutError
from lockstep.client.instance.client import BrokerCall, MQClientInstance
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import ProtocolError
from lockstep.protocol.headers.messaging import PushReplyMessageRequestHeader
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.message import MessageExt, Record, encode_stored_message
from lockstep.protocol.messages.properties import decode_properties, encode_properties
from lockstep.protocol.messages.pulled import Pulled, decode_records
from lockstep.protocol.messages.to_send import Message
from lockstep.protocol.names import reply_topic
from lockstep.remoting.connections.endpoint import Endpoint

__all__ = ["Replies", "ReplyMessage", "RequestMessage", "introduce", "reply_message"]

_ID_BITS = 128
_REPLY = "reply"
_NEEDED = (names.CLUSTER, names.CORRELATION_ID, names.REPLY_TO_CLIENT)


@dataclass(slots=True)
class RequestMessage(Message):
    """A message with the properties that its consumer needs for a reply."""

    correlation_id: str = ""
    reply_to_client: str = ""
    ttl_ms: int = 0

    @classmethod
    def of(cls, message: Message, correlation_id: str, client_id: str, ttl_ms: int) -> "RequestMessage":
        own = {f.name: getattr(message, f.name) for f in fields(Message)}
        return cls(**own, correlation_id=correlation_id, reply_to_client=client_id, ttl_ms=ttl_ms)

    def wire_properties(self) -> dict[str, str]:
        result = Message.wire_properties(self)
        result[names.CORRELATION_ID] = self.correlation_id
        result[names.REPLY_TO_CLIENT] = self.reply_to_client
        result[names.TTL] = str(self.ttl_ms)
        return result


@dataclass(slots=True)
class ReplyMessage(Message):
    """Made by `reply_message`, sent by any producer. The broker passes it on to the client that asked."""

    correlation_id: str = ""
    reply_to_client: str = ""
    ttl: str = ""

    def wire_properties(self) -> dict[str, str]:
        result = Message.wire_properties(self)
        result[names.MSG_TYPE] = _REPLY
        result[names.CORRELATION_ID] = self.correlation_id
        result[names.REPLY_TO_CLIENT] = self.reply_to_client
        result[names.TTL] = self.ttl
        return result


def reply_message(request: MessageExt, body: bytes) -> ReplyMessage:
    """Return the reply to a message of `Producer.request`; `await producer.send(...)` it.

    Raises:
        ClientError: the message does not ask for a reply.
    """
    properties = request.properties
    found = {name: properties.get(name) for name in _NEEDED}
    for name, value in found.items():
        if not value:
            raise ClientError(f"create reply message fail, requestMessage error, property[{name}] is null.")
    cluster, correlation_id, client_id = [value or "" for value in found.values()]
    return ReplyMessage(
        reply_topic(cluster),
        body,
        correlation_id=correlation_id,
        reply_to_client=client_id,
        ttl=properties.get(names.TTL, "0"),
    )


async def introduce(instance: MQClientInstance, topic: str, timeout_ms: int) -> None:
    """Send a heartbeat to the brokers of a topic, so that they can send requests and replies to this client.

    Brokers that cannot be reached within `timeout_ms` get a later heartbeat.
    """
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await _meet(instance, topic)
    except (NoRouteError, TimeoutError, ProtocolError) as error:
        instance.log.warning("client_not_registered", topic=topic, error=f"{type(error).__name__}: {error}")


async def _meet(instance: MQClientInstance, topic: str) -> None:
    await instance.routes.get(topic)
    await instance.heartbeat_all()


class Replies:
    """The requests of one producer that wait for their reply, by correlation id."""

    def __init__(self, instance: MQClientInstance) -> None:
        self._instance = instance
        self._waiting: dict[str, asyncio.Future[MessageExt]] = {}
        self._introduced: set[str] = set()
        self.handlers: Mapping[int, BrokerCall] = {RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._pushed}

    def expect(self) -> "tuple[str, asyncio.Future[MessageExt]]":
        """Return a new correlation id and the future of its reply. `forget` must follow."""
        correlation_id = f"{self._instance.runtime.rng.getrandbits(_ID_BITS):032x}"
        future: asyncio.Future[MessageExt] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        return correlation_id, future

    def forget(self, correlation_id: str) -> None:
        self._waiting.pop(correlation_id, None)

    async def reachable(self, topics: tuple[str, ...], timeout_ms: int) -> None:
        """Call `introduce` before the first request to each of these topics: any of their brokers may send the reply.

        A broker that does not answer may take half of the time at most; the request needs the rest.
        """
        for topic in topics:
            if topic not in self._introduced:
                await introduce(self._instance, topic, timeout_ms // (2 * len(topics)))
                self._introduced.add(topic)

    async def answer(
        self, future: "asyncio.Future[MessageExt]", topic: str, remaining_ms: int, timeout_ms: int
    ) -> MessageExt:
        """Wait for the reply. Raises RequestTimeoutError, with RocketMQ's text."""
        try:
            async with asyncio.timeout(max(remaining_ms, 0) / 1000):
                return await future
        except TimeoutError:
            reason = f"send request message to <{topic}> OK, but wait reply message timeout, {timeout_ms} ms."
            raise RequestTimeoutError(reason) from None

    def _pushed(self, endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand:
        try:
            pulled = _message_of(command, self._instance.runtime.now_ms())
        except (ProtocolError, ValueError, struct.error) as error:
            self._instance.log.error("reply_unreadable", peer=endpoint.address, error=str(error))
            return command.reply(ResponseCode.SYSTEM_ERROR, remark="process reply message fail")
        (message,) = pulled.messages
        correlation_id = message.properties.get(names.CORRELATION_ID, "")
        future = self._waiting.pop(correlation_id, None)
        if future is None:
            self._instance.log.warning("reply_unexpected", correlation_id=correlation_id)
        elif pulled.packed:
            self._instance.runtime.create_task(self._unpack(pulled, future), name=f"unpack {correlation_id}")
        elif not future.done():
            future.set_result(message)
        return command.reply(ResponseCode.SUCCESS)

    async def _unpack(self, pulled: Pulled, future: "asyncio.Future[MessageExt]") -> None:
        """A reply that cannot be unpacked is handed over too; its `body_error` says why."""
        (message,) = await self._instance.unpack_all(pulled)
        if not future.done():
            future.set_result(message)


def _message_of(command: RemotingCommand, now_ms: int) -> Pulled:
    """Return the reply as a message. Raises ProtocolError, ValueError."""
    header = command.decode_header(PushReplyMessageRequestHeader)
    properties = decode_properties(header.properties or "")
    properties[names.ARRIVE_TIME] = str(now_ms)
    born_host, born_port = _host(header.born_host)
    record = Record(
        topic=header.topic,
        queue_id=header.queue_id,
        flag=header.flag,
        sys_flag=header.sys_flag,
        born_timestamp=header.born_timestamp,
        born_host=born_host,
        born_port=born_port,
        store_timestamp=header.store_timestamp,
        reconsume_times=header.reconsume_times or 0,
        prepared_transaction_offset=0,
        body=command.body,
        properties=encode_properties(properties).encode("utf-8", "replace"),
        tags_code=0,
    )
    topic = header.topic.encode("utf-8", "replace")
    stored = encode_stored_message(record, topic, 0, 0, *_host(header.store_host))
    return decode_records(stored, "")


def _host(text: str) -> tuple[bytes, int]:
    """Parse "10.0.0.1:10911", or "/10.0.0.1:10911" and "host/10.0.0.1:10911" of older brokers. Raises ValueError."""
    host, _, port = text.rpartition("/")[2].rpartition(":")
    return ip_address(host.strip("[]")).packed, int(port)
