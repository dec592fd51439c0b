"""The parts of the demo: what it sends, what it shows, and when it says that it failed."""

import asyncio
import io
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from lockstep.client import MessageQueue, SendResult, StaleDeliveryError
from lockstep.order import Handover, Kind, OrderReport
from lockstep.protocol.bodies.broker import QueueData, TopicRouteData
from lockstep.protocol.bodies.locks import LockTableRow
from lockstep.remoting.errors import RemotingError
from scripts.demo.board import Board
from scripts.demo.consumer import CONSUMER_CONFIG, LOCK_LIFE_MS, TOPIC, pop
from scripts.demo.producer import AircraftOrder, body_of, summary
from scripts.demo.report import Outcome, faults, print_report
from scripts.demo.scenario import NOTICES, Children, Plan, Scenario
from scripts.demo.watch import QueueRow, Snapshot, TraceOwners, Watch, pid_of
from scripts.flights import FlightEvent, flights_of

EVENT = FlightEvent(22_616_000, 7, 1, "departed", "N14228", "UA1545", "EWR", "IAH")


def result(queue_id: int, offset: int) -> SendResult:
    return SendResult("SEND_OK", "id", MessageQueue(TOPIC, "b", queue_id), offset, "offset id")


def test_a_message_carries_its_place_in_the_story() -> None:
    """Body and number are what a consumer's board shows."""
    order = AircraftOrder()
    assert [order.next_number("N1"), order.next_number("N2"), order.next_number("N1")] == [1, 1, 2]
    assert json.loads(body_of(EVENT, 2)) == {
        "number": 2,
        "event": "departed",
        "at": EVENT.at,
        "flight": "UA1545",
        "from": "EWR",
        "to": "IAH",
    }


@pytest.mark.parametrize(
    ("second", "misplaced"),
    [(result(3, 5), 0), (result(3, 4), 1), (result(3, 3), 1), (result(2, 9), 1)],
    ids=["later in the queue", "the same place", "earlier", "another queue"],
)
def test_a_story_stored_out_of_order_is_counted(second: SendResult, misplaced: int) -> None:
    """An aircraft's next event must stand behind its last one, in the same queue."""
    order = AircraftOrder()
    order.stored("N1", result(3, 4))
    order.stored("N2", result(1, 9))
    order.stored("N1", second)
    assert order.misplaced == misplaced


def test_flight_numbers_are_not_counted_as_aircraft() -> None:
    """A cancelled flight without an aircraft is a key of its own kind."""
    row = {"time_hour": "2013-01-01T10:00:00Z", "minute": "15", "carrier": "UA", "flight": "1", "tailnum": "NA"}
    row |= {"origin": "EWR", "dest": "IAH", "dep_time": "NA"}
    read = summary(flights_of([row, row, {**row, "tailnum": "N1"}]))
    assert (read["events"], read["aircraft"], read["flights_without_aircraft"]) == (3, 1, 1)


def test_intervals_match_the_shorter_lock() -> None:
    """Renewed before the holder gives up, given up before the broker gives the queue away; and the demo says so."""
    assert CONSUMER_CONFIG.lock_interval_ms < CONSUMER_CONFIG.lock_max_live_time_ms < LOCK_LIFE_MS
    assert "10 s here instead of RocketMQ's 60 s" in NOTICES["faithful"]


SNAPSHOT = Snapshot([
    QueueRow(0, 11, 1_200, stored=1_500, handled=1_490, rate=210.4),
    QueueRow(1, 12, 8_200, stored=2_000, handled=500, rate=0.0),
    QueueRow(2, 0, 0, stored=0, handled=0, rate=0.0),
])  # fmt: skip
NAMES = {11: "A", 12: "B"}


class Popping:
    """A consumer whose first two steps fail. It stops the demo once a message is acknowledged."""

    def __init__(self, stopped: asyncio.Event) -> None:
        self.stopped, self.steps = stopped, list[str]()

    def subscribe(self, topic: str) -> None: ...

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> None: ...

    async def receive(self, _count_max: int) -> list[SimpleNamespace]:
        self.steps.append("receive")
        if len(self.steps) == 1:
            raise RemotingError
        return [SimpleNamespace(message="m")]

    @contextmanager
    def handling(self, _delivery: SimpleNamespace) -> Iterator[None]:
        self.steps.append("begin")
        yield
        self.steps.append("end")

    async def ack(self, _delivery: SimpleNamespace) -> None:
        self.steps.append("ack")
        if self.steps.count("ack") == 1:
            raise StaleDeliveryError
        self.stopped.set()


