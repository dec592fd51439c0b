"""Read every queue of a topic once, from where the last run ended, and store how far it got. Feed example-pulled."""

import asyncio

from lockstep.client import PullConsumer, PullStatus

TOPIC = "example-pulled"


async def main() -> None:
    async with PullConsumer("example-pull") as consumer:
        for queue in await consumer.fetch_subscribe_message_queues(TOPIC):
            offset = max(await consumer.fetch_consume_offset(queue), 0)
            while (result := await consumer.pull(queue, "*", offset, max_nums=32)).status is PullStatus.FOUND:
                for message in result.messages:
                    print(queue.queue_id, message.queue_offset, message.body.decode())
                offset = result.next_begin_offset
            consumer.update_consume_offset(queue, offset)
            await consumer.persist(queue)


asyncio.run(main())
