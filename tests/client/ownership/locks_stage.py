"""QueueLocks on virtual time with two brokers that grant locks and record every request."""

import json
from collections.abc import Callable
from typing import Any

from lockstep.client import ConsumerConfig, MessageQueue
from lockstep.client.consumer.offsets.store import RemoteBrokerOffsetStore
from lockstep.client.consumer.ownership.locks import QueueLocks
from lockstep.client.consumer.ownership.membership import Membership
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.order.traces.trace import TraceWriter
from lockstep.protocol.bodies.codec import decode_body, encode_body
from lockstep.protocol.bodies.locks import LockBatchBody, LockOkBody
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from tests.client.periods import period
from tests.client.stage import TOPIC, FakeBroker, Stage

__all__ = ["GROUP", "LIVE_MS", "LOCK", "UNLOCK", "UNLOCK_DELAY_MS", "Locks", "answer", "body_of", "grant", "locks_on"]

GROUP = "tower"
LOCK, UNLOCK = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ
LIVE_MS = ConsumerConfig().lock_max_live_time_ms
UNLOCK_DELAY_MS = ConsumerConfig().unlock_delay_ms


def body_of(command: RemotingCommand) -> LockBatchBody:
    return decode_body(LockBatchBody, command.body, command.serialize_type)


def grant(*refused: MessageQueue) -> Callable[[RemotingCommand], LockOkBody]:
    return lambda command: LockOkBody(tuple(queue for queue in body_of(command).mq_set if queue not in refused))


class Locks:
    """QueueLocks with a table of queues 0 to 3 of two brokers."""

    def __init__(self, stage: Stage, config: ConsumerConfig) -> None:
        self.stage = stage
        self.instance = stage.instance()
        self.reacquired: list[ProcessQueue] = []
        self.trace = TraceWriter(stage.client, "trace", self.instance.client_id, GROUP)
        offsets = RemoteBrokerOffsetStore(self.instance, GROUP)
        member = Membership(instance=self.instance, group=GROUP, config=config, offsets=offsets, trace=self.trace)
        self.table = member.table
        self.locks = QueueLocks(member, self.reacquired.append)

    def add(self, queue: MessageQueue) -> ProcessQueue:
        now_ms = self.stage.client.now_ms()
        process_queue = self.table[queue] = period(queue, now_ms, len(self.table) + 1)
        return process_queue

    def traced(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stage.client.disk.read("trace").splitlines()]


async def locks_on(stage: Stage, **config: Any) -> tuple[FakeBroker, FakeBroker, Locks]:
    first, second = await stage.broker("broker-a"), await stage.broker("broker-b")
    stage.route_to({"broker-a": 4, "broker-b": 4})
    answer(first, grant())
    answer(second, grant())
    locks = Locks(stage, ConsumerConfig(**config))
    await locks.instance.routes.fetch(TOPIC)
    return first, second, locks


def answer(broker: FakeBroker, lock: Callable[[RemotingCommand], LockOkBody]) -> None:
    def reply(command: RemotingCommand) -> RemotingCommand:
        return command.reply(ResponseCode.SUCCESS, body=encode_body(lock(command), command.serialize_type))

    broker.on[LOCK] = reply
    broker.answers(UNLOCK, ResponseCode.SUCCESS)
