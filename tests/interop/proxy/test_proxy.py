"""RocketMQ 5's own proxy before our broker, and through it its Java client of gRPC: order is kept as before its own.

The proxy forgets a client that is silent for CLIENT_LIFE_S, of 120 s, so that a killed one does not cost minutes.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from tests.interop.harness.drivers import Driver, Drivers, Event
from tests.interop.harness.installed import version_of
from tests.interop.harness.servers import Server, apache_proxy, lockstep_server
from tests.interop.harness.table import Row, RowMaker
from tests.interop.stories.java_story import again, order_of_keys

pytestmark = pytest.mark.timeout(540)
Fresh = Callable[[], str]
CLIENT_LIFE_S: Final = 25  # clients say each 10 s that they are there
INVISIBLE_S: Final = 10  # the least that the proxy takes; of a simple consumer
COUNT: Final = 60
KEYS: Final = 8


@dataclass(frozen=True)
class Proxied:
    """Our broker, the proxy before it, and drivers that speak to the proxy."""

    server: Server
    endpoints: str
    drivers: Drivers
    interop_row: RowMaker
    started: list[Driver] = field(default_factory=list)

    def row(self, scenario: str) -> Row:
        version = version_of("java5", "rocketmq-client-java")
        return self.interop_row("Java, gRPC", version, f"proxy -> {self.server.name}", scenario)

    async def fifo(self, topic: str, group: str, *, retries: int = 16) -> tuple[str, str]:
        """A topic of messages in order, and a group that reads so."""
        await self.server.create_topic(topic, message_type="FIFO")
        async with self.server.admin() as admin:
            await admin.put_group(group, in_order=True, retries=retries)
        return topic, group

    async def produce(self, topic: str, messages: int = COUNT, **arguments: Any) -> Driver:
        driver = self.start("GrpcProducer", topic=topic, messages=messages, **arguments)
        assert await driver.ended(120) == 0, driver.tail()
        assert len(driver.of("sent")) == messages
        return driver

    async def consumer(self, main_class: str, topic: str, group: str, **arguments: Any) -> Driver:
        driver = self.start(main_class, topic=topic, group=group, **arguments)
        await driver.wait_for("ready", 60)
        return driver

    def start(self, main_class: str, **arguments: Any) -> Driver:
        driver = self.drivers.java5(main_class, endpoints=self.endpoints, **arguments)
        self.started.append(driver)
        return driver


@pytest.fixture(scope="module", params=["faithful", "fenced"])
def through(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    """Our broker in each of its modes, and where the proxy before it serves."""
    folders = [tmp_path_factory.mktemp(name) for name in ("lockstep", "proxy")]
    with ExitStack() as stack:
        server = stack.enter_context(lockstep_server(folders[0], "--lock-mode", request.param))
        life = {"channelExpiredTimeout": CLIENT_LIFE_S * 1000}
        yield server, stack.enter_context(apache_proxy(folders[1], server, life))


@pytest.fixture
async def proxied(through: tuple[Server, str], drivers: Drivers, interop_row: RowMaker) -> AsyncIterator[Proxied]:
    found = Proxied(*through, drivers, interop_row)
    yield found
    for driver in found.started:
        if driver.status is None:  # a push consumer would wait for its last receive, 20 s
            await driver.kill()


def by_time(*consumers: Driver) -> list[Event]:
    """What consumers handled, oldest first."""
    return sorted((event for each in consumers for event in each.of("handled")), key=lambda event: event["wall_ms"])


async def all_handled(count: int, *consumers: Driver, timeout_s: float = 60) -> list[Event]:
    """What they handled, once it is that many messages."""

    def enough() -> list[Event] | None:
        events = by_time(*consumers)
        return events if len({event["seq"] for event in events}) >= count else None

    return await consumers[-1].until(enough, f"{count} messages", timeout_s)


@pytest.mark.parametrize("kind", ["GrpcPushConsumer", "GrpcSimpleConsumer"])
async def test_keys_stay_in_order(proxied: Proxied, kind: str, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """Every message is handled once, each key's in the order of their sending."""
    row = proxied.row(f"ordered, {kind}")
    topic, group = await proxied.fifo(fresh_topic(), fresh_group())
    consumer = await proxied.consumer(kind, topic, group)
    await proxied.produce(topic, keys=KEYS)
    events = await all_handled(COUNT, consumer)
    row.messages, row.order_kept, row.duplicates = COUNT, order_of_keys(events), again(events)
    assert row.order_kept
    assert sorted(event["seq"] for event in events) == list(range(COUNT))
    assert {event["attempt"] for event in events} == {1}


@pytest.mark.parametrize("kind", ["GrpcPushConsumer", "GrpcSimpleConsumer"])
async def test_order_outlives_a_killed_consumer(
    proxied: Proxied, kind: str, fresh_topic: Fresh, fresh_group: Fresh
) -> None:
    """Another consumer gets what a killed one was at, and held; nothing is lost, and each key stays in order."""
    row = proxied.row(f"ordered, a {kind} killed")
    topic, group = await proxied.fifo(fresh_topic(), fresh_group())
    first = await proxied.consumer(kind, topic, group, hang_at=KEYS, invisible_s=INVISIBLE_S)
    await proxied.produce(topic, keys=KEYS)
    await first.wait_for("hangs", 60)
    second = await proxied.consumer(kind, topic, group)
    await first.kill()
    killed_ms = time.time() * 1000
    events = await all_handled(COUNT, first, second, timeout_s=120)
    row.messages, row.order_kept, row.duplicates = COUNT, order_of_keys(events), again(events)
    assert row.order_kept
    assert {event["seq"] for event in events} == set(range(COUNT))
    [taken_over] = [event for event in events if event["seq"] == KEYS]
    assert taken_over["attempt"] > 1
    print(f"the message in hand came to another {(taken_over['wall_ms'] - killed_ms) / 1000:.1f} s after the kill")


async def test_a_message_that_fails_goes_to_the_dead_letters(
    proxied: Proxied, fresh_topic: Fresh, fresh_group: Fresh
) -> None:
    """The client tries again by itself, then gives the message up; those behind it are handled after that."""
    row = proxied.row("ordered, one message fails")
    topic, group = await proxied.fifo(fresh_topic(), fresh_group(), retries=1)
    consumer = await proxied.consumer("GrpcPushConsumer", topic, group, fail=1)
    await proxied.produce(topic, messages=4, keys=1)
    events = await all_handled(4, consumer)
    assert [event["seq"] for event in events] == [0, 1, 1, 2, 3]
    row.messages, row.order_kept, row.duplicates = 4, True, 1
    async with proxied.server.admin() as admin:
        stats = await admin.topic_stats(f"%DLQ%{group}")
    assert sum(offsets.max_offset for offsets in stats.values()) == 1


async def test_a_group_without_order_gets_all(proxied: Proxied, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """Two push consumers share messages without a group; one that fails comes again."""
    row = proxied.row("without order")
    topic, group = await proxied.server.create_topic(fresh_topic()), fresh_group()
    async with proxied.server.admin() as admin:
        await admin.put_group(group)
    consumers = await asyncio.gather(*(proxied.consumer("GrpcPushConsumer", topic, group) for _ in range(2)))
    await proxied.produce(topic)
    events = await all_handled(COUNT, *consumers)
    row.messages, row.duplicates = COUNT, again(events)
    assert sorted(event["seq"] for event in events) == list(range(COUNT))