async def test_a_consumer_of_the_fifo_demo_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failed call and a refused acknowledgement. The trace has each call for the board."""
    monkeypatch.setattr("scripts.demo.consumer.POP_AGAIN_S", 0)
    stopped = asyncio.Event()
    consumer: Any = Popping(stopped)
    await pop(consumer, lambda messages: consumer.steps.extend(messages), stopped)
    assert consumer.steps == ["receive", *["receive", "begin", "m", "end", "ack"] * 2]


def shown(*, terminal: bool) -> str:
    console = Console(file=io.StringIO(), width=100, force_terminal=terminal, color_system=None)
    board = Board(console, NAMES, {12: 30.0})
    with board:
        board.show(SNAPSHOT, 4_000, 31.5)
        board.happened(31.5, "something [bold]happened[/bold]")
    output = console.file
    assert isinstance(output, io.StringIO)
    return output.getvalue()


def test_the_table_shows_owner_age_lag_and_rate() -> None:
    """A row a queue; a killed owner is marked, and its lock's bar is nearly full."""
    lines = [line.split() for line in shown(terminal=True).splitlines()]
    assert ["flights:0", "A", "━─────────", "1.2", "s", "10", "210", "1,490"] in lines
    assert ["flights:1", "B", "(killed)", "━━━━━━━━──", "8.2", "s", "1,500", "0", "500"] in lines
    assert ["flights:2", "none", "──────────", "-", "0", "0", "0"] in lines
    assert ["31.5", "s", "something", "happened"] in lines


def test_without_a_terminal_there_are_lines() -> None:
    """Progress is one line, without any control characters."""
    first, second = shown(terminal=False).splitlines()
    assert first.split("queues:")[1].split() == ["none", "2", "A", "0", "B", "(killed)", "1"]
    assert "sent 3,500 of 4,000  handled 1,990  lag 1,510" in first
    assert second.split() == ["31.5", "s", "something", "happened"]


def test_a_line_that_says_the_same_is_written_once_a_minute() -> None:
    """A log of a slow run has no pages of equal lines."""
    out = io.StringIO()
    board = Board(Console(file=out, width=100), NAMES, {})
    for at_s in range(0, 130, 10):
        board.show(SNAPSHOT, 400, float(at_s))
    assert len(out.getvalue().splitlines()) == 3


class Waiting(Scenario):
    """Each look takes half a minute."""

    def __init__(self, folder: Path, looks: Sequence[Snapshot]) -> None:
        super().__init__(Plan(folder, folder, None, 0.0, None), Console(file=io.StringIO()), 0.0)
        self._looks = iter(looks)
        self._at_s = 0.0

    def _now(self) -> float:
        return self._at_s

    async def _look(self) -> Snapshot:
        self._at_s += 30.0
        return next(self._looks)


