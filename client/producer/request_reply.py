"""Requests that wait for an answer: which are under way, and the answers that brokers push (wire.md 2.1, 12.11)."""

import asyncio
import struct
from collections.abc import Mapping
from dataclasses import dataclass, fields
from ipaddress import ip_address

from lockstep.client.errors import NoRouteError, RequestTimeoutError
from lockstep.client.instance.client import BrokerCall, MQClientInstance
from lockstep.protocol import properties as names
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import ProtocolError
from lockstep.protocol.headers.messaging import PushReplyMessageRequestHeader
from lockstep.protocol.message import MessageExt, encode_stored_message
from lockstep.protocol.model import Message
from lockstep.protocol.properties import decode_properties, encode_properties
from lockstep.protocol.pulled import Pulled, decode_records
from lockstep.remoting.endpoint import Endpoint

__all__ = ["Replies", "RequestMessage", "introduce"]

_ID_BITS = 128


@dataclass(slots=True)
class RequestMessage(Message):
    """A message with what its consumer needs to answer it."""

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


async def introduce(instance: MQClientInstance, topic: str, timeout_ms: int) -> None:
    """Have this client known to the brokers of a topic's route, so that they can ask it and pass answers on to it.

    Those that cannot be reached in time hear of it with a later heartbeat.
    """
    try:
        await asyncio.wait_for(_meet(instance, topic), timeout_ms / 1000)
    except (NoRouteError, TimeoutError, ProtocolError) as error:
        instance.log.warning("client_not_registered", topic=topic, error=f"{type(error).__name__}: {error}")


async def _meet(instance: MQClientInstance, topic: str) -> None:
    await instance.routes.get(topic)
    await instance.heartbeat_all()


class Replies:
    """The requests of one producer that wait for their answer, by correlation id."""

    def __init__(self, instance: MQClientInstance) -> None:
        self._instance = instance
        self._waiting: dict[str, asyncio.Future[MessageExt]] = {}
        self._introduced: set[str] = set()
        self.handlers: Mapping[int, BrokerCall] = {RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._pushed}

    def expect(self) -> "tuple[str, asyncio.Future[MessageExt]]":
        """A correlation id, and what will be its answer; `forget` must follow."""
        correlation_id = f"{self._instance.runtime.rng.getrandbits(_ID_BITS):032x}"
        future: asyncio.Future[MessageExt] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        return correlation_id, future

    def forget(self, correlation_id: str) -> None:
        self._waiting.pop(correlation_id, None)

    async def reachable(self, topics: tuple[str, ...], timeout_ms: int) -> None:
        """Before the first request to each of these: the answer may come from any of their brokers.

        A broker that is gone may take half of the time at most; the request needs the rest.
        """
        for topic in topics:
            if topic not in self._introduced:
                await introduce(self._instance, topic, timeout_ms // (2 * len(topics)))
                self._introduced.add(topic)

    async def answer(
        self, future: "asyncio.Future[MessageExt]", topic: str, remaining_ms: int, timeout_ms: int
    ) -> MessageExt:
        """Raises RequestTimeoutError, in RocketMQ's words."""
        try:
            return await asyncio.wait_for(future, max(remaining_ms, 0) / 1000)
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
        """One that cannot be read is handed over all the same, with its error."""
        (message,) = await self._instance.unpack_all(pulled)
        if not future.done():
            future.set_result(message)


def _message_of(command: RemotingCommand, now_ms: int) -> Pulled:
    """The answer as a message. Raises ProtocolError, ValueError."""
    header = command.decode_header(PushReplyMessageRequestHeader)
    properties = decode_properties(header.properties or "")
    properties[names.ARRIVE_TIME] = str(now_ms)
    stored = encode_stored_message(
        header.queue_id,
        header.flag,
        0,
        0,
        header.sys_flag,
        header.born_timestamp,
        *_host(header.born_host),
        header.store_timestamp,
        *_host(header.store_host),
        header.reconsume_times or 0,
        0,
        command.body,
        header.topic.encode("utf-8", "replace"),
        encode_properties(properties).encode("utf-8", "replace"),
    )
    return decode_records(stored, "")


def _host(text: str) -> tuple[bytes, int]:
    """Of "10.0.0.1:10911", and of "/10.0.0.1:10911" and "host/10.0.0.1:10911" of older brokers. Raises ValueError."""
    host, _, port = text.rpartition("/")[2].rpartition(":")
    return ip_address(host.strip("[]")).packed, int(port)
