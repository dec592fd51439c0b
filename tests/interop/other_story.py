"""What the stories with C++ and Node clients share: drivers run to their end, and what they handled."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop.harness.drivers import Driver, Event
from tests.interop.harness.servers import Server, lockstep_server
from tests.interop.harness.table import Row, RowMaker

__all__ = ["OtherStory", "first_attempts", "queue_order_kept", "quick_server"]


@dataclass
class OtherStory:
    """Drivers of one language on one broker."""

    language: str
    version: str
    driver: Callable[..., Driver]
    server: Server
    interop_row: RowMaker

    def row(self, scenario: str) -> Row:
        """The scenario's line in the table."""
        return self.interop_row(self.language, self.version, f"{self.language} -> {self.server.name}", scenario)

    def start(self, script: str, topic: str, group: str, **arguments: Any) -> Driver:
        """A driver on this broker."""
        return self.driver(script, name_server=self.server.name_server, topic=topic, group=group, **arguments)

    async def produce(self, script: str, topic: str, messages: int, **arguments: Any) -> list[Event]:
        """What a producer sent, once it has sent that many and ended well."""
        producer = self.start(script, topic, "interop-producers", messages=messages, **arguments)
        assert await producer.ended(30) == 0, producer.tail()
        sent = producer.of("sent")
        assert len(sent) == messages
        return sent

    async def consumer(self, script: str, topic: str, group: str, **arguments: Any) -> Driver:
        """A consumer that has started."""
        consumer = self.start(script, topic, group, **arguments)
        await consumer.wait_for("ready")
        return consumer

    async def handled(self, count: int, *consumers: Driver, timeout_s: float = 30) -> list[Event]:
        """What consumers handled, once it is that many attempts."""

        def enough() -> list[Event] | None:
            events = [event for consumer in consumers for event in consumer.of("handled")]
            return events if len(events) >= count else None

        return await consumers[0].until(enough, f"{count} attempts", timeout_s)


@contextmanager
def quick_server(folder: Path, *options: str) -> Iterator[Server]:
    """A broker of ours whose eighteen delay levels are one second each."""
    folder.mkdir()
    with lockstep_server(folder, "-D", f"messageDelayLevel={' '.join(['1s'] * 18)}", *options) as server:
        yield server


def first_attempts(events: Sequence[Event]) -> list[Event]:
    """The first handling of each message, in the order of their ends."""
    found: dict[int, Event] = {}
    for event in sorted(events, key=lambda event: int(event["t_ns"])):
        found.setdefault(event["seq"], event)
    return list(found.values())


def queue_order_kept(events: Sequence[Event]) -> bool:
    """Whether each queue was handled offset by offset, repeats aside, and by one listener at a time."""
    queues: dict[int, list[Event]] = {}
    for event in sorted(events, key=lambda event: int(event["begin_ns"])):
        queues.setdefault(event["queueId"], []).append(event)
    for handled in queues.values():
        top = -1
        for before, event in zip([None, *handled], handled, strict=False):
            if before is not None and event["begin_ns"] < before["t_ns"]:
                return False  # two at once
            if event["queueOffset"] > top + 1:
                return False  # something was passed over
            top = max(top, event["queueOffset"])
    return True
