"""Delivered at least once, stored once. Feed it: seq 100 | lockstep produce example-events --text -k a"""

import asyncio
import sqlite3
import sys

from lockstep.client import ConsumeOrderlyContext, MessageExt, PushConsumer


def handle(messages: list[MessageExt], context: ConsumeOrderlyContext) -> None:
    with sqlite3.connect(sys.argv[1]) as database:  # queue and offset are the key: a repeat changes nothing
        database.execute("CREATE TABLE IF NOT EXISTS event (queue, offset, body, PRIMARY KEY (queue, offset))")
        row = (str(context.message_queue), messages[0].queue_offset, messages[0].body)
        is_new = database.execute("INSERT OR IGNORE INTO event VALUES (?, ?, ?)", row).rowcount
    print(messages[0].body.decode(), "stored" if is_new else "known", flush=True)


async def main() -> None:
    consumer = PushConsumer("example-sqlite", listener=handle)
    consumer.subscribe("example-events")
    async with consumer:
        await asyncio.sleep(60)


asyncio.run(main())
