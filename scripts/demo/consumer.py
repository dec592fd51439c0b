"""One consumer of the demo as a process: keeps a board with the last event of each aircraft.

It ends on SIGTERM: it commits its offsets and unlocks its queues. The demo kills one such process without warning.

RocketMQ's defaults are 60 s until the broker expires a lock, 30 s until the client stops using a lock that it could not
renew, and 20 s between renewals. The demo divides them by six: a person sees a lock expire without waiting a minute.
"""

import argparse
import asyncio
import json
import signal
from collections.abc import Sequence
from typing import Any

import uvloop

from lockstep.client import ConsumeFromWhere, ConsumeOrderlyContext, ConsumerConfig, MessageExt, PushConsumer

__all__ = ["CONSUMER_CONFIG", "GROUP", "LOCK_LIFE_MS", "QUEUES", "TOPIC", "main"]

TOPIC = "flights"
GROUP = "flight-board"
QUEUES = 8
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


async def consume(name_server: str, trace: str, *, fenced: bool) -> None:
    """Handle flights until SIGTERM or SIGINT."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    board: dict[str | None, Any] = {}

    async def update_board(messages: Sequence[MessageExt], context: ConsumeOrderlyContext) -> None:
        for message in messages:
            board[message.sharding_key] = json.loads(message.body)

    consumer = PushConsumer(
        GROUP, name_server=name_server, config=CONSUMER_CONFIG, trace=trace, listener=update_board, fenced=fenced
    )
    consumer.subscribe(TOPIC)
    async with consumer:
        await stopped.wait()


def main() -> None:
    """Run until a signal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name-server", required=True)
    parser.add_argument("--trace", required=True, help="file for the JSON lines of what it did")
    parser.add_argument("--fenced", action="store_true", help="own queues under fenced locks")
    given = parser.parse_args()
    uvloop.run(consume(given.name_server, given.trace, fenced=given.fenced))


if __name__ == "__main__":
    main()
