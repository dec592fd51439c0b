"""The measured cases: each makes one operation of the public client, or prepares a drain."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from functools import partial
from time import perf_counter_ns
from typing import Any, NamedTuple, Protocol

from lockstep.client import ConsumeFromWhere, ConsumerConfig, Message, Producer, ProducerConfig, PushConsumer
from lockstep.client.instance.client import MQClientInstance
from lockstep.protocol.bodies.locks import LockBatchBody, LockOkBody
from lockstep.protocol.codes import PullSysFlag, RequestCode, ResponseCode, SerializeType
from lockstep.protocol.headers.messaging import PullMessageRequestHeader, PullMessageResponseHeader
from lockstep.protocol.messages.message import decode_messages
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.host.runtime import AsyncioRuntime, Runtime
from lockstep.remoting.logs import StdlibLog
from lockstep.remoting.settings import parse_addresses

__all__ = ["CALLS", "NAMES", "Case", "Sample", "drain", "latencies", "ordered", "preload"]

BODY = bytes(128)
SEND_TOPIC, PULL_TOPIC, DRAIN_TOPIC, ORDERED_TOPIC = "BenchSend", "BenchPull", "BenchDrain", "BenchOrdered"
TOPICS = tuple(f"--topic={topic}:4" for topic in (SEND_TOPIC, PULL_TOPIC, DRAIN_TOPIC, ORDERED_TOPIC))
PULL_COUNT = 32
_groups = itertools.count()


class Sample(NamedTuple):
    """`rate` in operations a second; sorted latencies in nanoseconds."""

    rate: float
    latencies_ns: list[int]


Operation = Callable[[], Awaitable[Any]]


async def latencies(operation: Operation, seconds: float, in_flight: int, per_call: int = 1) -> Sample:
    """Run `operation` for `seconds` with `in_flight` at once; each call is `per_call` units of work."""
    times: list[int] = []
    end_ns = perf_counter_ns() + int(seconds * 1e9)

    async def work() -> None:
        now_ns = perf_counter_ns()
        while now_ns < end_ns:
            await operation()
            done_ns = perf_counter_ns()
            times.append(done_ns - now_ns)
            now_ns = done_ns

    start_ns = perf_counter_ns()
    await asyncio.gather(*[work() for _ in range(in_flight)])
    elapsed_ns = perf_counter_ns() - start_ns
    times.sort()
    return Sample(len(times) * per_call / elapsed_ns * 1e9, times)


def _producer(
    name_server: str, encoding: SerializeType, runtime: Runtime | None = None, *, auto_batch: bool = False
) -> Producer:
    config = ProducerConfig(serialize_type=encoding, auto_batch=auto_batch)
    return Producer("BenchProducer", name_server=name_server, config=config, runtime=runtime)


async def sends(
    name_server: str, encoding: SerializeType, runtime: Runtime | None = None, *, auto_batch: bool = False
) -> tuple[Producer, Operation]:
    """Keyed sends, which keep their order, over four queues and one connection."""
    producer = _producer(name_server, encoding, runtime, auto_batch=auto_batch)
    await producer.start()
    keys = itertools.cycle([f"key-{i}" for i in range(64)])
    await producer.send(Message(SEND_TOPIC, BODY), sharding_key="warm-up")

    async def send() -> None:
        await producer.send(Message(SEND_TOPIC, BODY), sharding_key=next(keys))

    return producer, send


class _Instance:
    """A bare client instance, for single calls that no public class makes."""

    def __init__(self, name_server: str, encoding: SerializeType, runtime: Runtime | None) -> None:
        config = ConsumerConfig(serialize_type=encoding)
        self.instance = MQClientInstance(
            runtime or AsyncioRuntime(), parse_addresses(name_server), config, StdlibLog("lockstep.bench")
        )

    async def shutdown(self) -> None:
        self.instance.dialer.close()


async def pulls(
    name_server: str, encoding: SerializeType, runtime: Runtime | None = None
) -> tuple[_Instance, Operation]:
    """PULL_MESSAGE of 32 messages, decoded, around a preloaded queue."""
    client = _Instance(name_server, encoding, runtime)
    route = await client.instance.routes.fetch(PULL_TOPIC)
    assert route is not None
    address = client.instance.address_of(route.broker_datas[0].broker_name)
    position = 0

    async def pull() -> None:
        nonlocal position
        header = PullMessageRequestHeader(
            "BenchPuller", PULL_TOPIC, 0, position, PULL_COUNT, int(PullSysFlag.SUBSCRIPTION), 0, 0, 0, "*", "TAG"
        )
        reply = await client.instance.call_address(address, RequestCode.PULL_MESSAGE, header)
        if reply.code != ResponseCode.SUCCESS:
            raise RuntimeError(f"pull at {position}: {reply}")
        bounds = reply.decode_header(PullMessageResponseHeader)
        messages = decode_messages(reply.body)
        if len(messages) != PULL_COUNT:
            raise RuntimeError(f"pull at {position} brought {len(messages)} messages")
        position = bounds.next_begin_offset if bounds.next_begin_offset + PULL_COUNT <= bounds.max_offset else 0

    await pull()
    return client, pull


async def locks(
    name_server: str, encoding: SerializeType, runtime: Runtime | None = None
) -> tuple[_Instance, Operation]:
    """LOCK_BATCH_MQ of 8 queues, renewed by their owner."""
    client = _Instance(name_server, encoding, runtime)
    route = await client.instance.routes.fetch(SEND_TOPIC)
    assert route is not None
    broker_name = route.broker_datas[0].broker_name
    queues = tuple(MessageQueue(SEND_TOPIC, broker_name, queue_id) for queue_id in range(8))
    body = LockBatchBody(f"BenchLocker{next(_groups)}", client.instance.client_id, queues)

    async def lock() -> None:
        granted = await client.instance.call_for(LockOkBody, broker_name, RequestCode.LOCK_BATCH_MQ, body=body)
        if len(granted.lock_ok_mq_set) != len(queues):
            raise RuntimeError(f"only {granted} were granted")

    await lock()
    return client, lock


class Client(Protocol):
    async def shutdown(self) -> None: ...


class Case(NamedTuple):
    """`open(name_server, encoding, runtime)` gives a client and its operation of `per_call` units of work."""

    open: Callable[[str, SerializeType, Runtime | None], Awaitable[tuple[Client, Operation]]]
    in_flight: int
    per_call: int


CALLS = {
    "send_1": Case(sends, 1, 1),
    "send_64": Case(sends, 64, 1),
    "send_64_batched": Case(partial(sends, auto_batch=True), 64, 1),  # differs from send_64 at RocketMQ's brokers alone
    "pull_32": Case(pulls, 1, PULL_COUNT),
    "lock_8": Case(locks, 1, 1),
}
NAMES = ("send_1", "send_64", "pull_32", "lock_8", "ordered", "drain_1", "drain_32")


async def preload(name_server: str, topic: str, messages: int, queue_ids: int) -> None:
    """Fill `queue_ids` queues of a topic with batches."""
    async with _producer(name_server, SerializeType.MSGPACK) as producer:
        queues = (await producer.queues(topic))[:queue_ids]
        batch = [Message(topic, BODY, sharding_key="k") for _ in range(100)]
        for _ in range(messages // len(batch) // len(queues)):
            await asyncio.gather(*[producer.send_batch(batch, queue=queue) for queue in queues])


async def drain(name_server: str, encoding: SerializeType, batch_size: int, messages: int) -> Sample:
    """One ordered consumer handles a preloaded topic; a latency is the time for a message over 32 calls."""
    handled = 0
    marks: list[int] = []
    done = asyncio.Event()

    async def listener(batch: list[Any], _context: Any) -> None:
        nonlocal handled
        if handled % PULL_COUNT == 0:
            marks.append(perf_counter_ns())
        handled += len(batch)
        if handled >= messages:
            marks.append(perf_counter_ns())
            done.set()

    config = ConsumerConfig(
        serialize_type=encoding,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        consume_message_batch_max_size=batch_size,
    )
    consumer = PushConsumer(f"BenchDrain{next(_groups)}", name_server=name_server, config=config, listener=listener)
    consumer.subscribe(DRAIN_TOPIC)
    async with consumer:
        await done.wait()
    gaps = sorted((later - earlier) // PULL_COUNT for earlier, later in itertools.pairwise(marks))
    return Sample(messages / (marks[-1] - marks[0]) * 1e9, gaps)


async def ordered(name_server: str, encoding: SerializeType, seconds: float, in_flight: int) -> Sample:
    """From the call of send to the listener: keyed messages, one producer, one ordered consumer."""
    sent_ns: dict[str, int] = {}
    times: list[int] = []
    caught_up = asyncio.Event()

    async def listener(batch: list[Any], _context: Any) -> None:
        now_ns = perf_counter_ns()
        times.extend(now_ns - sent_ns.pop(message.keys) for message in batch)
        if not sent_ns:
            caught_up.set()

    config = ConsumerConfig(serialize_type=encoding, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer = PushConsumer(f"BenchOrdered{next(_groups)}", name_server=name_server, config=config, listener=listener)
    topic = f"{ORDERED_TOPIC}{next(_groups)}"
    consumer.subscribe(topic)
    numbers = itertools.count()
    async with _producer(name_server, encoding) as producer:

        async def send() -> None:
            number = str(next(numbers))
            sent_ns[number] = perf_counter_ns()
            await producer.send(Message(topic, BODY, keys=number), sharding_key=f"key-{int(number) % 64}")

        await send()
        async with consumer:
            await caught_up.wait()
            times.clear()
            start_ns = perf_counter_ns()
            await latencies(send, seconds, in_flight)
            caught_up.clear()
            if sent_ns:
                await caught_up.wait()
            elapsed_ns = perf_counter_ns() - start_ns
    times.sort()
    return Sample(len(times) / elapsed_ns * 1e9, times)
