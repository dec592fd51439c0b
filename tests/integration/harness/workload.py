"""Keyed messages, waiting until they are handled, and the report of the checker, for the tests of this folder."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any, Self

from lockstep.client import AdminClient, Message, MessageQueue, Producer, ProducerConfig, SerializeType
from lockstep.order import OrderReport, Record, check_files
from lockstep.protocol.bodies.locks import LockTableRow
from tests.integration.harness.processes import ANSWER_MS, Broker, ConsumerProcess

__all__ = [
    "BROKER_LOCK_LIFE_MS",
    "SHORT_BROKER_LOCKS",
    "SHORT_LOCKS",
    "Trickle",
    "committed",
    "drained",
    "entries_of",
    "holders",
    "orderly",
    "producing",
    "records",
    "send_keyed",
    "spread",
]

KEYS = 24
BROKER_LOCK_LIFE_MS = 4000
SHORT_BROKER_LOCKS = ("-D", f"rocketmq.broker.rebalance.lockMaxLiveTime={BROKER_LOCK_LIFE_MS}")
SHORT_LOCKS = {  # of a consumer: renew < its own expiry < the broker's
    "lock_interval_ms": 1000,
    "lock_max_live_time_ms": 2500,
    "broker_lock_max_live_time_ms": BROKER_LOCK_LIFE_MS,
    "rebalance_interval_ms": 1000,
    "unlock_delay_ms": 500,
    "persist_consumer_offset_interval_ms": 500,
}


# Producing -------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def producing(
    broker: Broker, trace: Path, serialize_type: SerializeType = SerializeType.MSGPACK
) -> AsyncIterator[Producer]:
    config = ProducerConfig(
        serialize_type=serialize_type,
        compress_msg_body_over_howmuch=0,  # padding weighs as given
        connect_timeout_ms=ANSWER_MS,
        request_timeout_ms=ANSWER_MS,
        send_timeout_ms=ANSWER_MS,
        heartbeat_broker_interval_ms=1000,  # some tests' brokers close what is silent for 2.5 s
    )
    async with Producer("shop", name_server=broker.name_server, config=config, trace=str(trace)) as producer:
        yield producer


async def send_keyed(producer: Producer, topic: str, numbers: Iterable[int], *, padding_bytes: int = 0) -> int:
    """One message a number, its key by the number; how many were sent. Raises SendError."""
    sends = [
        producer.send(Message(topic, b"%d" % number + bytes(padding_bytes)), sharding_key=f"key-{number % KEYS}")
        for number in numbers
    ]
    return len(await asyncio.gather(*sends))


class Trickle:
    """Sends a few keyed messages every 20 ms until left, as customers do whatever happens to consumers."""

    def __init__(self, producer: Producer, topic: str, messages_each: int) -> None:
        self._producer = producer
        self._topic = topic
        self._messages_each = messages_each
        self._stopped = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.sent = 0

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopped.set()
        assert self._task is not None
        await self._task

    async def _run(self) -> None:
        while not self._stopped.is_set():
            numbers = range(self.sent, self.sent + self._messages_each)
            self.sent += await send_keyed(self._producer, self._topic, numbers)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), 0.02)


# Waiting, to be asked again and again --------------------------------------------------------------------------


async def _queues(admin: AdminClient, topic: str) -> list[MessageQueue]:
    return (await admin.route(topic)).readable_queues(topic)


async def committed(admin: AdminClient, group: str, topic: str) -> list[int]:
    """The group's committed offset of each queue; 0 where it has none."""
    return [await admin.consumer_offset(group, queue) or 0 for queue in await _queues(admin, topic)]


async def drained(admin: AdminClient, group: str, topic: str) -> bool:
    """Whether the group has committed all there is, and there is something."""
    ends = [await admin.max_offset(queue) for queue in await _queues(admin, topic)]
    return sum(ends) > 0 and ends == await committed(admin, group, topic)


async def holders(admin: AdminClient, group: str) -> dict[MessageQueue, str]:
    """Who holds which queue's lock; locks that ran out are left out."""
    rows: list[LockTableRow] = await admin.list_locks(group)
    return {row.queue: row.client_id for row in rows if row.remaining_ms >= 0}


async def entries_of(admin: AdminClient, group: str, client_id: str) -> set[MessageQueue]:
    """The queues that the lock table has under that client's name, whether the locks ran out or not."""
    rows: list[LockTableRow] = await admin.list_locks(group)
    return {row.queue for row in rows if row.client_id == client_id}


async def spread(
    admin: AdminClient, group: str, topic: str, queues: int, consumers: Sequence[ConsumerProcess]
) -> dict[MessageQueue, str] | None:
    """The holders, once every queue of the topic is held and the consumers share them evenly."""
    held = await holders(admin, group)
    shares = Counter(client_id for queue, client_id in held.items() if queue.topic == topic)
    if shares.total() < queues or sorted(shares) != sorted(consumer.client_id for consumer in consumers):
        return None
    return held if max(shares.values()) - min(shares.values()) <= 1 else None


# The verdict -----------------------------------------------------------------------------------------------------


_read: dict[Path, tuple[int, list[Record]]] = {}
"""Of each trace that was looked at: the bytes of its whole lines, and their records."""


def records(path: Path, event: str) -> list[Record]:
    """The records of one kind in a trace, which may still be growing. Each line is parsed once, however often asked."""
    size, known = _read.get(path, (0, []))
    if path.exists():
        with path.open("rb") as lines:
            lines.seek(size)
            for line in lines:
                if line.endswith(b"\n"):
                    known.append(json.loads(line))
                    size += len(line)
        _read[path] = size, known
    return [record for record in known if record["event"] == event]


def orderly(traces: Iterable[Path], **expected: Any) -> OrderReport:
    """The report on a history; fails unless everything is in order, nothing lost, and `expected` numbers agree."""
    report = check_files(traces)
    shown = "\n".join(report.lines())
    assert report.in_order, shown
    found = {name: getattr(report, name) for name in expected}
    assert found == expected, shown
    return report
