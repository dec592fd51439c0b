"""A record that is no message stops no query: it is a row with its bytes and the reason, and the others follow."""

from collections import deque
from contextlib import nullcontext
from itertools import product
from typing import Any, NamedTuple, cast

import pytest
from pyspark.sql.types import StructType

from lockstep.client.blocking import Addresses, BlockingClient, PullReply
from lockstep.pipeline.errors import DataLossError
from lockstep.pipeline.options import Use, parse_options
from lockstep.pipeline.schema import source_schema
from lockstep.pipeline.source import fetch
from lockstep.pipeline.source.fetch import SliceReader
from lockstep.pipeline.source.planning import QueueSlice, first_offset_at
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.messages.message import MESSAGE_MAGIC
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.errors import ConnectionLost
from tests.client.messages import stored_bytes
from tests.rows import by_row

QUEUE = MessageQueue("T", "broker-a", 0)
SCHEMA: StructType = source_schema(["offset", "value", "bodyError"])


class Ticket(NamedTuple):
    offset: int
    asked: int


class Broker:
    """A client of a broker whose queue has these records; it answers as a broker does, a few at a time."""

    def __init__(self, records: list[bytes], at_once: int) -> None:
        self.addresses = Addresses(("127.0.0.1:9876",), "g")
        self.under_way: deque[Ticket] = deque()
        self.first = self.first_later = 0  # offsets; messages are deleted before a pull without others under way
        self.lost_at: int | None = None  # the connection ends during the pull of this offset
        self._lost: list[Ticket] = []
        self._records = records
        self._at_once = at_once

    def start_pull(self, _queue: MessageQueue, offset: int, count: int, _tags: str) -> Ticket:
        self.under_way.append(Ticket(offset, count))
        return self.under_way[-1]

    def finish_pull(self, ticket: Ticket) -> PullReply:
        if ticket.offset == self.lost_at:
            self._lost, self.lost_at = [*self.under_way], None
            self.under_way.clear()
        if any(ticket is one for one in self._lost):
            raise ConnectionLost("broker-a", "the test ends it")
        assert self.under_way.popleft() is ticket, "answers are taken in their order"
        return self._answer(*ticket)

    def pull(self, _queue: MessageQueue, offset: int, count: int, _tags: str = "*") -> PullReply:
        assert not self.under_way, "an answer that nobody took would be taken for this one"
        self.first = self.first_later
        return self._answer(offset, count)

    def min_offset(self, _queue: MessageQueue) -> int:
        return 0

    def max_offset(self, _queue: MessageQueue) -> int:
        return len(self._records)

    def _answer(self, offset: int, count: int) -> PullReply:
        if offset < self.first:
            moved = ResponseCode.PULL_OFFSET_MOVED
            return PullReply(moved, self.first, self.first, len(self._records), b"", "OFFSET_TOO_SMALL")
        found = self._records[offset : offset + min(count, self._at_once)]
        return PullReply(0, offset + len(found), self.first, len(self._records), b"".join(found), "FOUND")


def records(count: int, damaged: set[int]) -> list[bytes]:
    whole = [stored_bytes(offset) for offset in range(count)]
    magic = MESSAGE_MAGIC.to_bytes(4)
    return [one.replace(magic, b"oops", 1) if place in damaged else one for place, one in enumerate(whole)]


def read(monkeypatch: pytest.MonkeyPatch, broker: Broker, **given: str) -> list[dict[str, Any]]:
    """The rows of the first ten offsets."""
    monkeypatch.setattr(Addresses, "open", lambda _: nullcontext(broker))
    options = parse_options({"nameServer": "127.0.0.1:9876", "subscribe": "T", **given}, Use.READ)
    batches = SliceReader(options, SCHEMA).read(QueueSlice(QUEUE, 0, 10))
    return [row for batch in batches for row in batch.to_pylist()]


@by_row("damaged, at_once", product([{0}, {4}, {9}, {3, 4}, {0, 5, 9}, set(range(10))], [1, 3, 32]))
def test_every_offset_is_one_row(monkeypatch: pytest.MonkeyPatch, damaged: set[int], at_once: int) -> None:
    """Wherever the damaged records are, however many messages an answer has; and none from behind the end."""
    stored = records(11, damaged | {10})
    rows = read(monkeypatch, Broker(stored, at_once))
    assert [row["offset"] for row in rows] == list(range(10))
    assert {row["offset"] for row in rows if row["bodyError"] is not None} == damaged
    for row in rows:
        is_damaged = row["offset"] in damaged
        assert row["value"] == (stored[row["offset"]] if is_damaged else b"%d" % row["offset"])
        assert not is_damaged or "the stored record cannot be read: byte 0: magic" in row["bodyError"]


@pytest.mark.parametrize("first", [5, 10])
def test_one_that_is_deleted_meanwhile_is_lost(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, first: int
) -> None:
    """Between the pull that shows it and the pull of it alone: an error, or a warning and the messages behind it."""
    lost = f"the messages 3 to {first - 1} are lost"
    broker = Broker(records(10, {3}), 3)
    broker.first_later = first
    with pytest.raises(DataLossError, match=lost):
        read(monkeypatch, broker)
    broker.first = 0
    rows = read(monkeypatch, broker, failOnDataLoss="false")
    assert [row["offset"] for row in rows] == [0, 1, 2, *range(first, 10)]
    assert lost in caplog.text


def test_a_connection_that_ends_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pulls behind it are given up anyway, and asked again."""
    monkeypatch.setattr(fetch, "_BATCH_PULLS", 1)
    broker = Broker(records(10, {3}), 3)
    broker.lost_at = 6
    assert [row["offset"] for row in read(monkeypatch, broker)] == list(range(10))
    assert broker.lost_at is None


@by_row("damaged", [set[int](), {0}, {4}, {3, 4, 5}, {9}, set(range(10))])
def test_a_time_is_found_beside_them(damaged: set[int]) -> None:
    """A start by time reads single messages: a damaged one counts as stored with the next one that can be read."""
    magic = MESSAGE_MAGIC.to_bytes(4)
    stored = [stored_bytes(offset, store_timestamp=100 + offset) for offset in range(10)]
    stored = [one.replace(magic, b"oops", 1) if place in damaged else one for place, one in enumerate(stored)]
    client = cast("BlockingClient", Broker(stored, 1))
    readable = [place for place in range(10) if place not in damaged]
    for asked_ms in (100, 104, 109, 110):
        found = first_offset_at(client, QUEUE, asked_ms)
        first = next((place for place in readable if 100 + place >= asked_ms), None)
        if found is None or first is None:
            assert found is first
        else:
            assert found <= first
            assert set(range(found, first)) <= damaged
