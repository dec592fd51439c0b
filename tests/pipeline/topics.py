"""Topics for tests of the data source: made, filled and read without Spark."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from lockstep.client.blocking import Addresses, BlockingClient
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.messages.batch import BatchRecord
from lockstep.protocol.messages.properties import encode_properties
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.connections.blocking_endpoint import BlockingEndpoint
from tests.integration.harness.processes import Broker

__all__ = ["BORN_MS", "Topic", "plain_record"]

BORN_MS = 1_700_000_000_000
BATCH = 500


def plain_record(queue_id: int, number: int) -> BatchRecord:
    """Body "QUEUE:NUMBER", sharding key of ten kinds, tags A and B in turn, a UNIQ_KEY."""
    properties = {
        "TAGS": "AB"[number % 2],
        "KEYS": f"n{number}",
        "__SHARDINGKEY": f"key-{number % 10}",
        "UNIQ_KEY": f"{queue_id:04}{number:028}",
    }
    return BatchRecord(number % 7, f"{queue_id}:{number}".encode(), encode_properties(properties))


@dataclass(frozen=True)
class Topic:
    """One topic of a broker. `options` is what a read of all of it needs."""

    broker: Broker
    name: str

    @classmethod
    def create(cls, broker: Broker, name: str, queues: int = 2) -> "Topic":
        topic = cls(broker, name)
        topic.resize(queues)
        return topic

    def resize(self, queues: int) -> None:
        """Have it, with so many queues."""
        asyncio.run(self._resize(queues))

    async def _resize(self, queues: int) -> None:
        async with self.broker.admin() as admin:
            await admin.create_topic(self.name, queues)

    def delete(self) -> None:
        """On the broker and on the name server, as mqadmin deletes one."""
        places = {RequestCode.DELETE_TOPIC_IN_BROKER: self.broker.address}
        places[RequestCode.DELETE_TOPIC_IN_NAMESRV] = self.broker.name_server
        for code, address in places.items():
            endpoint = BlockingEndpoint(address, 30_000)
            reply = endpoint.request(RemotingCommand(code, ext_fields={"topic": self.name}), 30_000)
            endpoint.close()
            assert reply.code == ResponseCode.SUCCESS, reply

    @property
    def options(self) -> dict[str, str]:
        return {"nameServer": self.broker.name_server, "subscribe": self.name}

    def queue(self, queue_id: int) -> MessageQueue:
        return MessageQueue(self.name, "broker-a", queue_id)

    def client(self) -> BlockingClient:
        return Addresses((self.broker.name_server,), timeout_ms=30_000).open()  # machines are shared

    def fill(self, *counts: int, first: int = 0, record: Callable[[int, int], BatchRecord] = plain_record) -> None:
        """So many messages into each queue, numbered from `first`."""
        with self.client() as client:
            for queue_id, count in enumerate(counts):
                records = [record(queue_id, number) for number in range(first, first + count)]
                for i in range(0, count, BATCH):
                    client.send_batch(self.queue(queue_id), records[i : i + BATCH], BORN_MS)
