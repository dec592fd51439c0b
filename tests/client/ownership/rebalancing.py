"""A Rebalance on virtual time: a real table and offset store, and a broker whose list of members the test chooses."""

import json
from collections.abc import Sequence

from lockstep.client import ConsumerConfig, MessageQueue, allocate_averagely
from lockstep.client.consumer.offsets.store import RemoteBrokerOffsetStore
from lockstep.client.consumer.ownership.allocation.average import AllocateMessageQueueStrategy
from lockstep.client.consumer.ownership.hold import Hold
from lockstep.client.consumer.ownership.locks import QueueLocks
from lockstep.client.consumer.ownership.membership import Membership
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.consumer.ownership.rebalance import Rebalance
from lockstep.order.traces.trace import TraceWriter
from lockstep.protocol.bodies.broker import ConsumerIdList
from lockstep.protocol.bodies.codec import decode_body, encode_body
from lockstep.protocol.bodies.locks import LockBatchBody, LockOkBody
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import UpdateConsumerOffsetRequestHeader
from tests.client.stage import TOPIC, FakeBroker, Stage

__all__ = ["FIRST", "GROUP", "IDS", "LAST", "LOCK", "UNLOCK", "UPDATE", "Rebalancing", "rebalancing"]

GROUP = "tower"
IDS, LOCK, UNLOCK = (
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
)
UPDATE = RequestCode.UPDATE_CONSUMER_OFFSET
FIRST, LAST = "0", "~"  # client ids that sort before and behind any other


class Rebalancing:
    """A Rebalance over a real table, with a broker that lists `members` and refuses the locks of `taken`."""

    def __init__(self, stage: Stage, broker: FakeBroker, strategy: AllocateMessageQueueStrategy | None) -> None:
        self.stage, self.broker = stage, broker
        self.instance = stage.instance()
        self.me = self.instance.client_id
        self.members: Sequence[str] = [self.me]
        self.taken: list[MessageQueue] = []
        self.subscribed = [TOPIC]
        self.added: list[ProcessQueue] = []
        self.changed: list[str] = []
        self.trace = TraceWriter(stage.client, "trace", self.me, GROUP)
        self.offsets = RemoteBrokerOffsetStore(self.instance, GROUP)
        self.member = Membership(
            instance=self.instance, group=GROUP, config=ConsumerConfig(), offsets=self.offsets, trace=self.trace
        )
        self.table = self.member.table
        self.locks = QueueLocks(self.member, lambda _: None)
        self.rebalance = Rebalance(self.member, self.locks, self, strategy)
        broker.on[IDS] = self._ids
        broker.on[LOCK] = self._lock
        broker.answers(UNLOCK, ResponseCode.SUCCESS)
        broker.answers(UPDATE, ResponseCode.SUCCESS)

    # The owner
    def topics(self) -> list[str]:
        return self.subscribed

    def new_process_queue(self, queue: MessageQueue, period: int, now_ms: int, hold: Hold) -> ProcessQueue:
        return ProcessQueue(queue, period, now_ms, hold)

    def queue_acquired(self, process_queue: ProcessQueue) -> None:
        self.added.append(process_queue)

    def queue_dropped(self, process_queue: ProcessQueue, why: str) -> None:
        pass

    async def queues_changed(self, topic: str) -> None:
        self.changed.append(topic)

    def _ids(self, command: RemotingCommand) -> RemotingCommand:
        if not self.members:
            return command.reply(ResponseCode.SYSTEM_ERROR, remark="no consumer")
        body = ConsumerIdList(tuple(self.members))
        return command.reply(ResponseCode.SUCCESS, body=encode_body(body, command.serialize_type))

    def _lock(self, command: RemotingCommand) -> RemotingCommand:
        asked = decode_body(LockBatchBody, command.body, command.serialize_type)
        granted = LockOkBody(tuple(queue for queue in asked.mq_set if queue not in self.taken))
        return command.reply(ResponseCode.SUCCESS, body=encode_body(granted, command.serialize_type))

    def asked(self, code: int) -> list[tuple[MessageQueue, ...]]:
        return [decode_body(LockBatchBody, c.body, c.serialize_type).mq_set for c in self.broker.requests(code)]

    def committed(self) -> list[tuple[int, int]]:
        headers = [c.decode_header(UpdateConsumerOffsetRequestHeader) for c in self.broker.requests(UPDATE)]
        return [(header.queue_id, header.commit_offset) for header in headers]

    def events(self) -> list[tuple[str, int]]:
        records = [json.loads(line) for line in self.stage.client.disk.read("trace").splitlines()]
        return [(record["event"], record["queue_id"]) for record in records if "queue_id" in record]

    @property
    def owned(self) -> list[int]:
        return sorted(queue.queue_id for queue, process_queue in self.table.items() if not process_queue.life.dropped)

    async def run(self) -> None:
        await self.rebalance.run()
        await self.stage.world.sleep_ms(10)  # one-way requests arrive


async def rebalancing(
    stage: Stage, queues: int = 4, strategy: AllocateMessageQueueStrategy | None = allocate_averagely
) -> Rebalancing:
    broker = await stage.broker(queues=queues)
    return Rebalancing(stage, broker, strategy)
