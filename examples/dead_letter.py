"""Three attempts, then a dead letter: a minute later, or at once with `lockstep-broker --dead-letter-at-once`.

Feed it: printf 'poison\ngood\n' | lockstep produce example-poison --text -k a
"""

import asyncio

from lockstep.client import ConsumeOrderlyContext, ConsumerConfig, MessageExt, PushConsumer


async def handle(messages: list[MessageExt], _context: ConsumeOrderlyContext) -> None:
    print(f"{messages[0].body.decode()}, attempt {messages[0].reconsume_times + 1}", flush=True)
    if messages[0].body == b"poison":
        raise ValueError("cannot handle this")  # suspends the queue; the message comes again


async def main() -> None:
    config = ConsumerConfig(max_reconsume_times=2, suspend_current_queue_time_ms=100)
    consumer = PushConsumer("example-dead-letter", config=config, listener=handle)
    consumer.subscribe("example-poison")
    async with consumer:
        await asyncio.sleep(60)


asyncio.run(main())
