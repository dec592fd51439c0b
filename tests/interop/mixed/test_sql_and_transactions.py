"""SQL filters and transactions across the two: Java's consumers on our broker, ours on Apache's, and both at once."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lockstep.client import (
    ConsumeOrderlyContext,
    LocalTransactionState,
    Message,
    MessageExt,
    MessageSelector,
    PushConsumer,
    TransactionProducer,
)
from tests.integration.harness.processes import PATIENT_PRODUCER
from tests.interop.harness.drivers import Drivers
from tests.interop.harness.installed import version_of
from tests.interop.harness.servers import DECIDED_MS, Server, lockstep_server
from tests.interop.harness.table import RowMaker
from tests.interop.stories.java_story import JavaStory
from tests.interop.stories.python_story import FAST_CONFIG, eventually

pytestmark = pytest.mark.timeout(540)
Fresh = Callable[[], str]
WANTED = {
    "seq BETWEEN 3 AND 6": [3, 4, 5, 6],
    "seq > 17 OR (seq < 2 AND TAGS = 'TagB')": [1, 18, 19],
    "seq IN ('4', '40') AND absent IS NULL": [4],
}


@pytest.fixture(scope="module")
def filtering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A broker of ours that filters by SQL."""
    with lockstep_server(tmp_path_factory.mktemp("filtering"), "-D", "enablePropertyFilter=true") as server:
        yield server


@pytest.fixture(params=["filtering", "apache"])
def server(request: pytest.FixtureRequest) -> Server:
    """Either broker that filters by SQL, one after the other."""
    found: Server = request.getfixturevalue(request.param)
    return found


async def test_sql_filters(
    server: Server, drivers: Drivers, interop_row: RowMaker, fresh_topic: Fresh, fresh_group: Fresh
) -> None:
    """A Java consumer and one of ours get the same messages of each expression, and nothing else."""
    story = JavaStory(drivers, server, interop_row)
    rows = [story.row("SQL92 filters"), interop_row("Lockstep", "0.1.0", f"Python -> {server.name}", "SQL92 filters")]
    topic = await server.create_topic(fresh_topic(), 4)
    ours: dict[str, Counter[int]] = {expression: Counter() for expression in WANTED}
    groups = [fresh_group() for _ in range(2 * len(WANTED))]
    names = iter(groups)
    consumers = [await our_consumer(server, topic, next(names), text, ours[text]) for text in WANTED]
    theirs = await asyncio.gather(*[
        story.consumer("ConcurrentConsumer", topic, next(names), sql=text) for text in WANTED
    ])  # fmt: skip
    await story.produce(topic, 20, tags=["TagA", "TagB"])
    await server.settle()
    try:
        for group in groups:  # so that something else would have come by now
            await story.drain(group, topic)
    finally:
        for consumer in consumers:
            await consumer.shutdown()
    for (text, numbers), driver in zip(WANTED.items(), theirs, strict=True):
        assert sorted(event["seq"] for event in driver.of("handled")) == numbers, text
        assert ours[text] == Counter(numbers), text
    for row in rows:
        row.messages, row.duplicates = sum(map(len, WANTED.values())), 0


async def our_consumer(server: Server, topic: str, group: str, text: str, seen: Counter[int]) -> PushConsumer:
    async def listen(messages: list[MessageExt], context: ConsumeOrderlyContext) -> None:
        seen.update(int(message.properties["seq"]) for message in messages)

    consumer = PushConsumer(group, name_server=server.name_server, config=FAST_CONFIG, listener=listen)
    consumer.subscribe(topic, MessageSelector.by_sql(text))
    await consumer.start()
    return consumer


async def test_a_broker_that_does_not_filter_so(
    lockstep: Server, drivers: Drivers, interop_row: RowMaker, fresh_topic: Fresh, fresh_group: Fresh
) -> None:
    """Without enablePropertyFilter a Java consumer's start is refused with the reason, as Apache refuses it."""
    story = JavaStory(drivers, lockstep, interop_row)
    row = story.row("SQL92 filters, not enabled")
    topic = await lockstep.create_topic(fresh_topic(), 1)
    driver = story.start("ConcurrentConsumer", topic=topic, group=fresh_group(), sql="seq > 3")
    assert await driver.ended(60) == 1
    [failed] = driver.of("failed")
    assert "does not support consumer to filter message by SQL92" in failed["error"]
    row.messages = 0


@dataclass
class Decider:
    """Even ones are committed, odd ones rolled back, those from ten on left to the broker's question."""

    checked: list[str] = field(default_factory=list)

    async def execute_local_transaction(self, message: Message, number: Any) -> LocalTransactionState:
        if number >= 10:
            return LocalTransactionState.UNKNOWN
        return LocalTransactionState.ROLLBACK_MESSAGE if number % 2 else LocalTransactionState.COMMIT_MESSAGE

    async def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        self.checked.append(message.transaction_id or "")
        odd = int(message.properties["seq"]) % 2
        return LocalTransactionState.ROLLBACK_MESSAGE if odd else LocalTransactionState.COMMIT_MESSAGE


@pytest.fixture
def asking(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """A broker of ours that soon asks after transactions; Apache's does so too."""
    (tmp_path / "asking").mkdir()
    options = ["-D", "transactionCheckInterval=1000", "-D", f"transactionTimeOut={DECIDED_MS}"]
    with lockstep_server(tmp_path / "asking", *options) as server:
        yield server


@pytest.mark.parametrize("which", ["asking", "apache"])
async def test_our_transactions(
    request: pytest.FixtureRequest,
    which: str,
    drivers: Drivers,
    interop_row: RowMaker,
    fresh_topic: Fresh,
    fresh_group: Fresh,
) -> None:
    """A Java consumer gets what we committed, at once or when asked, and nothing that was rolled back."""
    server: Server = request.getfixturevalue(which)
    story = JavaStory(drivers, server, interop_row)
    row = interop_row("Lockstep", "0.1.0", f"Python -> {server.name}", "transactions: commit, rollback, asked later")
    topic, group = await server.create_topic(fresh_topic(), 4), fresh_group()
    consumer = await story.consumer("ConcurrentConsumer", topic, group)
    decider, ids = Decider(), dict[int, str]()
    producer = TransactionProducer(
        fresh_group(), name_server=server.name_server, config=PATIENT_PRODUCER, listener=decider
    )
    async with producer:
        for number in (0, 1, 2, 3, 10, 11, 12):
            message = Message(topic, str(number).encode(), properties={"seq": str(number)})
            ids[number] = (await producer.send_in_transaction(message, number)).transaction_id
        events = await story.handled(4, consumer, timeout_s=60)

        async def all_asked() -> bool:
            return set(decider.checked) >= {ids[number] for number in (10, 11, 12)}

        await eventually(all_asked, "a question after each", 60)
    await story.finish(group, topic, consumer)
    events = consumer.of("handled")
    assert sorted(event["seq"] for event in events) == [0, 2, 10, 12]
    assert {event["msgId"] for event in events} == {ids[number] for number in (0, 2, 10, 12)}
    assert set(decider.checked) == {ids[number] for number in (10, 11, 12)}
    row.messages, row.duplicates = 7, 0
    row.version = f"0.1.0, Java {version_of('java', 'rocketmq-client')}"
