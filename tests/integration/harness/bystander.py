"""A well-behaved client that was connected before an attack and must still be served."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from lockstep.client import AdminClient, Message, MessageQueue, Producer
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.headers.messaging import PullMessageRequestHeader
from lockstep.protocol.messages.message import decode_messages
from tests.integration.harness.processes import PATIENT_PRODUCER, Broker
from tests.integration.harness.raw import RawPeer, msgpack_request

__all__ = ["BYSTANDER_TOPIC", "Bystander", "bystander"]

BYSTANDER_TOPIC = "bystander"
SERVED_WITHIN_S = 90.0  # of a busy machine


class Bystander:
    def __init__(self, broker: Broker, admin: AdminClient, producer: Producer, peer: RawPeer) -> None:
        self._broker = broker
        self._admin = admin
        self._producer = producer
        self._peer = peer

    async def is_served(self) -> None:
        """Routes from the name server; a message stored and pulled back, over the connections it has."""
        async with asyncio.timeout(SERVED_WITHIN_S):
            assert BYSTANDER_TOPIC in await self._admin.topics()
            queue = MessageQueue(BYSTANDER_TOPIC, "broker-a", 0)
            sent = await self._producer.send(Message(BYSTANDER_TOPIC, b"here"), queue=queue)
            pull = PullMessageRequestHeader("bystander", BYSTANDER_TOPIC, 0, sent.queue_offset, 32, 4, 0, 0, 0, "*")
            reply = await self._peer.ask(msgpack_request(11, list(pull)))
        assert reply.code == ResponseCode.SUCCESS
        (message,) = decode_messages(reply.body)
        assert (message.body, message.msg_id) == (b"here", sent.msg_id)

    async def is_undisturbed(self) -> None:
        """Served, the broker's process alive, and no request of anybody ended in an error it did not foresee."""
        await self.is_served()
        assert self._broker.status is None
        assert self._broker.events("request_failed") == []
        assert "Traceback" not in self._broker.stderr()


@contextlib.asynccontextmanager
async def bystander(broker: Broker) -> AsyncIterator[Bystander]:
    """Connected on entering; at the end it must be undisturbed."""
    async with (
        broker.admin() as admin,
        Producer("bystanders", name_server=broker.name_server, config=PATIENT_PRODUCER) as producer,
        RawPeer(broker.port) as peer,
    ):
        client = Bystander(broker, admin, producer, peer)
        await client.is_served()
        yield client
        await client.is_undisturbed()
