"""Print messages of example-polled as they arrive, until Ctrl-C; start several and see them share the queues."""

import asyncio
from contextlib import suppress

from lockstep.client import ConsumeFromWhere, LitePullConsumer, LitePullConsumerConfig


async def main() -> None:
    config = LitePullConsumerConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer = LitePullConsumer("example-poll", config=config)
    consumer.subscribe("example-polled")
    async with consumer:
        async for message in consumer:  # the next poll means that this message is handled
            print(message.queue_id, message.queue_offset, message.body.decode(), flush=True)


with suppress(KeyboardInterrupt):  # handled messages are committed now
    asyncio.run(main())
