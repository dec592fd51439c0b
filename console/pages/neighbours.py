"""From one message to the next of its key, or to the one before, in its queue."""

import asyncio
from typing import Final, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lockstep.client.admin.client import AdminClient
from lockstep.client.admin.stored_messages import read_range
from lockstep.console.console import console_of
from lockstep.console.pages.message_search import has_key
from lockstep.console.pages.parameters import number_of, queue_of, text_of
from lockstep.console.render import query_url, redirect, render
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import check_topic

__all__ = ["Neighbour", "message_url", "neighbour_of_key", "routes"]

_LOOK_S: Final = 5.0
_NEAR_MAX: Final = 1000  # messages of the queue that are looked through
_NEAR_STEP: Final = 100  # of them at once: a queue is read forwards, so that the way back is in steps
_WAYS: Final = ("next", "previous")


class Neighbour(NamedTuple):
    """
    Args:
        message: The next message of the key, or the one before; None: there is none from the offset to `reached`.
        reached: The last offset that was looked at; None: the end of the queue.
    """

    message: MessageExt | None
    reached: int | None = None


async def neighbour_of_key(
    admin: AdminClient, queue: MessageQueue, offset: int, key: str, *, is_back: bool
) -> Neighbour:
    """The next message with the key in the queue after an offset, or the last one before it, among the nearest 1,000.

    Raises TimeoutError when the queue is not read in 5 s.
    """
    async with asyncio.timeout(_LOOK_S):
        read = await admin.read_queue(queue, offset, count_max=1)
        low, end = read.min_offset, read.max_offset
        if is_back:
            last = max(low, offset - _NEAR_MAX)
            steps = [(max(last, high - _NEAR_STEP), high) for high in range(offset, last, -_NEAR_STEP)]
            is_end = last == low
        else:
            first, last = max(low, offset + 1), min(end, offset + 1 + _NEAR_MAX)
            steps = [(first, last)] if first < last else []
            is_end = last >= end
        found = None
        for begin, before in steps:
            async for message in read_range(admin, queue, begin, before):
                if has_key(message, key):
                    found = message
                    if not is_back:
                        break
            if found is not None:
                return Neighbour(found)
        return Neighbour(None, None if is_end else last if is_back else last - 1)


def message_url(queue: MessageQueue, offset: int, **more: str) -> str:
    """The address of the page of one message."""
    named = {"topic": queue.topic, "broker": queue.broker_name, "queue": queue.queue_id, "offset": offset}
    return query_url("/message", named | more)


async def _of_key(request: Request) -> Response:
    """Lead to the neighbour, or say that there is none, or how far was looked."""
    console, values = console_of(request), request.query_params
    queue, offset, key = queue_of(values), number_of(values, "offset"), text_of(values, "key")
    to, view = text_of(values, "to"), text_of(values, "view")
    check_topic(queue.topic)
    if offset is None or not key or to not in _WAYS:
        raise HTTPException(400, f"give an offset, a key, and {' or '.join(_WAYS)} as to")
    found = await neighbour_of_key(console.admin, queue, offset, key, is_back=to == "previous")
    if found.message is not None:
        return redirect(request, message_url(queue, found.message.queue_offset, view=view))
    on = None if found.reached is None else {**values, "offset": found.reached}
    return render(request, "neighbour_none.html", page="messages", queue=queue, key=key, to=to, on=on, count=_NEAR_MAX)


def routes() -> list[Route]:
    return [Route("/message/of-key", _of_key)]
