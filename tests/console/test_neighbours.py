"""From a message to those beside it, in its queue and of its key; the tail of one queue."""

from typing import Any, Self

from lockstep.client.admin.client import AdminClient
from lockstep.client.admin.messages import QueueSlice
from lockstep.console.pages import neighbours
from lockstep.protocol.bodies.admin import TopicOffset
from lockstep.protocol.bodies.broker import BrokerData, QueueData, TopicRouteData
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.model import MessageQueue
from tests.console.pages_inside import NOWHERE, ask, make_console
from tests.console.readings import NOW_MS, message
from tests.rows import by_row

WHERE = "topic=orders&broker=broker-a&queue=0"
FIRST, END = 10, 400


def message_of(queue: MessageQueue, offset: int, key: str) -> MessageExt:
    return message(queue, offset, NOW_MS, f"__SHARDINGKEY\x01{key}\x02".encode())


class Queues(AdminClient):
    """Two queues with the offsets 10 to 399, of which the key "a" has the numbers of `of_a`, and "b" the others."""

    of_a: tuple[int, ...] = (10, 150, 155, 390)

    def bounded(self, bytes_max: int) -> Self:
        return self

    async def route(self, topic: str) -> TopicRouteData:
        return TopicRouteData((QueueData("broker-a", 2, 2, 6, 0),), (BrokerData("broker-a", "c", {0: NOWHERE}),))

    async def topic_stats(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        return {MessageQueue(topic, "broker-a", number): TopicOffset(FIRST, END, NOW_MS) for number in range(2)}

    async def groups_of(self, topic: str) -> list[str]:
        return []

    async def read_queue(self, queue: MessageQueue, offset: int, *, count_max: int = 32, **_: Any) -> QueueSlice:
        offsets = range(max(offset, FIRST), min(offset + count_max, END))
        found = [message_of(queue, one, "a" if one in self.of_a else "b") for one in offsets]
        return QueueSlice(found, offsets.stop, FIRST, END)


async def page(path: str) -> tuple[int, str]:
    """The status, and the text or where it leads."""
    answer = await ask(make_console(admin=Queues(name_server=NOWHERE)), path)
    return answer.status, answer.headers.get("location", answer.text)


@by_row("offset, previous, following", [(FIRST, False, True), (200, True, True), (END - 1, True, False)])
async def test_a_message_links_those_beside_it(offset: int, previous: bool, following: bool) -> None:
    """In its queue, as far as there are some, and in the view that was chosen."""
    status, text = await page(f"/message?{WHERE}&offset={offset}&view=hex")
    assert status == 200
    beside = f"/message?{WHERE.replace('&', '&amp;')}&amp;offset="
    assert (f'rel="prev" href="{beside}{offset - 1}&amp;view=hex"' in text) is previous
    assert (f'rel="next" href="{beside}{offset + 1}&amp;view=hex"' in text) is following


@by_row(
    "offset, to, leads_to",
    [(10, "next", 150), (150, "next", 155), (155, "next", 390), (390, "previous", 155), (155, "previous", 150),
     (150, "previous", 10)],
)  # fmt: skip
async def test_to_the_neighbour_of_a_key(offset: int, to: str, leads_to: int) -> None:
    """The nearest one, on both sides, across many messages of other keys."""
    status, where = await page(f"/message/of-key?{WHERE}&offset={offset}&key=a&to={to}&view=text")
    assert (status, where) == (303, f"/message?{WHERE}&offset={leads_to}&view=text")


@by_row("offset, to, says", [(390, "next", "has no later message of key a"), (10, "previous", "has no earlier")])
async def test_a_key_without_a_neighbour(offset: int, to: str, says: str) -> None:
    """The queue was read to its end."""
    status, text = await page(f"/message/of-key?{WHERE}&offset={offset}&key=a&to={to}")
    assert status == 200
    assert says in text
    assert "Look on" not in text


@by_row("offset, to, on", [(155, "next", 195), (390, "previous", 350)])
async def test_a_look_is_bounded(offset: int, to: str, on: int, monkeypatch: Any) -> None:
    """What was not looked at is offered, from there on."""
    monkeypatch.setattr(neighbours, "_NEAR_MAX", 40)
    status, text = await page(f"/message/of-key?{WHERE}&offset={offset}&key=a&to={to}")
    assert status == 200
    assert "none of key a" in text
    assert f"offset={on}&amp;key=a&amp;to={to}" in text


@by_row("query", [f"{WHERE}&key=a&to=next", f"{WHERE}&offset=1&to=next", f"{WHERE}&offset=1&key=a&to=x", "offset=1"])
async def test_what_is_asked_wrongly(query: str) -> None:
    """It says what is missing."""
    assert (await page(f"/message/of-key?{query}"))[0] == 400


async def test_the_tail_of_a_queue() -> None:
    """Its messages alone, live; a pause is a page that does not ask again."""
    _, text = await page("/messages?topic=orders")
    assert "broker-a:0" in text
    status, text = await page("/messages?topic=orders&queue=broker-a:1")
    assert status == 200
    assert text.count('<td data-label="Queue">broker-a:1</td>') == 50
    assert "<body data-live=" in text
    assert '<option value="broker-a:1" selected>' in text
    _, text = await page("/messages?topic=orders&queue=broker-a:1&pause=1")
    assert "<body>" in text
    assert 'href="/messages?topic=orders&amp;queue=broker-a%3A1&amp;pause="' in text
    for wrong in ("broker-a", "broker-a:x", ":1"):
        assert (await page(f"/messages?topic=orders&queue={wrong}"))[0] == 400
