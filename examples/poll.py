"""Print messages of example-polled as they come, until Ctrl-C; start several and see them share the queues."""

import asyncio
from contextlib import suppress

from lockstep.client import ConsumeFromWhere, LitePullConsumer, LitePullConsumerConfig


async def main() -> None:
    config = LitePullConsumerConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer = LitePullConsumer("example-poll", config=config)
    consumer.subscribe("example-polled")
    async with consumer:
        async for message in consumer:  # asking for the next one says that this one is handled
            print(message.queue_id, message.queue_offset, message.body.decode(), flush=True)


with suppress(KeyboardInterrupt):  # what was handled is committed by then
    asyncio.run(main())
