"""Ask, and wait for the answer. Make the topic first: lockstep topic create example-squares"""

import asyncio

from lockstep.client import ConsumeOrderlyContext, Message, MessageExt, Producer, PushConsumer, reply_message


async def main() -> None:
    async with Producer("example-callers") as producer:

        async def answer(messages: list[MessageExt], context: ConsumeOrderlyContext) -> None:
            for message in messages:
                await producer.send(reply_message(message, b"%d" % (int(message.body) ** 2)))

        consumer = PushConsumer("example-servers", listener=answer)
        consumer.subscribe("example-squares")
        async with consumer:
            for number in (3, 4, 5):
                question = Message("example-squares", b"%d" % number)
                print(number, (await producer.request(question, timeout_ms=10_000)).body.decode())


asyncio.run(main())
