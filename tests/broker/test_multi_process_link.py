"""A broker's end of the pipe to the command of `--brokers N`."""

import asyncio
import os
import sys

import pytest

from lockstep.broker.multi_process.link import CommandLink
from lockstep.broker.multi_process.pipe import Said, decode_said, encode_said
from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.remoting.host.runtime import AsyncioRuntime
from tests.broker.helpers import Peer

SPREAD = encode_said(Said(spread=True))


async def test_an_answer_that_is_late_stands_for_its_own_topic() -> None:
    """A registration waits a second for the other brokers. The next topic then waits for its own answer, no longer."""
    link, broker = CommandLink(AsyncioRuntime(), False, lambda: None), Peer().broker
    link.data_received(encode_said(Said()))
    await link.join(broker)
    broker.catalog.on_created_by_send(TopicConfig("first"))
    await broker.catalog.before_registering()
    link.data_received(SPREAD)
    broker.catalog.on_created_by_send(TopicConfig("second"))
    registering = asyncio.ensure_future(broker.catalog.before_registering())
    await asyncio.sleep(0)
    assert not registering.done()
    link.data_received(SPREAD)
    for _ in range(5):
        await asyncio.sleep(0)
    assert registering.done()


async def test_a_topic_that_is_spread_before_the_broker_joins() -> None:
    """The command greets a broker that it started, and may spread a topic before that broker has read its store."""
    link, broker = CommandLink(AsyncioRuntime(), False, lambda: None), Peer().broker
    link.data_received(
        encode_said(Said(topics=(TopicConfig("known"),))) + encode_said(Said(topics=(TopicConfig("new"),)))
    )
    await link.join(broker)
    assert {"known", "new"} <= {config.topic_name for config in broker.catalog.topics.topics}


async def test_a_topic_that_was_deleted_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command must not give it back to a broker that starts again."""
    (command_reads, broker_writes), (broker_reads, command_writes) = os.pipe(), os.pipe()
    closed = asyncio.Event()
    with os.fdopen(command_reads, "rb") as said, os.fdopen(command_writes, "wb", 0) as to_broker:
        monkeypatch.setattr(sys, "stdin", os.fdopen(broker_reads, "rb"))
        monkeypatch.setattr(sys, "stdout", os.fdopen(broker_writes, "wb"))
        link, broker = CommandLink(AsyncioRuntime(), False, closed.set), Peer().broker
        await link.open()
        to_broker.write(encode_said(Said(topics=(TopicConfig("old"),))))
        await link.join(broker)
        broker.catalog.topics.put(TopicConfig("new"), 1)
        for topic in ("old", "new"):
            broker.catalog.topics.delete(topic, 2)
        lines = await asyncio.to_thread(lambda: [decode_said(said.readline()) for _ in range(4)])
        to_broker.close()
        await closed.wait()
    assert "old" in {config.topic_name for config in lines[0].topics}
    assert lines[1:] == [Said(topics=(TopicConfig("new"),)), Said(deleted=("old",)), Said(deleted=("new",))]
