"""One consumer of the demo, in a process of its own: keeps a board with the last event of each aircraft.

It ends by SIGTERM, in order: offsets stored, queues unlocked. The demo kills one of its kind without warning.
"""

import argparse
import asyncio
import json
import signal
from collections.abc import Sequence
from typing import Any

import uvloop
from demo_settings import CONSUMER_CONFIG, GROUP, TOPIC

from lockstep.client import ConsumeOrderlyContext, MessageExt, PushConsumer

__all__ = ["main"]


async def consume(name_server: str, trace: str) -> None:
    """Handle flights until SIGTERM or SIGINT."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    board: dict[str | None, Any] = {}

    async def update_board(messages: Sequence[MessageExt], context: ConsumeOrderlyContext) -> None:
        for message in messages:
            board[message.sharding_key] = json.loads(message.body)

    consumer = PushConsumer(GROUP, name_server=name_server, config=CONSUMER_CONFIG, trace=trace, listener=update_board)
    consumer.subscribe(TOPIC)
    async with consumer:
        await stopped.wait()


def main() -> None:
    """Run until told to stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name-server", required=True)
    parser.add_argument("--trace", required=True, help="file for the JSON lines of what it did")
    given = parser.parse_args()
    uvloop.run(consume(given.name_server, given.trace))


if __name__ == "__main__":
    main()
