"""Requests with answers: Java's and our clients ask each other, on our broker and on Apache's."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from lockstep.client import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    RequestTimeoutError,
    reply_message,
)
from tests.integration.harness.processes import PATIENT_PRODUCER
from tests.interop.harness.drivers import Drivers
from tests.interop.harness.installed import version_of
from tests.interop.harness.servers import Server
from tests.interop.harness.table import RowMaker
from tests.interop.stories.python_story import FAST_CONFIG

pytestmark = pytest.mark.timeout(540)
Fresh = Callable[[], str]
COUNT, TIMEOUT_MS = 5, 60_000
ANSWERS = {str(seq): f"answer to {seq}" for seq in range(COUNT)}


async def java_asks(server: Server, drivers: Drivers, topic: str) -> dict[str, str]:
    asker = drivers.java(
        "Requester", name_server=server.name_server, topic=topic, messages=COUNT, timeout_ms=TIMEOUT_MS
    )
    assert await asker.ended(60) == 0, asker.tail()
    return {str(event["seq"]): event["body"] for event in asker.of("answered")}


async def we_ask(server: Server, topic: str) -> dict[str, str]:
    async with Producer("askers", name_server=server.name_server, config=PATIENT_PRODUCER) as producer:
        asked = [producer.request(Message(topic, text.encode()), timeout_ms=TIMEOUT_MS) for text in ANSWERS]
        answers = await asyncio.gather(*asked)
    return {text: answer.body.decode() for text, answer in zip(ANSWERS, answers, strict=True)}


@asynccontextmanager
async def java_answers(server: Server, drivers: Drivers, topic: str, group: str) -> AsyncIterator[None]:
    driver = drivers.java("Replier", name_server=server.name_server, topic=topic, group=group)
    await driver.wait_for("ready")
    yield


@asynccontextmanager
async def we_answer(server: Server, topic: str, group: str) -> AsyncIterator[None]:
    async with Producer("answerers", name_server=server.name_server, config=PATIENT_PRODUCER) as producer:

        async def answer(messages: list[MessageExt], context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
            for message in messages:
                await producer.send(reply_message(message, b"answer to " + message.body))
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

        consumer = PushConsumer(
            group, name_server=server.name_server, config=FAST_CONFIG, listener=answer, ordering="none"
        )
        consumer.subscribe(topic)
        async with consumer:
            yield


@pytest.mark.parametrize("asker", ["Java", "Lockstep"])
@pytest.mark.parametrize("answerer", ["Java", "Lockstep"])
async def test_requests_are_answered(
    either: Server,
    drivers: Drivers,
    interop_row: RowMaker,
    fresh_topic: Fresh,
    fresh_group: Fresh,
    asker: str,
    answerer: str,
) -> None:
    """Each question gets the answer to it, whoever asks and whoever answers."""
    version = version_of("java", "rocketmq-client") if asker == "Java" else "0.1.0"
    direction = f"{'Java' if asker == 'Java' else 'Python'} -> {either.name}"
    row = interop_row(asker, version, direction, f"request and reply, answered by {answerer}")
    topic, group = await either.create_topic(fresh_topic()), fresh_group()
    answering = java_answers(either, drivers, topic, group) if answerer == "Java" else we_answer(either, topic, group)
    async with answering:
        found = await (java_asks(either, drivers, topic) if asker == "Java" else we_ask(either, topic))
    row.messages, row.duplicates = len(found), 0
    assert found == ANSWERS


async def test_a_request_that_nobody_answers(either: Server, interop_row: RowMaker, fresh_topic: Fresh) -> None:
    """The message is stored, and the asker is told that no answer came within its time."""
    row = interop_row("Lockstep", "0.1.0", f"Python -> {either.name}", "request without an answer")
    topic = await either.create_topic(fresh_topic(), 1)
    async with Producer("askers", name_server=either.name_server, config=PATIENT_PRODUCER) as producer:
        with pytest.raises(RequestTimeoutError):
            await producer.request(Message(topic, b"anybody?"), timeout_ms=5_000)
        [queue] = await producer.queues(topic)
    async with either.admin() as admin:
        assert await admin.max_offset(queue) == 1
    row.messages = 1
