"""What RocketMQ 5's clients of gRPC do, told once for all of them, and for each server that speaks it.

Each client has drivers for its parts, which take and say the same:

- `produce`: sends --messages to --topic, with --keys message groups in turn (0: none), from number --first on; with
  --delay-ms, of which --recall takes the first one back; with --transactions, of which each third is committed, rolled
  back, or left until the broker asks. It says `sent`, `recalled`, `asked`; then `done` and it ends, or with
  --transactions `ready`.
- `simple`: receives from --topic for --group, for --invisible-s, and acknowledges. It says `ready`, `handled`, `acked`.
- `push`: listens to --topic for --group. It says `ready` and `handled`. Number --fail is never consumed.

Both consumers say `hangs` at number --hang-at, and do nothing more then. All take --endpoints, --plain true (without
it: what the client does by default), --access-key and --secret-key; what fails for good is said as `failed`.
"""

import asyncio
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from tests.integration.harness.processes import until
from tests.interop.harness.drivers import Driver, Drivers, Event
from tests.interop.harness.installed import ROOT, require, version_of
from tests.interop.harness.servers import Server
from tests.interop.harness.table import Row, RowMaker
from tests.interop.stories.java_story import again, order_of_keys

__all__ = [
    "INVISIBLE_S",
    "SDKS",
    "GrpcStory",
    "Sdk",
    "comes_in_time",
    "decides_transactions",
    "fails_for_good",
    "keeps_order",
    "outlives_a_kill",
    "shares_without_order",
    "version_in",
    "works_with_an_account",
]

COUNT: Final = 60
KEYS: Final = 8
INVISIBLE_S: Final = 10  # the least that RocketMQ takes; of a simple consumer
START_S: Final = 60
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Sdk:
    """A client.

    Args:
        start: Starts the driver of a part, with arguments.
        version: Asked for by a test of it: the client may not be here.
        lacks: Parts, and what it cannot do: "push", "transactions", "recall", "TLS", "retries", "order in retries".
        checks: It speaks TLS when asked for, and wants to be told of the signer: the driver's `ca`.
    """

    language: str
    start: Callable[..., Driver]
    version: Callable[[], str]
    lacks: frozenset[str] = frozenset()
    checks: bool = False


def java(drivers: Drivers, part: str, **arguments: Any) -> Driver:
    """A driver of rocketmq-client-java."""
    classes = {"produce": "GrpcProducer", "simple": "GrpcSimpleConsumer", "push": "GrpcPushConsumer"}
    return drivers.java5(classes[part], **arguments)


SDKS: Final = {
    "Java": Sdk("Java, gRPC", java, lambda: version_of("java5", "rocketmq-client-java")),
    "Go": Sdk(
        "Go, gRPC",
        Drivers.go5,
        lambda: version_in("go5/go.mod", r"golang/v5 v(\S+)"),
        frozenset({"order in retries"}),  # eraseFifoMessage sets a timer, and the loop over the receipt goes on
    ),
    "Node": Sdk(
        "Node, gRPC",
        Drivers.node5,
        lambda: version_in("node5/package.json", r'nodejs": "([^"]+)'),
        frozenset({"retries"}),  # it reads no list of times, which is what a group has
        checks=True,
    ),
    "Python": Sdk("Python, gRPC", Drivers.python5, lambda: wheel_of("python5", "rocketmq_python_client"), checks=True),
    "Rust": Sdk(
        "Rust, gRPC",
        Drivers.rust5,
        lambda: version_in("rust5/Cargo.toml", r'rocketmq = "=([^"]+)'),
        frozenset({"push", "recall", "TLS"}),
    ),
}


@dataclass(frozen=True)
class GrpcStory:
    """Drivers of one client on one server; `direction` as in the table."""

    sdk: Sdk
    server: Server
    endpoints: str
    drivers: Drivers
    interop_row: RowMaker
    direction: str
    started: list[Driver] = field(default_factory=list)

    def row(self, scenario: str) -> Row:
        return self.interop_row(self.sdk.language, self.sdk.version(), self.direction, scenario)

    async def topic(self, message_type: str) -> str:
        """A topic that nobody has used."""
        name = f"{message_type.lower()}-{next(_numbers)}"
        return await self.server.create_topic(name, message_type=message_type)

    async def group(self, *, in_order: bool = True, retries: int = 16) -> str:
        """A group that nobody has used."""
        name = f"workers-{next(_numbers)}"
        async with self.server.admin() as admin:
            await admin.put_group(name, in_order=in_order, retries=retries)
        return name

    def start(self, part: str, topic: str, **arguments: Any) -> Driver:
        """A driver, in plain text unless `plain` says otherwise."""
        given = {"endpoints": self.endpoints, "topic": topic, "plain": True} | arguments
        driver = self.sdk.start(self.drivers, part, **{name: value for name, value in given.items() if value != ""})
        self.started.append(driver)
        return driver

    async def produce(self, topic: str, messages: int = COUNT, **arguments: Any) -> Driver:
        """A producer that has sent that many, and ended well."""
        driver = self.start("produce", topic, messages=messages, **arguments)
        assert await driver.ended(START_S) == 0, driver.tail()
        assert len(driver.of("sent")) == messages
        return driver

    async def consumers(self, topic: str, *wanted: tuple[str, str], **arguments: Any) -> list[Driver]:
        """Consumers that have started, each by its part and group."""
        started = [self.start(part, topic, group=group, **arguments) for part, group in wanted]
        await asyncio.gather(*(driver.wait_for("ready", START_S) for driver in started))
        return started

    async def leave(self) -> None:
        """Kill what runs: a push consumer would wait for its last receive, 20 s."""
        for driver in self.started:
            if driver.status is None:
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


