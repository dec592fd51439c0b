"""Send a message by hand: it goes to the queue of its key, in order with what other producers send there."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lockstep.client.admin.tolerance import no_answer_within
from lockstep.client.errors import ClientError, SendError, SendOutcome, TopicNotFoundError
from lockstep.client.producer.producer import Producer
from lockstep.client.producer.selectors import select_by_group
from lockstep.client.send_result import SendResult
from lockstep.console.acts.changes import BadInputError, checked_form, log_change
from lockstep.console.connections import BODY_BYTES_MAX
from lockstep.console.console import Console, console_of
from lockstep.console.pages.neighbours import message_url
from lockstep.console.pages.parameters import text_of
from lockstep.console.pages.questions import answer_of
from lockstep.console.render import render
from lockstep.protocol.bodies.subscription_group import RETRY_STEPS_MS
from lockstep.protocol.errors import LocalProtocolError, ProtocolError
from lockstep.protocol.messages.to_send import Message
from lockstep.protocol.names import check_send_topic
from lockstep.remoting.errors import RemotingError
from lockstep.remoting.texts import whole_number

__all__ = ["message_of", "routes"]

_GROUP: Final = "lockstep-console"
_PATIENCE_S: Final = 10.0
_LEVELS: Final = RETRY_STEPS_MS  # the waits of the delay levels, unless a broker's settings say others


def message_of(form: Mapping[str, str]) -> Message:
    """The message that a form describes. Raises BadInputError, LocalProtocolError."""
    topic, level = text_of(form, "topic"), whole_number(text_of(form, "delay", "0"))
    check_send_topic(topic)
    if level is None or level > len(_LEVELS):
        raise BadInputError("send.bad_delay", most=len(_LEVELS))
    body = form.get("body", "").replace("\r\n", "\n")  # a form has all line ends as two characters
    if not body:
        raise BadInputError("send.bad_body")
    properties = {}
    for line in form.get("properties", "").splitlines():
        name, found, value = line.partition("=")
        if line.strip():
            if not found or not name.strip() or not value:
                raise BadInputError("send.bad_property", line=line.strip()[:100])
            properties[name.strip()] = value
    return Message(
        topic, body.encode("utf-8", "replace"), tags=text_of(form, "tag") or None, keys=text_of(form, "keys") or None,
        sharding_key=text_of(form, "key") or None, properties=properties, delay_level=level,
    )  # fmt: skip


async def _send(console: Console, message: Message, *, by_group: bool) -> SendResult:
    """Raises TimeoutError, ClientError, RemotingError, ProtocolError."""
    async with (
        asyncio.timeout(_PATIENCE_S),
        Producer(_GROUP, **console.access, runtime=console.runtime, log=console.log) as producer,
    ):
        return await producer.send(message, selector=select_by_group if by_group else None)


def _may_be_stored(error: Exception) -> bool:
    return isinstance(error, TimeoutError) or (isinstance(error, SendError) and error.outcome is SendOutcome.UNKNOWN)


async def _form(request: Request) -> Response:
    return await _page(request, dict(request.query_params))


async def _posted(request: Request) -> Response:
    console, form = console_of(request), await checked_form(request)
    try:
        message = message_of(form)
        await console.admin.route(message.topic)  # a slip must not create a topic
        by_group = text_of(form, "group") == "1" and message.sharding_key is not None
    except TopicNotFoundError:
        return await _page(request, form, problem=BadInputError("messages.problem.topic"))
    except (BadInputError, LocalProtocolError) as error:
        return await _page(request, form, problem=error)
    about: dict[str, Any] = {"topic": message.topic, "key": message.sharding_key}
    try:
        result = await _send(console, message, by_group=by_group)
    except LocalProtocolError as error:  # nothing was sent
        return await _page(request, form, problem=error)
    except (TimeoutError, ClientError, RemotingError, ProtocolError) as error:
        why = no_answer_within(_PATIENCE_S) if isinstance(error, TimeoutError) else str(error)
        log_change(request, "send", **about, error=why)
        key = "send.unknown" if _may_be_stored(error) else "send.failed"
        return await _page(request, form, problem=BadInputError(key, why=why))
    log_change(request, "send", **about, msg_id=result.msg_id)
    return await _page(request, form, result=result, is_delayed=message.is_delayed)


async def _page(
    request: Request,
    values: Mapping[str, str],
    *,
    problem: Exception | None = None,
    result: SendResult | None = None,
    is_delayed: bool = False,
) -> Response:
    return render(
        request, "send.html", page="messages", status=400 if problem else 200, values=dict(values), problem=problem,
        result=result, is_delayed=is_delayed, levels=_LEVELS, body_max=BODY_BYTES_MAX, message_url=message_url,
        topics=await answer_of(console_of(request).admin.user_topics()) or (),
    )  # fmt: skip


def routes() -> list[Route]:
    return [Route("/send", _form), Route("/send", _posted, methods=["POST"])]
