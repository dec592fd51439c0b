"""What the stories with Java clients share: drivers run to their end, what they handled, the verdict on their order.

An ordered consumer's driver watches the client's own offset store, so its events are records of the checker's format
(lockstep.order.judge.rules) under names of their own; `history` translates them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lockstep.order import OrderReport, Record, check_traces
from lockstep.protocol.bodies.client import ConsumerRunningInfo
from lockstep.protocol.model import MessageQueue
from tests.integration.harness.processes import until
from tests.interop.harness.drivers import Driver, Drivers, Event
from tests.interop.harness.installed import version_of
from tests.interop.harness.servers import Server, lockstep_server
from tests.interop.harness.table import Row, RowMaker

__all__ = [
    "JavaStory",
    "again",
    "both_encodings",
    "drained",
    "has_topic",
    "history",
    "in_order",
    "order_of_keys",
    "owned",
    "queues_of",
    "quick_story",
    "shared_out",
    "story",
]

ENCODING = "rocketmq.serialize.type"
FAILED = "SUSPEND_CURRENT_QUEUE_A_MOMENT"
RECORDED = ("acquired", "positioned", "handled", "committed", "dropped", "sent")
NAMES = {"broker": "broker", "queueId": "queue_id", "msgId": "msg_id", "begin_ns": "begin_mono_ns", "t_ns": "mono_ns"}
NAMES |= {"clientId": "client_id", "queueOffset": "offset", "reconsumeTimes": "reconsume_times"}


@dataclass
class JavaStory:
    """Java drivers on one broker; `properties` are -D properties of their JVMs. `part`: "java5" for the client 5.x."""

    drivers: Drivers
    server: Server
    interop_row: RowMaker
    properties: dict[str, str] | None = None
    part: str = "java"

    def row(self, scenario: str) -> Row:
        """The scenario's line in the table."""
        direction = f"Java -> {self.server.name}"
        if self.encoding != "JSON":
            scenario = f"{scenario} ({self.encoding} headers)"
        return self.interop_row("Java", version_of(self.part, "rocketmq-client"), direction, scenario)

    @property
    def encoding(self) -> str:
        """The header encoding that its clients are told to speak."""
        return (self.properties or {}).get(ENCODING, "JSON")

    def start(self, main_class: str, **arguments: Any) -> Driver:
        """A driver on this broker.

        A Java producer that gets no route within 3 s, as on a busy machine, sends as if the topic were to be made, to
        `queues` of them: so many the topic has.
        """
        name_server = self.server.name_server
        arguments.setdefault("queues", self.server.queue_counts.get(str(arguments.get("topic")), 4))
        start = self.drivers.java5 if self.part == "java5" else self.drivers.java
        return start(main_class, properties=self.properties, name_server=name_server, **arguments)

    async def run(self, main_class: str, **arguments: Any) -> Driver:
        """A driver that has done all it had to do, and ended well."""
        driver = self.start(main_class, **arguments)
        assert await driver.ended(60) == 0, driver.tail()
        return driver

    async def produce(self, topic: str, messages: int, *, keys: int = 16, **arguments: Any) -> Driver:
        """An ordered producer that has sent that many messages."""
        return await self.run("OrderedProducer", topic=topic, messages=messages, keys=keys, **arguments)

    async def consumer(self, main_class: str, topic: str, group: str, **arguments: Any) -> Driver:
        """A consumer that has started."""
        driver = self.start(main_class, topic=topic, group=group, **arguments)
        await driver.wait_for("ready")
        return driver

    async def handled(self, count: int, *consumers: Driver, timeout_s: float = 30) -> list[Event]:
        """What consumers handled, once it is that many attempts."""

        def enough() -> list[Event] | None:
            events = [event for consumer in consumers for event in consumer.of("handled")]
            return events if len(events) >= count else None

        return await consumers[0].until(enough, f"{count} attempts", timeout_s)

    async def committed(self, group: str, topic: str, queue_ids: Iterable[int]) -> list[int | None]:
        """The group's committed offsets on the broker."""
        async with self.server.admin() as admin:
            queues = [queue for queue in await queues_of(self.server, topic) if queue.queue_id in queue_ids]
            return [await admin.consumer_offset(group, queue) for queue in queues]

    async def finish(self, group: str, topic: str, *consumers: Driver) -> None:
        """End consumers in order: by then the group has committed all that the topic holds."""
        for consumer in consumers:
            assert await consumer.close() == 0, consumer.tail()
        await self.drain(group, topic, timeout_s=2)

    async def drain(self, group: str, topic: str, timeout_s: float = 30) -> None:
        """Wait until the group has committed all there is: a Java client does so ten seconds after its start."""
        await until(lambda: drained(self.server, group, topic), f"{group} has committed all of {topic}", timeout_s)


