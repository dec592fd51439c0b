"""`lockstep bench handover`: how long a queue rests when a member joins, and when it leaves."""

import asyncio
from collections import Counter
from typing import Any, Final

from lockstep.cli.bench.figures import percentiles, print_figures
from lockstep.cli.bench.loads import bench_consumer, bench_producer
from lockstep.cli.bench.options import HandoverBenchOptions
from lockstep.cli.bench.place import Place, until
from lockstep.cli.output import progress
from lockstep.client.consumer.listener import ConsumeOrderlyContext
from lockstep.client.producer.producer import Producer
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.messages.to_send import Message
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.host.runtime import AsyncioRuntime

__all__ = ["Rests", "bench_handover"]

_STAYS: Final = "stays"
_FEED_EVERY_S: Final = 0.01


class Rests:
    """How long each queue rested between two owners, from the calls of all members, in ns."""

    def __init__(self) -> None:
        self.rests_ns: dict[str, list[int]] = {"join": [], "leave": []}
        self.handled: Counter[tuple[str, int, int]] = Counter()
        self._last: dict[tuple[str, int], tuple[str, int]] = {}

    def began(self, owner: str, message: MessageExt, now_ns: int) -> None:
        queue = message.broker_name, message.queue_id
        before, at_ns = self._last.get(queue, (owner, 0))
        if before != owner:
            self.rests_ns["leave" if owner == _STAYS else "join"].append(now_ns - at_ns)
        self.handled[*queue, message.queue_offset] += 1
        self._last[queue] = owner, now_ns

    def ended(self, owner: str, message: MessageExt, now_ns: int) -> None:
        self._last[message.broker_name, message.queue_id] = owner, now_ns

    def owners(self) -> Counter[str]:
        return Counter(owner for owner, _ in self._last.values())

    @property
    def repeated(self) -> int:
        """Messages that were handled more than once, each time counted."""
        return sum(count - 1 for count in self.handled.values())


async def bench_handover(options: HandoverBenchOptions) -> None:
    """A member stays; another one joins and leaves, again and again, while each queue gets messages all the time."""
    runtime, rests = AsyncioRuntime(), Rests()

    def listener(owner: str) -> Any:
        async def listen(messages: list[MessageExt], _context: ConsumeOrderlyContext) -> None:
            rests.began(owner, messages[0], runtime.monotonic_ns())
            await asyncio.sleep(options.work_ms / 1000)
            rests.ended(owner, messages[-1], runtime.monotonic_ns())

        return listen

    async with Place(options.name_server, options.queues, runtime) as place, bench_producer(place) as producer:
        queues = await producer.queues(place.name)
        fed = runtime.create_task(_feed(producer, place, queues), name="feed")
        moved = len(queues) // 2
        count = progress(runtime, lambda: sum(map(len, rests.rests_ns.values())), "handovers")
        try:
            async with count, bench_consumer(place, listener(_STAYS), options):
                await _until(place, fed, rests, _STAYS, len(queues), "one member has all queues")
                for number in range(options.rounds):
                    guest = f"guest-{number}"
                    async with bench_consumer(place, listener(guest), options):
                        await _until(place, fed, rests, guest, moved, "half of the queues moved to a new member")
                    await _until(place, fed, rests, _STAYS, len(queues), "they came back when it left")
        finally:
            fed.cancel()
    rows = [
        {"bench": "handover", "event": event, "handovers": len(times_ns), **percentiles(times_ns)}
        for event, times_ns in rests.rests_ns.items()
    ]
    messages = {"messages": len(rests.handled), "repeated": rests.repeated}
    print_figures([row | messages for row in rows], options.output)


async def _until(place: Place, fed: "asyncio.Task[None]", rests: Rests, owner: str, count: int, what: str) -> None:
    def is_so() -> bool:
        if fed.done():
            fed.result()  # why the messages ended
        return rests.owners()[owner] >= count

    await until(place.runtime, is_so, what)


async def _feed(producer: Producer, place: Place, queues: list[MessageQueue]) -> None:
    while True:
        await asyncio.gather(*[producer.send(Message(place.name, b"x", sharding_key="k"), queue=one) for one in queues])
        await asyncio.sleep(_FEED_EVERY_S)
