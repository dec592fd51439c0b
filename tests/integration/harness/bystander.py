"""A well-behaved client that was connected before an attack and must still be served."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from lockstep.client import AdminClient, Message, MessageQueue, Producer
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.headers.messaging import PullMessageRequestHeader
from lockstep.protocol.messages.message import decode_messages
from lockstep.testing.peer import Peer, msgpack_request
from tests.integration.harness.attacked import Attacked, admin_of, producer_of
from tests.integration.harness.processes import PATIENT_PRODUCER

__all__ = ["BYSTANDER_TOPIC", "Bystander", "bystander"]

BYSTANDER_TOPIC = "bystander"
SERVED_WITHIN_S = 90.0  # of a busy machine


class Bystander:
    def __init__(self, target: Attacked, admin: AdminClient, producer: Producer, peer: Peer) -> None:
        self._target = target
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
        """Served, the broker alive, and no request of anybody ended in an error it did not foresee."""
        await self.is_served()
        assert self._target.is_alive()
        assert self._target.events("request_failed") == []
        assert not [line for line in self._target.log() if "Traceback" in line]


@contextlib.asynccontextmanager
async def bystander(target: Attacked) -> AsyncIterator[Bystander]:
    """Connected on entering; at the end it must be undisturbed."""
    async with admin_of(target) as admin, producer_of(target, PATIENT_PRODUCER) as producer, target.peer() as peer:
        client = Bystander(target, admin, producer, peer)
        await client.is_served()
        yield client
        await client.is_undisturbed()
