"""The pages of messages: the last ones, by key, id or time; one message; the way of one key."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lockstep.client.admin.client import AdminClient
from lockstep.client.admin.message_track import track_message
from lockstep.client.admin.messages import id_address
from lockstep.client.errors import TopicNotFoundError
from lockstep.console.console import Console, console_of
from lockstep.console.pages.bodies import View, excerpt, format_body
from lockstep.console.pages.key_way import find_key, key_way
from lockstep.console.pages.message_search import SearchResult, first_from, newest
from lockstep.console.pages.neighbours import message_url
from lockstep.console.pages.parameters import moment_ms, number_of, queue_of, text_of
from lockstep.console.pages.questions import answer_of, whole_answer
from lockstep.console.pages.topics import consumer_rows
from lockstep.console.render import render
from lockstep.protocol.messages import properties
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import check_topic
from lockstep.remoting.errors import RemotingError
from lockstep.remoting.texts import whole_number

__all__ = ["WAYS", "find", "property_times", "routes"]

WAYS: Final = ("tail", "key", "id", "time")
_TIMES: Final = (
    properties.ARRIVE_TIME, properties.CONSUME_START_TIME, properties.FIRST_POP_TIME, properties.PUSH_REPLY_TIME,
    properties.START_DELIVER_TIME, properties.TIMER_DELIVER_MS, properties.TIMER_OUT_MS,
)  # fmt: skip
_COUNT: Final = 50
_QUEUES_MAX: Final = 200  # that the form offers


async def find(admin: AdminClient, topic: str, way: str, text: str, queue: MessageQueue | None = None) -> SearchResult:
    """Messages of a topic, oldest first, at most 50.

    Args:
        way: One of WAYS. "key": a word of KEYS, which brokers index; "time": the first ones from then on.
        text: The key, the id, or the time.
        queue: For "tail" and "time": look in this one alone.

    Raises:
        HTTPException: 400 when the text is no time.
        TopicNotFoundError: For "tail" and "time".
    """
    if way == "key":
        return SearchResult(await admin.query_messages(topic, text, count_max=_COUNT))
    if way == "id":
        return SearchResult(await _by_id(admin, topic, text))
    if way == "tail":
        return await newest(admin, topic, _COUNT, queue)
    from_ms = moment_ms(text)
    if from_ms is None:
        raise HTTPException(400, "give a date and time such as 2026-01-31T12:00, in UTC, or epoch milliseconds")
    return await first_from(admin, topic, from_ms, _COUNT, queue)


async def _by_id(admin: AdminClient, topic: str, text: str) -> list[MessageExt]:
    """By its own id in the topic, else by an id that names a broker and a place."""
    found = await admin.query_messages(topic, text, unique=True) if topic else []
    if found:
        return found
    try:
        address = id_address(text)
    except ValueError:
        return []
    if address not in {broker.master_addr for broker in await admin.brokers()}:
        return []  # the id would make the console connect to any address
    try:
        return [await admin.view_message(text)]
    except RemotingError:
        return []


# Routes ------------------------------------------------------------------------------------------------------


async def _messages(request: Request) -> Response:
    console, values = console_of(request), request.query_params
    topic, way, text = text_of(values, "topic"), text_of(values, "by", "tail"), text_of(values, "text")
    if way not in WAYS:
        raise HTTPException(400, f"by is one of {', '.join(WAYS)}")
    if topic:
        check_topic(topic)
    queue = _queue_of_topic(topic, text_of(values, "queue"))
    topics: Sequence[str] = await answer_of(console.admin.user_topics()) or ()
    admin = console.tolerant_admin()
    result, problem = await _found(admin, topic, way, text, queue)
    found = result.messages if result is not None else None
    is_tail, is_paused = way == "tail" and found is not None, text_of(values, "pause") == "1"
    return render(
        request, "messages.html", page="messages", is_live=is_tail and not is_paused, found=found, is_tail=is_tail,
        is_paused=is_paused, queue=queue, queues=await _queues(console, topic) if found is not None else (),
        problem=problem, topics=topics, topic=topic, way=way, text=text, ways=WAYS, excerpt=excerpt,
        queues_left_out=result.queues_left_out if result is not None else 0, left_out=console.left_out(admin),
    )  # fmt: skip


def _queue_of_topic(topic: str, text: str) -> MessageQueue | None:
    """The queue of a text such as "broker-a:3"; None without a text. Raises HTTPException 400."""
    if not text:
        return None
    broker, _, number = text.rpartition(":")
    return queue_of({"topic": topic, "broker": broker, "queue": number})


async def _queues(console: Console, topic: str) -> list[MessageQueue]:
    """Some of the queues of a topic, for the reader to choose one."""
    route = await answer_of(console.admin.route(topic)) if topic else None
    return route.readable_queues(topic)[:_QUEUES_MAX] if route is not None else []


async def _found(
    admin: AdminClient, topic: str, way: str, text: str, queue: MessageQueue | None
) -> tuple[SearchResult | None, str]:
    """What was found, None before anything was looked for; and what is wrong with what was asked."""
    if not topic and way != "id":
        return None, ""
    if way != "tail" and not text:
        return None, "text"
    try:
        return await find(admin, topic, way, text, queue), ""
    except TopicNotFoundError:
        return None, "topic"


async def _message(request: Request) -> Response:
    console, values = console_of(request), request.query_params
    queue, offset = queue_of(values), number_of(values, "offset")
    check_topic(queue.topic)
    wanted = text_of(values, "view")
    if offset is None or wanted not in ("", *View):
        raise HTTPException(400, "give an offset, and text, json or hex as the view")
    read = await console.admin.read_queue(queue, offset, count_max=1)
    message = next((one for one in read.messages if one.queue_offset == offset), None)
    if message is None:
        bounds = (read.min_offset, read.max_offset)
        return render(
            request, "message_gone.html", page="messages", status=404, queue=queue, offset=offset, bounds=bounds
        )
    tracks = await whole_answer(console, lambda admin: track_message(admin, message))
    body = format_body(message.body, View(wanted) if wanted else None)
    return render(
        request, "message.html", page="messages", message=message, queue=queue, body=body, views=list(View),
        tracks=tracks, key=_key_of(message), times=property_times(message.properties),
        bounds=(read.min_offset, read.max_offset), message_url=partial(message_url, view=wanted), view=wanted,
    )  # fmt: skip


def property_times(of: Mapping[str, str]) -> dict[str, int]:
    """Those properties of a message that are times, in epoch ms."""
    found = {name: whole_number(of.get(name, "")) for name in _TIMES}
    return {name: ms for name, ms in found.items() if ms is not None}


def _key_of(message: MessageExt) -> str:
    return message.sharding_key or (message.keys or "").split(" ")[0]


async def _key(request: Request) -> Response:
    console, values = console_of(request), request.query_params
    topic, key, group = text_of(values, "topic"), text_of(values, "key"), text_of(values, "group")
    check_topic(topic)
    if not key:
        raise HTTPException(400, "give a key")
    groups = _groups_of(console, topic)
    group = group or (groups[0] if groups else "")
    admin = console.tolerant_admin()
    result, looked_at = await find_key(admin, topic, key)
    way = key_way(result.messages, looked_at, group, console.collector)
    return render(
        request, "key.html", page="messages", topic=topic, key=key, way=way, groups=groups, excerpt=excerpt,
        queues_left_out=result.queues_left_out, left_out=console.left_out(admin),
        who=partial(console.collector.owner, way.group),
    )  # fmt: skip


def _groups_of(console: Console, topic: str) -> list[str]:
    return [row.group for row in consumer_rows(topic, console.collector)]


def routes() -> list[Route]:
    return [Route("/messages", _messages), Route("/message", _message), Route("/key", _key)]
