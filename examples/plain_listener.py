"""A plain listener may block: it runs on a thread. Feed it: seq 8 | lockstep produce example-plain --text"""

import asyncio
import threading
import time

from lockstep.client import ConsumeOrderlyContext, MessageExt, PushConsumer


def handle(messages: list[MessageExt], context: ConsumeOrderlyContext) -> None:
    time.sleep(0.1)  # for example a slow database
    text = f"{context.message_queue.queue_id} {messages[0].body.decode()} {threading.current_thread().name}"
    print(text + "\n", end="", flush=True)  # one write, so that threads do not mix their lines


async def main() -> None:
    consumer = PushConsumer("example-plain-listener", listener=handle)
    consumer.subscribe("example-plain")
    async with consumer:
        await asyncio.sleep(60)


asyncio.run(main())
