"""Who holds which queue, seen by the admin client: three looks, a second apart."""

import asyncio

from lockstep.client import AdminClient


async def main() -> None:
    async with AdminClient() as admin:
        for _ in range(3):
            for lock in await admin.list_locks():
                left = f"{lock.remaining_ms / 1000:.0f} s left" if lock.remaining_ms >= 0 else "expired"
                print(lock.consumer_group, lock.queue, lock.client_id, left, flush=True)
            await asyncio.sleep(1)


asyncio.run(main())
