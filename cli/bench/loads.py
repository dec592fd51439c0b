"""`lockstep bench send` and `lockstep bench consume`."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from lockstep.cli.bench.figures import percentiles, print_figures
from lockstep.cli.bench.options import ConsumeBenchOptions, LockOptions, SendBenchOptions
from lockstep.cli.bench.place import Place, paced, until
from lockstep.cli.consume.command import with_lock_life
from lockstep.cli.output import StderrLog, progress
from lockstep.client.config import ConsumerConfig
from lockstep.client.consumer.listener import AnyListener, ConsumeOrderlyContext
from lockstep.client.consumer.push import PushConsumer
from lockstep.client.producer.producer import Producer
from lockstep.protocol.bodies.heartbeat import ConsumeFromWhere
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.messages.to_send import Message
from lockstep.remoting.host.runtime import AsyncioRuntime

__all__ = ["bench_consume", "bench_consumer", "bench_producer", "bench_send"]

_GROUP: Final = "lockstep-bench"
_BATCH_MAX, _BATCH_BYTES_MAX = 100, 1_000_000
_NUMBER_BYTES: Final = 8


async def bench_send(options: SendBenchOptions) -> None:
    """Each of `in_flight` senders has a key of its own and waits for its answer before it sends the next message."""
    runtime = AsyncioRuntime()
    body = bytes(options.size)
    times_ns: list[int] = []
    left = iter(range(options.messages))
    async with Place(options.name_server, options.queues, runtime) as place, bench_producer(place) as producer:
        await producer.queues(place.name)

        async def send(number: int) -> None:
            message = Message(place.name, body, sharding_key=f"key-{number}")
            await producer.send(message)  # connects; not measured
            for _ in left:
                asked_ns = runtime.monotonic_ns()
                await producer.send(message)
                times_ns.append(runtime.monotonic_ns() - asked_ns)

        began_ns = runtime.monotonic_ns()
        async with progress(runtime, lambda: len(times_ns), "sent"):
            await _all(place, [send(number) for number in range(options.in_flight)])
        took_s = (runtime.monotonic_ns() - began_ns) / 1e9
    row = {
        "bench": "send",
        "messages": len(times_ns),
        "seconds": round(took_s, 3),
        "messages_a_second": round(len(times_ns) / took_s, 1),
        "mb_a_second": round(len(times_ns) * options.size / took_s / 1e6, 3),
        **percentiles(times_ns),
    }
    print_figures([row], options.output)


async def _all(place: Place, works: list[Coroutine[Any, Any, None]]) -> None:
    """Run all works; the first error ends the others."""
    tasks = [place.runtime.create_task(work, name=f"bench {i}") for i, work in enumerate(works)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def bench_producer(place: Place) -> Producer:
    return Producer(_GROUP, name_server=place.name_server, runtime=place.runtime, log=StderrLog(verbose=False))


def bench_consumer(place: Place, listener: AnyListener, options: LockOptions) -> PushConsumer:
    """An ordered consumer of the place's topic, from its first message on."""
    config = ConsumerConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    if options.lock_live_ms is not None:
        config = with_lock_life(config, options.lock_live_ms)
    consumer = PushConsumer(
        place.name,
        name_server=place.name_server,
        config=config,
        listener=listener,
        fenced=True if options.fenced else None,
        log=StderrLog(verbose=False),
    )
    consumer.subscribe(place.name)
    return consumer


class _Handled:
    """The listener: when the first and the last stored message came, and how long the live ones took."""

    def __init__(self, runtime: AsyncioRuntime) -> None:
        self._runtime = runtime
        self.sent_ns: dict[int, int] = {}  # of live messages, by number
        self.times_ns: list[int] = []
        self.count = 0
        self.first_ns = 0
        self.last_ns = 0

    async def __call__(self, messages: list[MessageExt], _context: ConsumeOrderlyContext) -> None:
        now_ns = self._runtime.monotonic_ns()
        self.first_ns = self.first_ns or now_ns
        self.last_ns = now_ns
        self.count += len(messages)
        for message in messages:
            sent_ns = self.sent_ns.pop(int.from_bytes(message.body[:_NUMBER_BYTES], "big"), None)
            if sent_ns is not None:
                self.times_ns.append(now_ns - sent_ns)


async def bench_consume(options: ConsumeBenchOptions) -> None:
    """First what is stored, as fast as it goes; then live messages, from the send to the call of the listener."""
    runtime = AsyncioRuntime()
    handled = _Handled(runtime)
    async with Place(options.name_server, options.queues, runtime) as place, bench_producer(place) as producer:
        await _fill(producer, place, options)
        consumer = bench_consumer(place, handled, options)
        async with consumer, progress(runtime, lambda: handled.count, "consumed"):
            await until(runtime, lambda: handled.count >= options.messages, "all stored messages are handled")
            stored, took_s = handled.count, (handled.last_ns - handled.first_ns) / 1e9
            async for number in paced(runtime, range(1, options.live + 1), options.rate):
                handled.sent_ns[number] = runtime.monotonic_ns()
                body = number.to_bytes(_NUMBER_BYTES, "big") + bytes(max(options.size - _NUMBER_BYTES, 0))
                await producer.send(Message(place.name, body, sharding_key=f"key-{number % options.queues}"))
            await until(runtime, lambda: not handled.sent_ns, "all live messages are handled")
    row = {
        "bench": "consume",
        "messages": stored,
        "seconds": round(took_s, 3),
        "messages_a_second": round(stored / took_s, 1) if took_s else 0.0,
        "live": len(handled.times_ns),
        **percentiles(handled.times_ns),
    }
    print_figures([row], options.output)


async def _fill(producer: Producer, place: Place, options: ConsumeBenchOptions) -> None:
    """Store messages in batches, spread over all queues."""
    queues = await producer.queues(place.name)
    size = max(options.size, _NUMBER_BYTES)
    most = max(min(_BATCH_MAX, _BATCH_BYTES_MAX // size), 1)
    shares = [options.messages // len(queues) + (i < options.messages % len(queues)) for i in range(len(queues))]

    async def fill(number: int) -> None:
        left = shares[number]
        while left:
            count = min(most, left)
            batch = [Message(place.name, bytes(size), sharding_key="k") for _ in range(count)]
            if most > 1:
                await producer.send_batch(batch, queue=queues[number])
            else:  # a batch is larger than its only message, which may have the greatest size
                await producer.send(batch[0], queue=queues[number])
            left -= count

    await _all(place, [fill(number) for number in range(len(queues))])