@pytest.fixture
def story(request: pytest.FixtureRequest, drivers: Drivers, lockstep: Server, interop_row: RowMaker) -> JavaStory:
    """Java drivers on the session's broker of ours; see `both_encodings`."""
    return JavaStory(drivers, lockstep, interop_row, getattr(request, "param", None))


both_encodings = pytest.mark.parametrize(
    "story", [None, {ENCODING: "ROCKETMQ"}], ids=["JSON", "ROCKETMQ"], indirect=True
)
"""Tell a test's story twice: with JSON headers, and with binary ones."""


@pytest.fixture
def quick_story(drivers: Drivers, tmp_path: Path, interop_row: RowMaker) -> Iterator[JavaStory]:
    """Java drivers on a broker of ours whose delay levels are a second each, which soon asks about transactions."""
    (tmp_path / "broker").mkdir()
    settings = {"messageDelayLevel": " ".join(["1s"] * 18)}
    settings |= {"transactionCheckInterval": "500", "transactionTimeOut": "1000"}
    options = [word for name, value in settings.items() for word in ("-D", f"{name}={value}")]
    with lockstep_server(tmp_path / "broker", *options) as server:
        yield JavaStory(drivers, server, interop_row)


def owned(consumer: Driver, topic: str) -> set[int]:
    """The ids of the queues that a consumer holds, by what it said."""
    held: set[int] = set()
    for event in consumer.look():
        if event.get("topic") == topic and event["event"] in ("acquired", "dropped"):
            (held.add if event["event"] == "acquired" else held.discard)(event["queueId"])
    return held


async def queues_of(server: Server, topic: str) -> list[MessageQueue]:
    async with server.admin() as admin:
        return (await admin.route(topic)).readable_queues(topic)


async def has_topic(server: Server, topic: str) -> bool:
    async with server.admin() as admin:
        return topic in await admin.topics()


async def shared_out(server: Server, group: str, topic: str, shares: Sequence[int]) -> None:
    """Wait until the group has so many members, and each says that it has so many queues of the topic.

    A member that is ready may have none yet, or still those that are another's now.
    """

    async def found() -> bool:
        async with server.admin() as admin:
            infos = await admin.running_infos(group, await admin.consumer_ids(group))
        told = [info for info in infos.values() if isinstance(info, ConsumerRunningInfo)]
        held = [sum(queue.topic == topic for queue in info.mq_table) for info in told]
        return len(told) == len(infos) and sorted(held) == sorted(shares)

    await until(found, f"the members of {group} have {shares} queues of {topic}", 60)


async def drained(server: Server, group: str, topic: str) -> bool:
    """Whether the group has committed all there is, and there is something."""
    async with server.admin() as admin:
        queues = await queues_of(server, topic)
        ends = [await admin.max_offset(queue) for queue in queues]
        return sum(ends) > 0 and ends == [await admin.consumer_offset(group, queue) or 0 for queue in queues]


def history(driver: Driver, topic: str) -> list[Record]:
    """A driver's events about a topic as trace records."""
    return [record(event) for event in driver.look() if event["event"] in RECORDED and event["topic"] == topic]


def record(event: Event) -> Record:
    found = {NAMES.get(name, name): value for name, value in event.items()}
    if found.get("status") in ("THROW", "NULL"):  # an exception and no answer suspend, too
        found["status"] = FAILED
    return {"host": "localhost", "client_id": "producer", "group": "producers", **found}


def in_order(row: Row, topic: str, *drivers: Driver) -> OrderReport:
    """The verdict on producers and consumers of a topic, noted in the row; fails unless all is in order."""
    report = check_traces([history(driver, topic) for driver in drivers])
    row.messages, row.order_kept = report.handled, report.in_order
    row.duplicates = sum(report.duplicates.values())
    assert report.in_order, "\n".join(report.lines())
    assert report.handled + report.dead_lettered >= report.sent > 0, "\n".join(report.lines())
    return report


def order_of_keys(events: Sequence[Event]) -> bool:
    """Whether each key's messages appear in the order of their numbers, each at its first appearance."""
    last: dict[str, int] = {}
    seen: set[int] = set()
    for event in events:
        if event["seq"] not in seen:
            if event["seq"] < last.get(event["key"], -1):
                return False
            seen.add(event["seq"])
            last[event["key"]] = event["seq"]
    return True


def again(events: Iterable[Event]) -> int:
    """How many attempts were repeats of a message."""
    return sum(count - 1 for count in Counter(event["seq"] for event in events).values())
