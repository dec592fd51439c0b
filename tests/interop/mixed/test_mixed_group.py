"""Java and Python consumers in one group share an ordered topic, on either broker."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from lockstep.client import Message, Producer, ProducerConfig
from lockstep.order import OrderReport, TraceFile, check_traces
from tests.interop.harness.drivers import Driver, Drivers
from tests.interop.harness.installed import version_of
from tests.interop.harness.servers import LOCK_LIFE_MS, Server
from tests.interop.harness.table import Row, RowMaker
from tests.interop.stories.java_story import history, shared_out
from tests.interop.stories.python_story import FAST_PROPERTIES, PythonStory, eventually

pytestmark = pytest.mark.timeout(900)
Fresh = Callable[[], str]
SLOW_MACHINE = ProducerConfig(send_timeout_ms=20_000)  # four clients, of which two are JVMs, share it with the broker
ONE_MACHINE_MS = 5  # at most between the wall clocks of two processes, which read the same one
TAKEOVER_S = LOCK_LIFE_MS / 1000 + 20
RATE = 3_000


class MixedGroup:
    """Consumers of both languages in one group; those of Python have traces, those of Java events that say as much."""

    def __init__(self, server: Server, drivers: Drivers, folder: Path, topic: str, group: str) -> None:
        self.server = server
        self.topic = topic
        self.java: list[Driver] = []
        self.python: list[Driver] = []
        self._drivers = drivers
        self._folder = folder
        self._who: dict[str, Any] = {"name_server": server.name_server, "topic": topic, "group": group}

    async def join(self, java: int, python: int, work_ms: int) -> None:
        """Start so many of each, at once; returns when all are ready."""
        self.java += [self._drivers.java("OrderlyConsumer", **self._who, work_ms=work_ms) for _ in range(java)]
        settings = [f"{name}={value}" for name, value in FAST_PROPERTIES.items()]
        for _ in range(python):
            trace = self._folder / f"python-{len(self.python) + 1}.trace"
            who = {**self._who, "trace": trace, "work_ms": work_ms, "property": settings}
            self.python.append(self._drivers.python("ordered_consumer.py", **who))
        await asyncio.gather(*(consumer.wait_for("ready", 60) for consumer in [*self.java, *self.python]))

    def handled(self, consumer: Driver) -> int:
        """How many messages a consumer has handled so far."""
        if consumer in self.java:
            return len(consumer.of("handled"))
        return self.trace_of(consumer).read_bytes().count(b'{"event":"handled"')

    def trace_of(self, consumer: Driver) -> Path:
        return self._folder / f"python-{self.python.index(consumer) + 1}.trace"

    async def all_at_work(self, least: int, sending: "asyncio.Task[None] | None" = None) -> None:
        """Wait until every consumer has handled so many; sends that fail meanwhile are raised."""

        async def busy() -> bool:
            if sending is not None and sending.done():
                sending.result()
            return all(self.handled(consumer) >= least for consumer in [*self.java, *self.python])

        await eventually(busy, f"every consumer has handled {least}", 60)

    async def end(self) -> None:
        """Every consumer that still runs leaves in order."""
        alive = [consumer for consumer in [*self.java, *self.python] if consumer.status is None]
        assert set(await asyncio.gather(*(consumer.close() for consumer in alive))) <= {0, 143}

    def report(self, row: Row, producer_traces: Sequence[Path]) -> OrderReport:
        """The verdict on the whole group, noted in the row; fails unless all is in order and nothing is lost."""
        files = [*producer_traces, *(self.trace_of(consumer) for consumer in self.python)]
        traces: list[Iterable[Mapping[str, Any]]] = [*map(TraceFile, files)]
        traces += [history(consumer, self.topic) for consumer in self.java]
        report = check_traces(traces, wall_skew_ms=ONE_MACHINE_MS)
        row.messages, row.order_kept, row.duplicates = report.handled, report.in_order, sum(report.duplicates.values())
        assert report.in_order, "\n".join(report.lines())
        assert report.handled == report.sent > 0, "\n".join(report.lines())
        return report


def row_of(interop_row: RowMaker, server: Server, scenario: str) -> Row:
    versions = f"{version_of('java', 'rocketmq-client')}, 0.1.0"
    return interop_row("Java, Lockstep", versions, f"Java + Python -> {server.name} {server.version}", scenario)


async def test_one_of_each(
    either: Server, drivers: Drivers, tmp_path: Path, interop_row: RowMaker, fresh_topic: Fresh, fresh_group: Fresh
) -> None:
    """A Java and a Python consumer share a topic in order; the one takes over when the other leaves in order."""
    row = row_of(interop_row, either, "a Java and a Python consumer in one group")
    topic = await either.create_topic(fresh_topic(), 8)
    group_name = fresh_group()
    group = MixedGroup(either, drivers, tmp_path, topic, group_name)
    story = PythonStory(either, tmp_path, interop_row)
    await group.join(java=1, python=1, work_ms=1)
    await shared_out(either, group_name, topic, [4, 4])  # else the first to come might handle everything
    await story.send_keyed(topic, 2_000, keys=100)
    await group.all_at_work(100)
    assert await group.java[0].close() in (0, 143)
    await story.send_keyed(topic, 500, keys=100)
    await story.drain(topic, group_name, TAKEOVER_S)
    await group.end()
    report = group.report(row, story.traces)
    assert (report.sent, report.handled, report.keys) == (2_500, 2_500, 100)
    assert report.handovers


@pytest.mark.parametrize("messages", [100_000])
async def test_many_keys_and_one_of_each_killed(
    either: Server,
    drivers: Drivers,
    tmp_path: Path,
    interop_row: RowMaker,
    fresh_topic: Fresh,
    fresh_group: Fresh,
    messages: int,
) -> None:
    """Two consumers of each language share 1,000 keys; one of each is killed at work: nothing lost, no order broken."""
    row = row_of(interop_row, either, "1,000 keys, 2 + 2 consumers, one of each killed")
    topic, group_name = await either.create_topic(fresh_topic(), 16), fresh_group()
    group = MixedGroup(either, drivers, tmp_path, topic, group_name)
    story = PythonStory(either, tmp_path, interop_row)
    await group.join(java=2, python=2, work_ms=0)
    await shared_out(either, group_name, topic, [4] * 4)
    trace, killed = story.trace(), asyncio.Event()
    async with Producer(
        "interop-producers", name_server=either.name_server, trace=trace, config=SLOW_MACHINE
    ) as producer:
        sending = asyncio.create_task(send_all(producer, topic, messages, killed, keys=1_000))
        await group.all_at_work(messages // 50, sending)
        victims = [group.java[0], group.python[0]]
        for victim in victims:
            await victim.kill()
        assert not sending.done()
        killed.set()
        await sending
    await story.drain(topic, group_name, 120)
    await group.end()
    report = group.report(row, story.traces)
    assert (report.sent, report.handled, report.keys) == (messages, messages, 1_000)
    assert len({handover.queue for handover in report.handovers}) >= 8  # the queues of the two that were killed


async def send_all(producer: Producer, topic: str, messages: int, killed: asyncio.Event, *, keys: int) -> None:
    """Keys in turn, 256 in flight, at most RATE in a second; the second half when consumers are `killed`."""
    loop = asyncio.get_running_loop()
    begin = loop.time()
    in_flight: list[asyncio.Task[object]] = []
    for number in range(messages):
        if number % 256 == 0:
            await asyncio.gather(*in_flight)
            in_flight.clear()
            await asyncio.sleep(max(0.0, begin + number / RATE - loop.time()))
        if number == messages // 2:
            await killed.wait()
        message = Message(topic, str(number).encode(), properties={"seq": str(number)})
        in_flight.append(asyncio.create_task(producer.send(message, sharding_key=f"key-{number % keys}")))
    await asyncio.gather(*in_flight)