async def test_waiting_ends_when_nothing_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner, a stored or a handled message moves. The error names the folder of the logs."""
    monkeypatch.setattr("scripts.demo.scenario.LOOK_EVERY_S", 0)
    row = QueueRow(0, 11, 100, 5, 5, 0.0)
    moving = [row, row, row._replace(owner_pid=12), row, row, row._replace(stored=6), row, row, row._replace(handled=4)]
    waiting = Waiting(tmp_path, [Snapshot([one]) for one in [*moving, *3 * moving[-1:]]])
    with pytest.raises(TimeoutError) as caught:
        await waiting._until(Children(tmp_path), lambda _: False, "the end")
    wanted = f"nothing moved for 60 s; waited for: the end. What its processes wrote is in {tmp_path}"
    assert (str(caught.value), next(waiting._looks, None)) == (wanted, None)


def test_the_picture_is_an_svg(tmp_path: Path) -> None:
    """What the terminal shows can be saved for a document."""
    board = Board(Console(file=io.StringIO()), NAMES, {12: 30.0})
    board.show(SNAPSHOT, 4_000, 31.5)
    board.save(tmp_path / "docs" / "demo.svg")
    svg = (tmp_path / "docs" / "demo.svg").read_text(encoding="utf-8")
    assert svg.startswith("<svg")
    assert "(killed)" in svg.replace("&#160;", " ")


def test_who_holds_a_lock() -> None:
    """A client id names the process; a snapshot says which queues it holds."""
    assert pid_of("127.0.0.1@4711#123456789") == 4711
    assert (SNAPSHOT.queues_of(12), SNAPSHOT.stored, SNAPSHOT.handled) == ([1], 3_500, 1_990)


class Busy:
    """An admin client of a topic whose every message is handled at once: two more between any two questions."""

    def __init__(self) -> None:
        self.handled = 0

    async def route(self, topic: str) -> TopicRouteData:
        return TopicRouteData((QueueData("b", 2, 2, 6),), ())

    async def list_locks(self, group: str) -> list[LockTableRow]:
        return []

    async def max_offset(self, queue: MessageQueue) -> int:
        return self._later()

    async def consumer_offset(self, group: str, queue: MessageQueue) -> int:
        return self._later()

    def _later(self) -> int:
        self.handled += 2
        return self.handled


def test_lag_is_never_below_0() -> None:
    """What is stored and handled while the demo looks counts for neither side, or for what is stored."""
    snapshot = asyncio.run(Watch(Busy()).look(0.0))  # type: ignore[arg-type]
    assert [row.stored - row.handled >= 0 for row in snapshot.rows] == [True, True]
    behind = Snapshot([snapshot.rows[0]._replace(stored=5, handled=7), snapshot.rows[1]._replace(stored=9, handled=8)])
    assert behind.lag == 1, "one queue's negative figure takes nothing off another's lag"


def test_rates_look_back_two_seconds() -> None:
    """The rate is over the last two seconds, not since the start."""
    watch = Watch(None)  # type: ignore[arg-type]
    rates = [watch._rates(second, [handled]) for second, handled in ((0.0, 0), (1.0, 900), (2.0, 900), (3.0, 1_100))]
    assert rates == [[0.0], [900.0], [450.0], [100.0]]


REPORT = OrderReport(
    sent=4, send_failures={}, handled=4, attempts=5, dead_lettered=0, duplicates={}, lost=0, before_start=0, skipped=0,
    emptied=0, queues=1, keys=3, torn_lines=1, events={}, violations=(), violation_counts={},
    handovers=(Handover("g", MessageQueue(TOPIC, "b", 3), "127.0.0.1@12#1", "127.0.0.1@11#1", 8_300.0),),
)  # fmt: skip
READ = {"counts": "2 flights", "flights": 2, "events": 4, "aircraft": 2, "flights_without_aircraft": 1}
OUTCOME = Outcome(READ, misplaced=0, names=NAMES, seconds=61.0)


def printed(report: OrderReport, outcome: Outcome) -> tuple[bool, str]:
    console = Console(file=io.StringIO(), width=100)
    verdict = print_report(report, outcome, console)
    output = console.file
    assert isinstance(output, io.StringIO)
    return verdict, output.getvalue()


def test_a_run_in_order_is_reported_as_such() -> None:
    """Nothing lost, nothing violated: the report says so, with the longest handover by name."""
    verdict, text = printed(REPORT, OUTCOME)
    assert verdict
    assert "8.3 s (queue 3 from B to A)" in text
    assert "nothing was lost" in text


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"lost": 2}, "2 events were lost"),
        ({"violation_counts": Counter({Kind.OVERLAP: 1})}, "order was violated"),
        ({"sent": 3}, "3 events were sent instead of 4"),
        ({"handled": 3}, "3 events were handled instead of 4"),
        ({"keys": 2}, "2 keys were checked instead of 3"),
        ({"handovers": ()}, "no queue changed hands"),
    ],
)
def test_a_run_that_failed_is_reported_as_such(change: dict[str, Any], sentence: str) -> None:
    """Each way to fail is named, and makes the verdict."""
    verdict, text = printed(replace(REPORT, **change), OUTCOME)
    assert not verdict
    assert sentence in text


def test_a_story_stored_out_of_order_fails_the_run() -> None:
    """The producer's own check counts too."""
    assert faults(REPORT, OUTCOME._replace(misplaced=1)) == ["1 events were stored out of their aircraft's order"]


def test_owners_by_the_traces_are_the_latest_to_acquire(tmp_path: Path) -> None:
    """A queue is its last acquirer's until that one drops it; a late word of an earlier owner changes nothing."""
    traces = [tmp_path / "a", tmp_path / "b", tmp_path / "not there yet"]

    def tell(path: Path, event: str, queue_id: int, at: int, pid: int) -> str:
        who = {"mono_ns": at, "client_id": f"127.0.0.1@{pid}#1", "topic": TOPIC, "queue_id": queue_id}
        line = json.dumps({"event": event, **who}, separators=(",", ":"))
        with path.open("a") as file:
            file.write(f"{line}\n")
        return line

    owners = TraceOwners(traces)
    tell(traces[0], "acquired", 0, 1, 11)
    tell(traces[0], "acquired", 1, 2, 11)
    torn = tell(traces[1], "acquired", 1, 5, 12)
    traces[1].write_text(torn[:-1])
    assert owners.look() == {0: 11, 1: 11}
    traces[1].write_text(f"{torn}\n")
    tell(traces[0], "dropped", 1, 6, 11)
    tell(traces[0], "dropped", 0, 7, 11)
    assert owners.look() == {0: 0, 1: 12}
