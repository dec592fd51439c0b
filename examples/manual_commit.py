"""Three messages are one unit of work. Feed it: seq 9 | lockstep produce example-units --text -k account-7"""

import asyncio

from lockstep.client import ConsumeOrderlyContext, ConsumeOrderlyStatus, MessageExt, PushConsumer

handled: list[int] = []


async def handle(messages: list[MessageExt], context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus:
    context.auto_commit = False
    handled.append(number := int(messages[0].body))
    unit_end = ConsumeOrderlyStatus.ROLLBACK if handled == [1, 2, 3, 4, 5, 6] else ConsumeOrderlyStatus.COMMIT
    print(number, unit_end.value if number % 3 == 0 else "", flush=True)
    return unit_end if number % 3 == 0 else ConsumeOrderlyStatus.SUCCESS


async def main() -> None:
    consumer = PushConsumer("example-manual-commit", listener=handle)
    consumer.subscribe("example-units")
    async with consumer:
        await asyncio.sleep(60)


asyncio.run(main())