def judge(row: Row, events: list[Event], count: int = COUNT) -> None:
    """Note what was handled: nothing may be lost, each key must be in order, and a repeat must be a new delivery."""
    row.messages, row.order_kept, row.duplicates = count, order_of_keys(events), again(events)
    assert row.order_kept
    assert {event["seq"] for event in events} == set(range(count))
    attempts: dict[int, int] = {}
    for event in events:
        assert event["attempt"] > attempts.get(event["seq"], 0)
        attempts[event["seq"]] = event["attempt"]


async def keeps_order(story: GrpcStory, *parts: str) -> None:
    """Every message is handled once by each group, each key's in the order of their sending.

    Each client speaks as it does without an option: Java and Go TLS, the others plain text.
    """
    rows = [story.row(f"FIFO: produce, {part} consumer") for part in parts]
    topic = await story.topic("FIFO")
    groups = [await story.group() for _ in parts]
    consumers = await story.consumers(topic, *zip(parts, groups, strict=True), plain="")
    await story.produce(topic, keys=KEYS, plain="")
    for row, group, consumer in zip(rows, groups, consumers, strict=True):
        await all_handled(COUNT, consumer)
        await until(partial(has_acknowledged_all, story, group, topic), "all acknowledged", 30)
        events = by_time(consumer)
        judge(row, events)
        assert row.duplicates == 0
        assert {event["attempt"] for event in events} == {1}


async def has_acknowledged_all(story: GrpcStory, group: str, topic: str) -> bool:
    """Whether the broker has acknowledgements of all messages: else some would come again."""
    async with story.server.admin() as admin:
        progress = await admin.progress(group, topic)
    return sum(of.consumer_offset for queue, of in progress.offsets.items() if queue.topic == topic) == COUNT


async def outlives_a_kill(story: GrpcStory, part: str, what: str, wait: Callable[[], object]) -> None:
    """Another consumer gets what a killed one was at, and held; nothing is lost, and each key stays in order.

    Args:
        wait: Called after the kill; moves a clock, or does nothing.
    """
    row = story.row(f"FIFO: a {part} consumer killed{what}")
    topic, group = await story.topic("FIFO"), await story.group()
    first = story.start(part, topic, group=group, hang_at=KEYS, invisible_s=INVISIBLE_S)
    await first.wait_for("ready", START_S)
    await story.produce(topic, keys=KEYS)
    await first.wait_for("hangs", START_S)
    (second,) = await story.consumers(topic, (part, group))
    await first.kill()
    wait()
    events = await all_handled(COUNT, first, second, timeout_s=120)
    judge(row, events)
    # More than once, where it came before the kill, and the moved clock ended that delivery too.
    assert min(event["attempt"] for event in events if event["seq"] == KEYS) > 1


async def fails_for_good(story: GrpcStory) -> None:
    """The client tries again by itself, if it can, then gives the message up; those behind are handled after that.

    All are sent before it starts, so that one receipt holds them: which is where a client may break the order.
    """
    tries = 1 if "retries" in story.sdk.lacks else 2
    overtakes = "order in retries" in story.sdk.lacks
    row = story.row("FIFO: one message fails, goes to the DLQ")
    topic, group = await story.topic("FIFO"), await story.group(retries=1)
    await story.produce(topic, messages=4, keys=1)
    (consumer,) = await story.consumers(topic, ("push", group), fail=1)
    await consumer.until(lambda: len(consumer.of("handled")) >= 3 + tries, "all, and one again", 60)
    await until(lambda: has_dead_letters(story, group), "a dead letter", 30)
    handled = [event["seq"] for event in by_time(consumer)]
    row.messages, row.order_kept, row.duplicates = 4, not overtakes, tries - 1
    assert handled == ([0, 1, 2, 3, 1] if overtakes else [0, *[1] * tries, 2, 3])
    assert await dead_letters(story, group) == 1


async def dead_letters(story: GrpcStory, group: str) -> int:
    async with story.server.admin() as admin:
        stats = await admin.topic_stats(f"%DLQ%{group}")
    return sum(offsets.max_offset for offsets in stats.values())


