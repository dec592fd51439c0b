"""Without order: jobs run at once, twenty at a time, and one that fails comes again a second later, out of its turn.

Feed it: seq 20 | lockstep produce example-jobs --text
"""

import asyncio

from lockstep.client import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, MessageExt, PushConsumer


async def work(messages: list[MessageExt], context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
    print(f"job {messages[0].body.decode()}, attempt {messages[0].reconsume_times + 1}", flush=True)
    context.delay_level_when_next_consume = 1  # 1 s, if it fails; left out: 10 s, then 30 s, 1 min ... 2 h
    fails = messages[0].body == b"13" and not messages[0].reconsume_times
    return ConsumeConcurrentlyStatus.RECONSUME_LATER if fails else ConsumeConcurrentlyStatus.CONSUME_SUCCESS


async def main() -> None:
    consumer = PushConsumer("example-workers", ordering="none", listener=work)
    consumer.subscribe("example-jobs")
    async with consumer:
        await asyncio.sleep(60)


asyncio.run(main())
