"""Print each aircraft's events in order until Ctrl-C; start several and see them share the queues."""

import asyncio
from contextlib import suppress

from lockstep.client import ConsumeFromWhere, ConsumeOrderlyContext, ConsumerConfig, MessageExt, PushConsumer


async def handle(messages: list[MessageExt], context: ConsumeOrderlyContext) -> None:
    for message in messages:
        print(context.message_queue.queue_id, message.queue_offset, message.body.decode(), flush=True)


async def main() -> None:
    config = ConsumerConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer = PushConsumer("example-consumer", config=config, listener=handle)
    consumer.subscribe("example-flights")
    async with consumer:
        await asyncio.Event().wait()


with suppress(KeyboardInterrupt):  # offsets are committed and queues unlocked now
    asyncio.run(main())
