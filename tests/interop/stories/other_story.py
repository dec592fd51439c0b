"""What the stories with C++, Go and Node clients share: drivers run to their end, and what they handled."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop.harness.drivers import Driver, Drivers, Event
from tests.interop.harness.installed import ROOT, require
from tests.interop.harness.servers import Server, lockstep_server
from tests.interop.harness.table import Row, RowMaker

__all__ = [
    "OtherStory",
    "cpp_story",
    "first_attempts",
    "go_story",
    "node_story",
    "queue_order_kept",
    "quick_server",
]

CPP_LIBRARY = "1.0.1"  # librocketmq's own version; the wheel's is another


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


def go_story(drivers: Drivers, server: Server, interop_row: RowMaker) -> OtherStory:
    """Drivers of rocketmq-client-go."""
    names = (ROOT / "scripts" / "interop" / "go" / "go.mod").read_text(encoding="utf-8")
    version = re.search(r"rocketmq-client-go/v2 v(\S+)", names)
    assert version is not None
    return OtherStory("Go", version[1], drivers.go, server, interop_row)


def node_story(drivers: Drivers, server: Server, interop_row: RowMaker) -> OtherStory:
    """Drivers of ali-ons."""
    package = require("node") / "node_modules" / "ali-ons" / "package.json"
    version = json.loads(package.read_text(encoding="utf-8"))["version"]
    return OtherStory("Node (ali-ons)", version, drivers.node, server, interop_row)


def cpp_story(drivers: Drivers, server: Server, interop_row: RowMaker) -> OtherStory:
    """Drivers of librocketmq."""
    require("cpp")
    return OtherStory("C++", CPP_LIBRARY, drivers.cpp, server, interop_row)


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
