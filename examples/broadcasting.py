"""Every member gets every message, and goes on where it ended. Name it: `broadcasting.py left`. Feed example-prices."""

import asyncio
import sys
from contextlib import suppress

from lockstep.client import ConsumeFromWhere, ConsumerConfig, MessageExt, MessageModel, PushConsumer


def handle(messages: list[MessageExt], _context: object) -> None:
    print(messages[0].body.decode(), flush=True)


async def main(name: str) -> None:
    # Its offsets are in ~/.rocketmq_offsets/<address>@<name>; a new name begins at the first message.
    config = ConsumerConfig(instance_name=name, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer = PushConsumer("example-members", config=config, message_model=MessageModel.BROADCASTING, listener=handle)
    consumer.subscribe("example-prices")
    async with consumer:
        await asyncio.Event().wait()


with suppress(KeyboardInterrupt):
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "left"))
