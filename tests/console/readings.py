"""What brokers and members might have answered, written down for tests of pages."""

from typing import Any

from lockstep.console.collector import Collector
from lockstep.console.model import BrokerState, GroupReading
from lockstep.protocol.bodies.admin import OffsetWrapper
from lockstep.protocol.bodies.client import (
    Connection,
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeStatus,
    ProcessQueueInfo,
)
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.bodies.locks import LockTableRow
from lockstep.protocol.codes import LanguageCode
from lockstep.protocol.messages.message import MessageExt, Record, encode_stored_message
from lockstep.protocol.messages.pulled import decode_records
from lockstep.protocol.model import MessageQueue

__all__ = ["GROUP", "NOW_MS", "QUEUES", "TOPIC", "info", "lock_row", "message", "reading", "watched"]

NOW_MS = 1_700_000_000_000
TOPIC, GROUP = "orders", "shop"
QUEUES = [MessageQueue(TOPIC, "broker-a", number) for number in range(4)]


def info(queues: list[MessageQueue], *, orderly: str | None = "true", failed_tps: float = 0.0) -> ConsumerRunningInfo:
    """What a member with these queues answers."""
    properties = {"PROP_THREADPOOL_CORE_SIZE": "20", "PROP_CONSUMER_START_TIMESTAMP": str(NOW_MS - 60_000)}
    properties |= {"allocateMessageQueueStrategy": "AVG"}
    if orderly is not None:
        properties["PROP_CONSUMEORDERLY"] = orderly
    status = ConsumeStatus(consume_ok_tps=12.5, consume_failed_tps=failed_tps)
    return ConsumerRunningInfo(
        properties,
        (SubscriptionData(TOPIC, "*"),),
        dict.fromkeys(queues, ProcessQueueInfo(locked=True)),
        {TOPIC: status},
    )


def lock_row(queue: MessageQueue, client_id: str, epoch: int | None = None) -> LockTableRow:
    return LockTableRow(GROUP, queue, client_id, 5000, 55_000, 100_000, epoch)


def message(queue: MessageQueue, offset: int, stored_ms: int, properties: bytes = b"") -> MessageExt:
    """A message as a broker has stored it."""
    topic = queue.topic.encode()
    host = b"\x7f\x00\x00\x01"
    record = Record(queue.topic, queue.queue_id, 0, 0, stored_ms, host, 1, stored_ms, 0, 0, b"{}", properties, 0)
    stored = encode_stored_message(record, topic, offset, 0, host, 1)
    return decode_records(stored, queue.broker_name).messages[0]


def reading(name: str = GROUP, **changes: Any) -> GroupReading:
    """A group of two members that share four queues."""
    connections = tuple(Connection(name, f"10.0.0.{n}:5000", LanguageCode.PYTHON, 435) for n, name in enumerate("ab"))
    read = GroupReading(
        name,
        (TOPIC,),
        ConsumerConnection(connections, {TOPIC: SubscriptionData(TOPIC, "*")}),
        {"a": info(QUEUES[:2]), "b": info(QUEUES[2:])},
        {queue: OffsetWrapper(100, 90, NOW_MS - 1000) for queue in QUEUES},
        7.5,
    )
    return read._replace(**changes)


def watched(*readings: GroupReading, epoch: int | None = None) -> Collector:
    """A collector that has read these groups and the locks of their queues."""
    collector = Collector()
    collector.broker_answered(BrokerState("broker-a", "127.0.0.1:10911", is_lockstep=True), NOW_MS)
    collector.locked("broker-a", [lock_row(queue, "ab"[queue.queue_id // 2], epoch) for queue in QUEUES], NOW_MS)
    for one in readings:
        collector.group(one, NOW_MS)
    return collector
