"""Send the events of three aircraft: all sends in flight at once, each aircraft's events stored in order."""

import asyncio

from lockstep.client import Message, Producer

AIRCRAFT, STORY = ("N14228", "N24211", "N619AA"), ("boards", "departs", "climbs", "lands", "parks")


async def main() -> None:
    async with Producer("example-producer") as producer:  # the name server comes from NAMESRV_ADDR
        messages = [
            Message("example-flights", f"{tail} {event}".encode(), sharding_key=tail)
            for event in STORY
            for tail in AIRCRAFT
        ]
        for result in await asyncio.gather(*[producer.send(message) for message in messages]):
            print(result.status, result.queue_id, result.queue_offset, result.msg_id)


asyncio.run(main())
