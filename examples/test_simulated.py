"""A listener, tested with faults of many seeds on virtual time. python -m pytest examples/test_simulated.py"""

import asyncio

from lockstep.client import ConsumeOrderlyContext, MessageExt, MessageQueue
from lockstep.simulation import StoryCluster, order_test


@order_test(seeds=20)
async def test_each_order_is_written_once(cluster: StoryCluster) -> None:
    fences: dict[MessageQueue, int] = {}  # these two are the database of all consumers, see docs/fencing.md
    rows: dict[str, MessageQueue] = {}

    async def listen(messages: list[MessageExt], context: ConsumeOrderlyContext) -> None:
        await asyncio.sleep(0.1)  # its work
        queue, epoch = context.message_queue, context.lock_epoch
        if epoch < fences.get(queue, 0):
            raise RuntimeError("another consumer owns the queue now")
        fences[queue] = epoch
        rows.update({message.body.decode(): queue for message in messages})

    await cluster.start(listen)
    await cluster.finish()
    assert sorted(rows) == sorted(cluster.sent)
