"""Bodies that Java's clients 5.5 and 4.9.8 and ours compress, by LZ4, zstd and zlib (wire.md 4.5).

Each topic is read by all three clients.
"""

import asyncio
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lockstep.client import CompressionType, Message, MessageExt, Producer, ProducerConfig
from tests.interop.harness.drivers import Drivers, Event
from tests.interop.harness.servers import Server
from tests.interop.harness.table import Row, RowMaker
from tests.interop.stories.java_story import JavaStory, again, order_of_keys
from tests.interop.stories.python_story import PythonStory, handled_by_us
from tests.pipeline.conftest import java, spark  # noqa: F401

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(540)
Fresh = Callable[[], str]
COUNT, KEYS, BODY_BYTES = 48, 8, 20_000
KINDS = list(CompressionType)
Content = tuple[int, str, int, int]  # number, sharding key, bytes of the body, its checksum


@dataclass
class Compressed:
    """One of the three clients that compresses, on one broker; `part`: of a Java client, None for ours."""

    part: str | None
    server: Server
    drivers: Drivers
    interop_row: RowMaker

    def java(self, part: str, kind: CompressionType | None = None) -> JavaStory:
        properties = {} if kind is None else {"rocketmq.message.compressType": kind.name}
        return JavaStory(self.drivers, self.server, self.interop_row, properties, part)

    def row(self, folder: Path, kind: CompressionType) -> Row:
        """The scenario's line in the table."""
        story = PythonStory(self.server, folder, self.interop_row) if self.part is None else self.java(self.part)
        return story.row(f"ordered, bodies compressed by {kind.name}, read by Java 5, Java 4.9 and Lockstep")

    async def write(self, topic: str, kind: CompressionType) -> list[Content]:
        """What was sent."""
        if self.part is not None:
            driver = await self.java(self.part, kind).produce(topic, COUNT, keys=KEYS, body_bytes=BODY_BYTES)
            return contents(driver.of("sent"))
        sent = []
        config = ProducerConfig(compress_type=kind)
        async with Producer("interop-producers", name_server=self.server.name_server, config=config) as producer:
            for number in range(COUNT):
                body, key = b"%d" % number + b" in order" * (BODY_BYTES // 9), f"key-{number % KEYS}"
                message = Message(topic, body, properties={"seq": str(number)}, sharding_key=key)
                await producer.send(message)
                sent.append((number, key, len(body), zlib.crc32(body)))
        return sent


def contents(events: list[Event]) -> list[Content]:
    return [(event["seq"], event["key"], event["bodyBytes"], event["bodyCrc32"]) for event in events]


WRITERS = {
    "Java-5": ("java5", "lockstep"),
    "Java-4.9": ("java", "lockstep"),
    "Lockstep": (None, "lockstep"),
    "Lockstep-on-Apache": (None, "apache"),
}


@pytest.fixture(params=WRITERS)
def writer(request: pytest.FixtureRequest, drivers: Drivers, interop_row: RowMaker) -> Compressed:
    part, server = WRITERS[request.param]
    return Compressed(part, request.getfixturevalue(server), drivers, interop_row)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_a_compressed_body_is_read_by_all(
    writer: Compressed, kind: CompressionType, fresh_topic: Fresh, fresh_group: Fresh, tmp_path: Path
) -> None:
    """It is stored compressed, as its sysFlag says; each reader has the same bytes in each key's order."""
    row = writer.row(tmp_path, kind)
    topic = await writer.server.create_topic(fresh_topic())
    sent = await writer.write(topic, kind)
    readers = [writer.java(reader) for reader in ("java5", "java")]
    started = [reader.start("OrderlyConsumer", topic=topic, group=fresh_group()) for reader in readers]
    ours = await handled_by_us(writer.server, topic, fresh_group(), COUNT)
    assert sorted(content_of(message) for message in ours) == sorted(sent)
    assert {message.sys_flag for message in ours} == {kind.sys_flag}
    assert {message.body_error for message in ours} == {None}
    assert max(message.stored_bytes for message in ours) < BODY_BYTES / 10
    for reader, consumer in zip(readers, started, strict=True):
        events = await reader.handled(COUNT, consumer, timeout_s=60)
        assert sorted(set(contents(events))) == sorted(sent)
        assert order_of_keys(events)
        row.duplicates = (row.duplicates or 0) + again(events)
    row.messages, row.order_kept = COUNT, True


def content_of(message: MessageExt) -> Content:
    assert message.sharding_key is not None
    return int(message.properties["seq"]), message.sharding_key, len(message.body), zlib.crc32(message.body)


def test_compressed_bodies_as_a_frame(
    spark: "SparkSession",  # noqa: F811
    lockstep: Server, drivers: Drivers, fresh_topic: Fresh, interop_row: RowMaker, tmp_path: Path,
) -> None:  # fmt: skip
    """Spark's rows have the bodies as they were before a Java client 5.x compressed them, and its sharding keys."""
    writer = Compressed("java5", lockstep, drivers, interop_row)
    row = writer.java("java5").row("bodies compressed by LZ4, zstd and zlib, read by Spark")

    async def fill() -> tuple[str, list[Content]]:
        topic = await lockstep.create_topic(fresh_topic())
        return topic, [content for kind in KINDS for content in await writer.write(topic, kind)]

    topic, sent = asyncio.run(fill())
    rows = spark.read.format("lockstep").options(nameServer=lockstep.name_server, subscribe=topic).load().collect()
    found = [(r.shardingKey, len(r.value), zlib.crc32(bytes(r.value))) for r in rows]
    assert sorted(found) == sorted(content[1:] for content in sent)
    assert {r.bodyError for r in rows} == {None}
    row.messages = len(rows)
