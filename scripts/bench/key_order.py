"""`ordering="key"` beside queue order: 8 queues, 1,000 keys, an `async def` listener of 5 ms; part of `make bench`.

Queue order is one call at a time for each queue: 8 queues with calls of 5 ms give at most 1,600 messages a second on
any machine. By key many calls wait at once, and the client's own work for a message is the limit. Both run in turns on
one broker with the same messages, and the order of every key is verified. Then one key always fails, and all others
must finish.
"""

import argparse
import asyncio
import gc
import itertools
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Final

import uvloop
from rich.console import Console

from lockstep.client import (
    ConsumeFromWhere,
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    ConsumerConfig,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    select_by_hash,
)
from lockstep.client.consumer.dispatch.table import OrderingName
from lockstep.testing.process import BrokerProcess

__all__ = ["FLOOR", "NAME", "measure_key_order", "show_key_order"]

NAME: Final = "key_order"
FLOOR: Final = 20.0  # times the rate of queue order
TOPIC, QUEUES, KEYS = "BenchByKey", 8, 1000
LISTENER_SECONDS: Final = 0.005
PULL_BATCH_SIZE: Final = 256  # messages in a pull and in a reply; RocketMQ's defaults are 32
GC_THRESHOLDS: Final = (20_000, 20, 20)  # docs/clients.md, many small messages
POISONED: Final = "key-7"
_BATCH: Final = 100
_groups = itertools.count()


class Handled:
    """A listener of 5 ms that checks each message's number against the counter of its key."""

    def __init__(self, wanted: int, poisoned: str | None = None) -> None:
        self.count = 0
        self.out_of_order = 0
        self.poisoned_attempts = 0
        self.first = self.last = 0.0
        self.done = asyncio.Event()
        self._wanted = wanted
        self._poisoned = poisoned.encode() if poisoned is not None else None
        self._due: dict[bytes, int] = {}

    async def __call__(
        self, messages: list[MessageExt], _context: ConsumeOrderlyContext
    ) -> ConsumeOrderlyStatus | None:
        key, _, number = messages[0].body.partition(b" ")
        if not self.first:
            self.first = perf_counter()
        await asyncio.sleep(LISTENER_SECONDS)
        if key == self._poisoned:
            self.poisoned_attempts += 1
            return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        if int(number) != self._due.get(key, 0):
            self.out_of_order += 1
        self._due[key] = int(number) + 1
        self.count += 1
        if self.count == self._wanted:
            self.last = perf_counter()
            self.done.set()
        return None


async def preload(name_server: str, messages: int) -> int:
    """Send equally many messages of every key, in batches, to the queue of the key's hash. Returns their number."""
    each = max(messages // KEYS, 1)
    async with Producer("BenchByKeyProducer", name_server=name_server) as producer:
        queues = await producer.queues(TOPIC)
        by_queue: dict[Any, list[Message]] = {queue: [] for queue in queues}
        for number in range(each):
            for key in range(KEYS):
                name = f"key-{key}"
                message = Message(TOPIC, f"{name} {number}".encode(), sharding_key=name)
                by_queue[select_by_hash(queues, message, name)].append(message)
        for queue, waiting in by_queue.items():
            for place in range(0, len(waiting), _BATCH):
                await producer.send_batch(waiting[place : place + _BATCH], queue=queue)
    return each * KEYS


async def consume(name_server: str, ordering: OrderingName, handled: Handled, seconds: float) -> float:
    """Messages a second, until `handled` is done or the time is over."""
    config = ConsumerConfig(
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, pull_batch_size=PULL_BATCH_SIZE
    )
    consumer = PushConsumer(
        f"BenchByKey{next(_groups)}", name_server=name_server, config=config, listener=handled, ordering=ordering
    )
    consumer.subscribe(TOPIC)
    async with consumer:
        try:
            async with asyncio.timeout(seconds):
                await handled.done.wait()
        except TimeoutError:
            handled.last = perf_counter()
            count = handled.count
            return count / (handled.last - handled.first)
    return handled.count / (handled.last - handled.first)


async def measure_key_order(
    rounds: int, seconds: float, messages: int, tick: Callable[[], None] = lambda: None
) -> dict[str, float]:
    """Medians over the rounds, each of queue order and order by key; then the failing key.

    Raises RuntimeError when a key was out of order or did not finish.
    """
    by_queue: list[float] = []
    by_key: list[float] = []
    served = f"maxTransferCountOnMessageInMemory={PULL_BATCH_SIZE}"
    with BrokerProcess("--log-level=warning", f"--topic={TOPIC}:{QUEUES}", "-D", served) as broker:
        sent = await preload(broker.name_server, messages)
        with calm_collector():
            for _ in range(rounds):
                in_turn = Handled(sent)
                by_queue.append(await consume(broker.name_server, "queue", in_turn, seconds))
                tick()
                at_once = Handled(sent)
                by_key.append(await consume(broker.name_server, "key", at_once, 300))
                tick()
                _check(at_once, sent)
            others = sent - sent // KEYS
            poisoned = Handled(others, POISONED)
            poisoned_rate = await consume(broker.name_server, "key", poisoned, 300)
            _check(poisoned, others)
            tick()
    ratios = [key / queue for key, queue in zip(by_key, by_queue, strict=True)]
    return {
        "by_queue": round(statistics.median(by_queue), 1),
        "by_key": round(statistics.median(by_key), 1),
        "ratio": round(statistics.median(ratios), 2),
        "messages": sent,
        "poisoned_by_key": round(poisoned_rate, 1),
        "poisoned_attempts": poisoned.poisoned_attempts,
    }


@contextmanager
def calm_collector() -> Iterator[None]:
    """The garbage collector's settings of docs/clients.md for many small messages; reset at the end."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _check(handled: Handled, wanted: int) -> None:
    if handled.out_of_order:
        raise RuntimeError(f"{handled.out_of_order} messages were handled out of their key's order")
    if handled.count != wanted:
        raise RuntimeError(f"{handled.count} of {wanted} messages were handled")


def show_key_order(figures: dict[str, float], console: Console) -> None:
    verdict = "ok" if figures["ratio"] >= FLOOR else "MISSED"
    console.print(
        f"order by key: {figures['by_key']:,.0f} messages/s, {figures['ratio']:.1f} times the "
        f"{figures['by_queue']:,.0f} of queue order (at least {FLOOR:.0f}: {verdict}); {QUEUES} queues, {KEYS:,} keys, "
        f"a listener of {LISTENER_SECONDS * 1000:.0f} ms, each key of {figures['messages']:,} messages in order"
    )
    console.print(
        f"with a key that always fails ({figures['poisoned_attempts']} attempts): all other keys to the end, "
        f"{figures['poisoned_by_key']:,.0f} messages/s"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    small = os.environ.get("SMALL") == "1"
    parser.add_argument("--rounds", type=int, default=1 if small else 3)
    parser.add_argument("--seconds", type=float, default=2.0 if small else 4.0, help="of queue order in each round")
    parser.add_argument("--messages", type=int, default=50_000 if small else 200_000)
    given = parser.parse_args()
    console = Console()
    figures = uvloop.run(measure_key_order(given.rounds, given.seconds, given.messages))
    show_key_order(figures, console)
    return 0 if figures["ratio"] >= FLOOR else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
