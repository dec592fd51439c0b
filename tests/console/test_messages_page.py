"""The pages of messages: bodies as text, JSON and hex, the way of one key, and what is asked wrongly."""

import asyncio
from typing import Any, Self

import pytest

from lockstep.client.admin.client import AdminClient
from lockstep.client.admin.messages import QueueSlice
from lockstep.console.model import QueueState, Span
from lockstep.console.pages import message_search
from lockstep.console.pages.bodies import FormattedBody, View, excerpt, format_body
from lockstep.console.pages.key_way import key_way
from lockstep.console.pages.messages import property_times
from lockstep.console.pages.parameters import moment_ms
from lockstep.protocol.bodies.admin import TopicOffset
from lockstep.protocol.bodies.broker import BrokerData, TopicRouteData
from lockstep.protocol.model import MessageQueue
from tests.console.pages_inside import NOWHERE, ask, make_console
from tests.console.readings import GROUP, NOW_MS, QUEUES, message, reading, watched
from tests.rows import by_row


def test_a_body_is_shown_as_what_it_is() -> None:
    """JSON indented, else text, else hex; a wish that cannot be met is told."""
    assert format_body(b'{"a":1}') == FormattedBody(View.JSON, '{\n  "a": 1\n}', 0)
    assert format_body(b'{"a":1}', View.TEXT) == FormattedBody(View.TEXT, '{"a":1}', 0)
    assert format_body(b"7") == FormattedBody(View.TEXT, "7", 0)
    assert format_body("é".encode()) == FormattedBody(View.TEXT, "é", 0)
    assert format_body(b"{no", View.JSON) == FormattedBody(View.TEXT, "{no", 0, is_wanted=False)
    assert format_body(b"\xff\x00", View.JSON).is_wanted is False
    assert format_body(b"\xff\x00").text == f"00000000  {'ff 00':<48} .."
    assert format_body(b"\xffa", View.TEXT).text == "\\xffa"
    assert format_body(b"[" * 5000).view is View.TEXT, "too deep to be read as JSON"


def test_deep_json_is_not_indented_without_bound() -> None:
    """A message of 64 KiB would be a page of 58 MB."""
    deep = b"[" + b",".join([b"[" * 900 + b"]" * 900] * 36) + b"]"
    assert format_body(deep) == FormattedBody(View.TEXT, deep.decode(), 0)


def test_a_large_body_is_cut() -> None:
    """In each view, and the page says how much is left out."""
    assert format_body(b"x" * 70_000).cut == 70_000 - 65_536
    assert format_body(("é" * 40_000).encode()).view is View.TEXT
    assert format_body(b"x" * 70_000, View.HEX).cut == 70_000 - 16_384
    assert len(excerpt(b"y" * 1000)) == 90
    assert excerpt(b"a\n\tb\x00\xff").startswith("a b")


@by_row(
    "text, ms",
    [
        ("1700000000000", 1_700_000_000_000),
        ("1970-01-01T00:01", 60_000),
        ("1970-01-01 01:00+01:00", 0),
        ("1960-01-01", 0),
        ("soon", None),
        ("", None),
        ("9" * 40, None),
    ],
)
def test_times(text: str, ms: int | None) -> None:
    """UTC without a zone; a time before the epoch is the epoch."""
    assert moment_ms(text) == ms


def test_properties_that_are_times() -> None:
    """A page shows them as dates too. One of a user's own that looks like a time is none."""
    given = {"TIMER_OUT_MS": "1700000000042", "__STARTDELIVERTIME": "soon", "order": "1700000000042"}
    assert property_times(given) == {"TIMER_OUT_MS": 1_700_000_000_042}


def test_the_way_of_a_key() -> None:
    """Who had the queue when each message was stored, who has it now, and whether the group is past it."""
    collector = watched(reading())
    state = QueueState()
    state.spans.extend([Span(NOW_MS - 9000, NOW_MS - 6000, "z", None), Span(NOW_MS - 3000, None, "a", None)])
    state.row, state.look = collector.queues[(GROUP, QUEUES[0])].row, collector.queues[(GROUP, QUEUES[0])].look
    collector.queues[(GROUP, QUEUES[0])] = state
    stored = [message(QUEUES[0], 80 + number, NOW_MS - 10_000 + number * 3000) for number in range(4)]
    way = key_way([*stored, message(QUEUES[3], 95, NOW_MS)], 100, GROUP, collector)
    assert way.queues == [QUEUES[0], QUEUES[3]]
    assert [step.owner_then for step in way.steps[:4]] == [None, "z", "", "a"]
    assert {step.owner_now for step in way.steps} == {"a", "b"}
    assert [step.is_consumed for step in way.steps] == [True] * 4 + [False]
    (unknown,) = key_way(stored[:1], 100, "nobody", collector).steps
    assert (unknown.owner_then, unknown.owner_now, unknown.is_consumed) == (None, "", None)


async def test_what_is_asked_wrongly() -> None:
    """Each gets an answer that says what is allowed; without a topic the page asks for one."""
    console = make_console()
    assert "Choose a topic" in (await ask(console, "/messages")).text
    assert "Write the key" in (await ask(console, "/messages?topic=orders&by=key")).text
    assert (await ask(console, "/messages?topic=orders&by=chance")).status == 400
    assert (await ask(console, "/messages?topic=a%20b")).status == 400
    assert (await ask(console, "/message?topic=orders&broker=b&queue=0&offset=1&view=xml")).status == 400
    assert (await ask(console, "/message?topic=orders&queue=0")).status == 400
    assert (await ask(console, "/key?topic=orders")).status == 400
    assert (await ask(console, "/messages?topic=orders")).status == 502


class Endless(AdminClient):
    """A topic of a thousand queues, the newest message in queue 0. From queue 2 on the broker does not answer."""

    count = 1000

    def bounded(self, bytes_max: int) -> Self:
        return self

    async def route(self, topic: str) -> TopicRouteData:
        return TopicRouteData((), (BrokerData("broker-a", "c", {0: "10.0.0.1:1"}),))

    def at(self, broker: BrokerData) -> Self:
        return self

    async def topic_stats(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        numbers = reversed(range(self.count))
        return {MessageQueue(topic, "broker-a", number): TopicOffset(0, 1, NOW_MS - number) for number in numbers}

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        return 0

    async def read_queue(self, queue: MessageQueue, offset: int, **_: Any) -> QueueSlice:
        if queue.queue_id > 1:
            await asyncio.Event().wait()
        return QueueSlice([message(queue, 0, NOW_MS, b"KEYS\x01k\x02")], 1, 0, 1)


@by_row("path", ["/messages?topic=T", "/messages?topic=T&by=time&text=1", "/key?topic=T&key=k"])
async def test_a_page_looks_through_queues_for_a_bounded_time(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows what was found, and says how many queues are missing."""
    monkeypatch.setattr(message_search, "_LOOK_S", 0)
    answer = await ask(make_console(admin=Endless(name_server=NOWHERE)), path)
    assert answer.status == 200
    assert "broker-a:0" in answer.text
    assert "broker-a:1" in answer.text
    assert "Time was over before 998 queues were read" in answer.text
    admin = Endless(name_server=NOWHERE)
    admin.count = 1
    monkeypatch.undo()
    assert "Time was over" not in (await ask(make_console(admin=admin), path)).text