async def shares_without_order(story: GrpcStory, wait: Callable[[], object]) -> None:
    """Two push consumers share messages; one that fails comes again, and then goes to the DLQ.

    Args:
        wait: Called when it has failed twice; moves a clock, or does nothing.
    """
    row = story.row("NORMAL: two push consumers, one message fails, goes to the DLQ")
    topic, group = await story.topic("NORMAL"), await story.group(in_order=False, retries=1)
    consumers = await story.consumers(topic, ("push", group), ("push", group), fail=0)
    await story.produce(topic)
    await consumers[0].until(lambda: len(by_time(*consumers)) == COUNT + 1, "all, and one twice", 60)
    wait()
    await until(lambda: has_dead_letters(story, group), "a dead letter", 30)
    events = by_time(*consumers)
    row.messages, row.duplicates = COUNT, again(events)
    assert sorted(event["seq"] for event in events) == [0, *range(COUNT)]
    assert [event["attempt"] for event in events if event["seq"] == 0] == [1, 2]
    while not all(each.of("handled") for each in consumers):  # one may have taken all before the other asked
        await story.produce(topic)


async def has_dead_letters(story: GrpcStory, group: str) -> bool:
    async with story.server.admin() as admin:
        return f"%DLQ%{group}" in await admin.topics() and await dead_letters(story, group) > 0


async def comes_in_time(story: GrpcStory) -> None:
    """Messages for later come when their time is there, but for one that is taken back, where the client can."""
    recalls = "recall" not in story.sdk.lacks
    row = story.row(f"DELAY: at their time, {'one' if recalls else 'none'} recalled")
    topic, group = await story.topic("DELAY"), await story.group(in_order=False)
    (consumer,) = await story.consumers(topic, ("simple", group))
    # An hour is left after the first move of the clock: what a busy machine takes to send one more is far less.
    late = await story.produce(topic, messages=3, delay_ms=7_200_000, recall=recalls)
    assert [event["seq"] for event in late.of("recalled")] == [0] * recalls
    story.server.advance(3600)
    # It is over already by the broker's clock, so it comes at once; had the late ones come, they had come before.
    await story.produce(topic, messages=1, first=3, delay_ms=1000)
    await consumer.until(lambda: consumer.of("handled"), "the one whose time is over")
    story.server.advance(3700)
    expected = [1, 2, 3] if recalls else [0, 1, 2, 3]
    events = await all_handled(len(expected), consumer)
    assert events[0]["seq"] == 3
    assert sorted(event["seq"] for event in events) == expected
    row.messages = len(expected)


async def decides_transactions(story: GrpcStory, wait: Callable[[], object]) -> None:
    """Of each three messages one is committed, one rolled back, and one committed when the broker asks.

    Args:
        wait: Called when all are sent, and decided but for those; moves a clock to where the broker asks.
    """
    row = story.row("TRANSACTION: committed, rolled back, asked for")
    topic, group = await story.topic("TRANSACTION"), await story.group(in_order=False)
    (consumer,) = await story.consumers(topic, ("simple", group))
    producer = story.start("produce", topic, messages=6, transactions=True)
    await producer.wait_for("ready", START_S)
    assert producer.of("asked") == []
    wait()
    await all_handled(4, consumer)
    assert sorted(event["seq"] for event in producer.of("asked")) == [2, 5]
    assert sorted(event["seq"] for event in consumer.of("handled")) == [0, 2, 3, 5]
    row.messages = 6


async def works_with_an_account(story: GrpcStory, account: dict[str, Any], ca: str) -> None:
    """With an account, over TLS where the client has it: what goes, goes; a wrong key gets nothing through."""
    how = "no TLS" if "TLS" in story.sdk.lacks else "TLS, checked" if story.sdk.checks else "TLS by default"
    row = story.row(f"NORMAL: an account, {how}")
    given = account | {"plain": "", "ca": ca if story.sdk.checks else ""}
    refused = story.start("produce", "orders", messages=1, **given | {"secret_key": "secret-0000"})
    consumers = await story.consumers("orders", ("simple", "workers"), **given)
    await story.produce("orders", **given)
    events = await all_handled(COUNT, *consumers)
    assert sorted(event["seq"] for event in events) == list(range(COUNT))
    row.messages, row.duplicates = COUNT, 0
    assert await refused.ended(START_S) == 1
    assert "check signature failed" in refused.tail()


def version_in(path: str, pattern: str) -> str:
    """A version that a file of scripts/interop names."""
    found = re.search(pattern, (ROOT / "scripts" / "interop" / path).read_text(encoding="utf-8"))
    assert found is not None
    return found[1]


def wheel_of(part: str, name: str) -> str:
    """The version of a wheel that set_up.py installed."""
    (found,) = require(part).glob(f"{name}-*.dist-info")
    return found.name.removeprefix(f"{name}-").removesuffix(".dist-info")
