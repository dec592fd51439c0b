"""Keys of one queue side by side: each parcel's events in order, and a parcel that is lost holds up itself alone.

Feed it {"parcel": "A", "event": "sent"}: lockstep produce example-parcels --key-field parcel --body-field event
"""

import asyncio

from lockstep.client import ConsumeFromWhere, ConsumeOrderlyContext, ConsumerConfig, MessageExt, PushConsumer


async def handle(messages: list[MessageExt], _context: ConsumeOrderlyContext) -> None:
    if messages[0].body == b"lost" and messages[0].reconsume_times < 3:
        raise LookupError("not yet")  # parks parcel A for a while; B goes on
    print(messages[0].sharding_key, messages[0].body.decode(), flush=True)


async def main() -> None:
    config = ConsumerConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer = PushConsumer("example-by-key", config=config, ordering="key", listener=handle)
    consumer.subscribe("example-parcels")
    async with consumer:
        await asyncio.sleep(60)


asyncio.run(main())
