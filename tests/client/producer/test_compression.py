"""Large bodies are sent compressed, as by Java 4.9.8 (wire.md 4.5), and never out of order."""

import asyncio
import random
import zlib
from collections.abc import Callable

import lz4.frame
import pytest
import zstandard

from lockstep.client import Message, ProducerConfig
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.messages.batch import decode_batch
from lockstep.protocol.messages.compression import CompressionType
from lockstep.remoting.settings import SettingError, with_properties
from tests.client.producer.send_stage import SEND, STORED, header_of, outcome_of, producer_for, store
from tests.client.stage import TOPIC, Stage, on_stage, queue_at

TEXT = b"the same words over and over, "
ZLIB_4_9_8 = 0x301


def text(size: int) -> bytes:
    return (TEXT * (size // len(TEXT) + 1))[:size]


def both(command: RemotingCommand) -> tuple[int, bytes]:
    return header_of(command).sys_flag, command.body


@pytest.mark.parametrize("size", [4096, 16 * 1024, 16 * 1024 + 1, 4 * 1024 * 1024])
@on_stage
async def test_from_4096_bytes_on(stage: Stage, size: int) -> None:
    """zlib's own format, level 5, and the flag that names it; whether at once or on a thread."""
    broker = await stage.broker(queues=1)
    store(broker)
    async with producer_for(stage) as producer:
        for key in (None, "k"):
            await producer.send(Message(TOPIC, text(size)), sharding_key=key)
        await producer.send_one_way(Message(TOPIC, text(size)))
        await producer.send_async(Message(TOPIC, text(size)))
        await stage.world.sleep_ms(100)
    sent = [both(command) for command in broker.requests(SEND)]
    assert sent == [(ZLIB_4_9_8, zlib.compress(text(size), 5))] * 4
    assert zlib.decompress(sent[0][1]) == text(size)


@on_stage
async def test_what_is_not_compressed(stage: Stage) -> None:
    """Not compressed: 4095 bytes; a body that would not get smaller; batches; everything, when the setting says
    never."""
    broker = await stage.broker(queues=1)
    store(broker)
    noise = random.Random(1).randbytes(20_000)
    async with producer_for(stage) as producer:
        await producer.send(Message(TOPIC, text(4095)))
        await producer.send(Message(TOPIC, noise))
        await producer.send_batch([Message(TOPIC, text(5000)), Message(TOPIC, text(30_000))])
    assert [both(command) for command in broker.requests(SEND)] == [(0, text(4095)), (0, noise)]
    (batch,) = broker.requests(RequestCode.SEND_BATCH_MESSAGE)
    assert header_of(batch).sys_flag == 0
    assert [record.body for record in decode_batch(batch.body)] == [text(5000), text(30_000)]


@pytest.mark.parametrize(("over", "size", "flag"), [(0, 100_000, 0), (100, 100, ZLIB_4_9_8), (100, 99, 0)])
@on_stage
async def test_the_setting(stage: Stage, over: int, size: int, flag: int) -> None:
    broker = await stage.broker(queues=1)
    store(broker)
    async with producer_for(stage, ProducerConfig(compress_msg_body_over_howmuch=over)) as producer:
        await producer.send(Message(TOPIC, text(size)))
    assert [header_of(command).sys_flag for command in broker.requests(SEND)] == [flag]


@pytest.mark.parametrize("size", [5000, 100_000])
@pytest.mark.parametrize(
    ("given", "flag", "readers"),
    [
        ({"rocketmq.message.compressType": "LZ4"}, 0x101, lz4.frame.decompress),
        (
            {"rocketmq.message.compressType": "ZSTD", "rocketmq.message.compressLevel": "19"},
            0x201,
            zstandard.decompress,
        ),
        ({"rocketmq.message.compressType": "ZLIB", "rocketmq.message.compressLevel": "9"}, 0x301, zlib.decompress),
    ],
    ids=["LZ4", "ZSTD", "ZLIB"],
)
@on_stage
async def test_the_type_and_the_level(
    stage: Stage, given: dict[str, str], flag: int, readers: Callable[[bytes], bytes], size: int
) -> None:
    """Under Java's names; whether at once or on a thread. The header's flag says how."""
    broker = await stage.broker(queues=1)
    store(broker)
    async with producer_for(stage, with_properties(ProducerConfig(), given)) as producer:
        await producer.send(Message(TOPIC, text(size)))
    (sent,) = [both(command) for command in broker.requests(SEND)]
    assert sent[0] == flag
    assert readers(sent[1]) == text(size)


@pytest.mark.parametrize(("kind", "level"), [("ZSTD", 0), ("ZSTD", 23), ("ZLIB", 10), ("ZLIB", -1)])
def test_a_level_that_the_type_does_not_have(kind: str, level: int) -> None:
    with pytest.raises(SettingError, match=f"compress_level must be from . to .+ for {kind}, not {level}"):
        ProducerConfig(compress_type=CompressionType[kind], compress_level=level)


@pytest.mark.parametrize("agrees", [True, False])
@on_stage
async def test_a_large_body_is_not_overtaken(stage: Stage, agrees: bool) -> None:
    """Sends of its key that were called later wait for it, whatever they weigh."""
    broker = await stage.broker(agrees=agrees)
    stage.route_to({"broker-a": 1})
    stored = store(broker)
    sizes = [10, 500_000, 10, 5000, 200_000, 20]
    async with producer_for(stage) as producer:
        await producer.send(Message(TOPIC, b"first"), queue=queue_at(0))
        sends = [producer.send(Message(TOPIC, text(size)), sharding_key="k") for size in sizes]
        results = await asyncio.gather(*sends)
    assert [result.queue_offset for result in results] == [1, 2, 3, 4, 5, 6]
    bodies = [zlib.decompress(body) if body.startswith(b"\x78") else body for body in stored[1:]]
    assert [len(body) for body in bodies] == sizes


@on_stage
async def test_a_repeat_is_compressed_too(stage: Stage) -> None:
    """The second attempt carries the very bytes of the first."""
    broker = await stage.broker(queues=1)
    broker.answers(SEND, 1, STORED)
    async with producer_for(stage) as producer:
        await producer.send(Message(TOPIC, text(100_000)))
    first, second = broker.requests(SEND)
    assert both(first) == both(second) == (ZLIB_4_9_8, zlib.compress(text(100_000), 5))


@pytest.mark.parametrize("key", ["k", None])
@on_stage
async def test_large_bodies_on_their_way_when_the_producer_leaves(stage: Stage, key: str | None) -> None:
    """Every send gets its result, also one that would be repeated."""
    broker = await stage.broker(agrees=False, queues=1)
    broker.answers(SEND, STORED, None)
    producer = producer_for(stage, ProducerConfig(retry_keyed=True))
    await producer.start()
    await producer.send(Message(TOPIC, b"first"), queue=queue_at(0))
    sends = [producer.send_async(Message(TOPIC, text(100_000)), sharding_key=key) for _ in range(3)]
    await stage.world.sleep_ms(10)
    await producer.shutdown()
    done, left = await asyncio.wait(sends, timeout=60)
    assert not left
    assert None not in [await outcome_of(send) for send in done]
