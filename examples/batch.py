"""A hundred messages in one request, and out again in calls of up to 32."""

import asyncio

from lockstep.client import ConsumeOrderlyContext, ConsumerConfig, Message, MessageExt, Producer, PushConsumer

done = asyncio.Event()


async def handle(messages: list[MessageExt], _context: ConsumeOrderlyContext) -> None:
    print(len(messages), "messages,", messages[0].body.decode(), "to", messages[-1].body.decode())
    if messages[-1].body == b"99":
        done.set()


async def main() -> None:
    async with Producer("example-producer") as producer:
        await producer.send_batch([Message("example-batch", b"%d" % n) for n in range(100)], sharding_key="a")
    consumer = PushConsumer("example-batch", config=ConsumerConfig(consume_message_batch_max_size=32), listener=handle)
    consumer.subscribe("example-batch")
    async with consumer:
        await done.wait()


asyncio.run(main())
