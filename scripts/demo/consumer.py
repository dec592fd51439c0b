"""One consumer of the demo as a process: keeps a board with the last event of each aircraft.

It ends on SIGTERM: it commits its offsets and unlocks its queues. The demo kills one such process without warning.

RocketMQ's defaults are 60 s until the broker expires a lock, 30 s until the client stops using a lock that it could not
renew, and 20 s between renewals. The demo divides them by six: a person sees a lock expire without waiting a minute.
"""

import argparse
import asyncio
import json
import signal
from collections.abc import Callable, Sequence
from typing import Any

import uvloop

from lockstep.client import (
    ClientError,
    ConsumeFromWhere,
    ConsumeOrderlyContext,
    ConsumerConfig,
    MessageExt,
    PushConsumer,
    SimpleConsumer,
)
from lockstep.remoting.errors import RemotingError

__all__ = ["CONSUMER_CONFIG", "GROUP", "LOCK_LIFE_MS", "QUEUES", "TOPIC", "main"]

TOPIC = "flights"
GROUP = "flight-board"
QUEUES = 8
POP_COUNT = 32
POP_AGAIN_S = 0.5
LOCK_LIFE_MS = 10_000  # of the broker
CONSUMER_CONFIG = ConsumerConfig(
    consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    lock_max_live_time_ms=5_000,
    lock_interval_ms=3_300,
    unlock_delay_ms=3_300,
    rebalance_interval_ms=1_000,
    heartbeat_broker_interval_ms=5_000,
    persist_consumer_offset_interval_ms=1_000,
    pull_interval_ms=5,  # fewer, larger pulls: with 0 two cores are busy with a pull for every message
)


async def consume(name_server: str, trace: str, lock_mode: str) -> None:
    """Handle flights until SIGTERM or SIGINT."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    board: dict[str | None, Any] = {}

    def update_board(messages: Sequence[MessageExt]) -> None:
        for message in messages:
            board[message.sharding_key] = json.loads(message.body)

    if lock_mode == "fifo":
        await pop(SimpleConsumer(GROUP, name_server=name_server, in_order=True, trace=trace), update_board, stopped)
        return

    async def listener(messages: Sequence[MessageExt], context: ConsumeOrderlyContext) -> None:
        update_board(messages)

    fenced = lock_mode == "fenced"
    consumer = PushConsumer(
        GROUP, name_server=name_server, config=CONSUMER_CONFIG, trace=trace, listener=listener, fenced=fenced
    )
    consumer.subscribe(TOPIC)
    async with consumer:
        await stopped.wait()


async def pop(consumer: SimpleConsumer, handle: Callable[[Sequence[MessageExt]], None], stopped: asyncio.Event) -> None:
    """Handle what comes, and acknowledge it. No consumer owns a queue: the broker keeps the order."""

    async def receive() -> None:
        while not stopped.is_set():
            try:
                deliveries = await consumer.receive(POP_COUNT)
                for delivery in deliveries:
                    # The trace has each call, so that the judge sees two at once.
                    with consumer.handling(delivery):
                        handle([delivery.message])
                await asyncio.gather(*map(consumer.ack, deliveries))
            except (ClientError, RemotingError):
                # What is not acknowledged comes again.
                await asyncio.sleep(POP_AGAIN_S)

    consumer.subscribe(TOPIC)
    async with asyncio.TaskGroup() as group, consumer:
        group.create_task(receive())
        await stopped.wait()


def main() -> None:
    """Run until a signal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name-server", required=True)
    parser.add_argument("--trace", required=True, help="file for the JSON lines of what it did")
    parser.add_argument("--lock-mode", default="faithful", help="faithful, fenced or fifo")
    given = parser.parse_args()
    uvloop.run(consume(given.name_server, given.trace, given.lock_mode))


if __name__ == "__main__":
    main()
