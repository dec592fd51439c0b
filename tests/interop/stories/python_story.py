"""What the stories with our own client share: settings to match the brokers' short lock life, traces, the verdict."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lockstep.client import (
    ConsumeFromWhere,
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    ConsumerConfig,
    Message,
    MessageExt,
    OrderlyListener,
    Producer,
    ProducerConfig,
    PushConsumer,
    SendResult,
)
from lockstep.order import OrderReport, check_files
from tests.integration.harness.processes import PATIENCE, PATIENT_PRODUCER, until
from tests.interop.harness.servers import Server
from tests.interop.harness.table import Row, RowMaker

__all__ = ["FAST_CONFIG", "FAST_PROPERTIES", "PythonStory", "eventually", "handled_by_us"]

FAST_PROPERTIES = {
    "rocketmq.client.rebalance.waitInterval": 1000,
    "rocketmq.client.rebalance.lockInterval": 1500,
    "rocketmq.client.rebalance.lockMaxLiveTime": 5000,
    "rocketmq.client.unlockDelayTimeMills": 1500,
    "heartbeatBrokerInterval": 1000,
    "pollNameServerInterval": 1000,
    "persistConsumerOffsetInterval": 500,
    "suspendCurrentQueueTimeMillis": 20,
}
FAST_CONFIG = ConsumerConfig(
    consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    rebalance_interval_ms=1000,
    lock_interval_ms=1500,
    lock_max_live_time_ms=5000,
    unlock_delay_ms=1500,
    heartbeat_broker_interval_ms=1000,
    poll_name_server_interval_ms=1000,
    persist_consumer_offset_interval_ms=500,
    persist_consumer_offset_first_ms=500,
    suspend_current_queue_time_ms=20,
)
POLL_S = 0.05


async def eventually(condition: Callable[[], Awaitable[Any]], what: str, timeout_s: float = 30) -> None:
    """Wait until it is true; fails with `what` when the time is over."""
    deadline = asyncio.get_running_loop().time() + timeout_s * PATIENCE
    while not await condition():
        assert asyncio.get_running_loop().time() < deadline, f"not within {timeout_s} s: {what}"
        await asyncio.sleep(POLL_S)


async def handled_by_us(
    server: Server, topic: str, group: str, count: int, *, ordering: Literal["queue", "key"] = "queue"
) -> list[MessageExt]:
    """What an ordered consumer of ours handled of a topic, once that is so many messages."""
    handled: list[MessageExt] = []

    async def listener(messages: list[MessageExt], context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus:
        handled.extend(messages)
        return ConsumeOrderlyStatus.SUCCESS

    name_server = server.name_server
    consumer = PushConsumer(group, name_server=name_server, config=FAST_CONFIG, listener=listener, ordering=ordering)
    consumer.subscribe(topic)
    async with consumer:
        await until(lambda: len(handled) >= count, f"{count} messages are handled")
    return handled


@dataclass
class PythonStory:
    """Our clients on one broker, each with a trace; `report` judges all of them."""

    server: Server
    folder: Path
    interop_row: RowMaker
    traces: list[Path] = field(default_factory=list)

    def row(self, scenario: str) -> Row:
        """The scenario's line in the table."""
        return self.interop_row("Lockstep", "0.1.0", f"Python -> {self.server.name} {self.server.version}", scenario)

    def trace(self) -> str:
        """A new file for a client's trace."""
        self.traces.append(self.folder / f"client-{len(self.traces) + 1}.trace")
        return str(self.traces[-1])

    def producer(self, config: ProducerConfig | None = None) -> Producer:
        name_server, config = self.server.name_server, config or PATIENT_PRODUCER
        return Producer("interop-producers", name_server=name_server, config=config, trace=self.trace())

    def consumer(
        self, topic: str, group: str, listener: OrderlyListener, config: ConsumerConfig = FAST_CONFIG
    ) -> PushConsumer:
        """A consumer, not started yet."""
        name_server = self.server.name_server
        consumer = PushConsumer(group, name_server=name_server, config=config, listener=listener, trace=self.trace())
        consumer.subscribe(topic)
        return consumer

    async def send_keyed(
        self, topic: str, messages: int, *, keys: int = 20, in_flight: int = 64, config: ProducerConfig | None = None
    ) -> list[SendResult]:
        """Numbers from 0 on as bodies, `key-N` in turn; the results in call order."""
        room = asyncio.Semaphore(in_flight)
        async with self.producer(config) as producer:

            async def send(number: int) -> SendResult:
                async with room:
                    return await producer.send(
                        Message(topic, str(number).encode()), sharding_key=f"key-{number % keys}"
                    )

            return await asyncio.gather(*(send(number) for number in range(messages)))

    async def drain(self, topic: str, group: str, timeout_s: float = 30) -> None:
        """Wait until the group has committed all that the topic holds, which is something."""

        async def drained() -> bool:
            queues = (await admin.route(topic)).readable_queues(topic)
            ends = [await admin.max_offset(queue) for queue in queues]
            return sum(ends) > 0 and ends == [await admin.consumer_offset(group, queue) or 0 for queue in queues]

        async with self.server.admin() as admin:
            await eventually(drained, f"{group} has committed all of {topic}", timeout_s)

    def report(self, row: Row) -> OrderReport:
        """The verdict, noted in the row; fails unless all is in order and nothing is lost."""
        report = check_files(self.traces)
        row.messages, row.order_kept, row.duplicates = report.handled, report.in_order, sum(report.duplicates.values())
        assert report.in_order, "\n".join(report.lines())
        assert report.handled + report.dead_lettered >= report.sent > 0, "\n".join(report.lines())
        return report
