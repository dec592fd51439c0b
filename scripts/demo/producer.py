"""The producer of the demo: sends every event of the flights in order of time, keyed by aircraft, 256 in flight.

Prints two JSON lines: what it read (`read`), then the result (`done`). The result counts events stored out of their
aircraft's order. The checker cannot see that: it knows the order of the queues, not of the year.
"""

import argparse
import asyncio
import json
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import uvloop

from lockstep.client import Message, Producer, SendResult
from scripts.demo.consumer import TOPIC
from scripts.flights import FLIGHTS_ZIP, FlightEvent, Flights, read_flights

__all__ = ["AircraftOrder", "body_of", "main"]

IN_FLIGHT = 256
PACE_CHECK_EVENTS = 64


class AircraftOrder:
    """Numbers the events of each aircraft, and checks the order in which they are stored."""

    def __init__(self) -> None:
        self.misplaced = 0
        self._numbers: dict[str, int] = {}
        self._stored: dict[str, tuple[int, int]] = {}

    def next_number(self, key: str) -> int:
        """The number of an aircraft's next event, from 1."""
        number = self._numbers[key] = self._numbers.get(key, 0) + 1
        return number

    def stored(self, key: str, result: SendResult) -> None:
        """Check a result, in the order of the calls: same queue as the aircraft's last event, and a later offset."""
        queue_id, offset = result.queue.queue_id, result.queue_offset
        last_queue_id, last_offset = self._stored.get(key, (queue_id, -1))
        if queue_id != last_queue_id or offset <= last_offset:
            self.misplaced += 1
        self._stored[key] = (queue_id, offset)


def body_of(event: FlightEvent, number: int) -> bytes:
    """The body of an event's message."""
    facts = {
        "number": number,
        "event": event.kind,
        "at": event.at,
        "flight": event.flight,
        "from": event.origin,
        "to": event.destination,
    }
    return json.dumps(facts, separators=(",", ":")).encode()


async def produce(name_server: str, trace: str, events: Sequence[FlightEvent], seconds: float) -> AircraftOrder:
    """Send every event in at least `seconds`. Raises SendError when a send fails."""
    order = AircraftOrder()
    in_flight: deque[tuple[str, asyncio.Task[SendResult]]] = deque()
    pace = seconds / max(len(events), 1)
    async with Producer("flight-feed", name_server=name_server, trace=trace) as producer:
        begin = time.monotonic()
        for place, event in enumerate(events):
            if place % PACE_CHECK_EVENTS == 0:
                await asyncio.sleep(max(0.0, begin + place * pace - time.monotonic()))
            if len(in_flight) >= IN_FLIGHT:
                key, task = in_flight.popleft()
                order.stored(key, await task)
            message = Message(TOPIC, body_of(event, order.next_number(event.key)), tags=event.kind)
            in_flight.append((event.key, asyncio.create_task(producer.send(message, sharding_key=event.key))))
        for key, task in in_flight:
            order.stored(key, await task)
    return order


def summary(flights: Flights) -> dict[str, object]:
    """Figures of the read data, for the report."""
    keys = {event.key for event in flights.events}
    without = {event.key for event in flights.events if event.key == event.flight}
    return {
        "counts": str(flights.counts),
        "flights": flights.counts.flights,
        "events": len(flights.events),
        "aircraft": len(keys - without),
        "flights_without_aircraft": len(without),
    }


def main() -> None:
    """Read and report, send and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name-server", required=True)
    parser.add_argument("--trace", required=True, help="file for the JSON lines of what it did")
    parser.add_argument("--data", type=Path, default=FLIGHTS_ZIP)
    parser.add_argument("--limit", type=int, help="only so many flights")
    parser.add_argument("--seconds", type=float, default=0.0, help="take at least so long")
    given = parser.parse_args()
    flights = read_flights(given.data, given.limit)
    print(json.dumps({"read": summary(flights)}), flush=True)
    order = uvloop.run(produce(given.name_server, given.trace, flights.events, given.seconds))
    print(json.dumps({"done": {"misplaced": order.misplaced}}), flush=True)


if __name__ == "__main__":
    main()
