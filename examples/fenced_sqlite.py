"""Effects that stay right although a process is stopped for a minute and then continues (docs/fencing.md).

    lockstep-broker --lock-mode fenced
    NAMESRV_ADDR=127.0.0.1:9876 python examples/fenced_sqlite.py orders.db   # in two terminals
    seq -f '{"order": %g}' 500 | lockstep produce example-orders --key-field order

Stop one process for 70 s (kill -STOP, then kill -CONT): what it still wants to write is refused.
"""

import asyncio
import sqlite3
import sys
from contextlib import suppress

from lockstep.client import ConsumeOrderlyContext, LockLostError, MessageExt, MessageQueue, PushConsumer

GROUP = "example-fenced"
WORK_S = 0.05  # of the call to another service that a real listener makes
TABLES = """
CREATE TABLE IF NOT EXISTS fence (queue TEXT PRIMARY KEY, epoch INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS effect (queue TEXT, queue_offset INTEGER, epoch INTEGER, body TEXT,
                                   PRIMARY KEY (queue, queue_offset));
"""
RAISE_FENCE = """INSERT INTO fence VALUES (?, ?)
                 ON CONFLICT (queue) DO UPDATE SET epoch = excluded.epoch WHERE excluded.epoch > epoch"""


class Orders:
    """Writes one row for each message, under the epoch of the lock."""

    def __init__(self, path: str) -> None:
        self.database = sqlite3.connect(path, timeout=30, isolation_level=None)  # transactions begin with BEGIN
        self.database.executescript(TABLES)

    async def acquired(self, queue: MessageQueue, epoch: int) -> None:
        """Raise the fence before the first call of a period: from now on no older owner can write."""
        self.database.execute(RAISE_FENCE, (str(queue), epoch))
        print(f"{queue} acquired", flush=True)

    async def handle(self, messages: list[MessageExt], context: ConsumeOrderlyContext) -> None:
        """Check the fence and write in one transaction. The primary key makes a repeat harmless."""
        await asyncio.sleep(WORK_S)
        queue, epoch = str(context.message_queue), context.lock_epoch
        self.database.execute("BEGIN IMMEDIATE")
        try:
            [[fence]] = self.database.execute("SELECT epoch FROM fence WHERE queue = ?", (queue,))
            if fence != epoch:
                raise LockLostError(f"{queue} is at epoch {fence}; the late effect of epoch {epoch} is refused")
            for message in messages:
                row = (queue, message.queue_offset, epoch, message.body.decode())
                self.database.execute("INSERT OR IGNORE INTO effect VALUES (?, ?, ?, ?)", row)
            self.database.execute("COMMIT")
        except BaseException:
            self.database.execute("ROLLBACK")
            raise


def lost(queue: MessageQueue, epoch: int, why: str) -> None:
    print(f"{queue} is lost: {why}", flush=True)


async def main() -> None:
    orders = Orders(sys.argv[1])
    consumer = PushConsumer(GROUP, listener=orders.handle, fenced=True, on_acquired=orders.acquired, on_lost=lost)
    consumer.subscribe("example-orders")
    async with consumer:
        await asyncio.Event().wait()  # another group needs another table


with suppress(KeyboardInterrupt):  # offsets are committed and queues unlocked now
    asyncio.run(main())
