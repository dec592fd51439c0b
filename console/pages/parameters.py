"""What a reader asked for: parameters of an address or of a form, times, and one page of many rows."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Generic, NamedTuple, TypeVar
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from lockstep.console.connections import BODY_BYTES_MAX
from lockstep.protocol.model import MessageQueue

__all__ = ["Rows", "form_of", "moment_ms", "number_of", "queue_of", "rows_of", "text_of"]

_TEXT_MAX: Final = 1000
_DIGITS_MAX: Final = 19
_ROWS: Final = 100
_MOST: Final = 2**63 - 1
T = TypeVar("T")


class Rows(NamedTuple, Generic[T]):
    """Some of many rows. `first` and `last` are numbers from 1; `previous` and `next` of pages, None at the ends."""

    rows: Sequence[T]
    first: int
    last: int
    total: int
    previous: int | None
    next: int | None


def rows_of(request: Request, rows: Sequence[T], size: int = _ROWS) -> Rows[T]:
    """The rows of the page that the address names by `page`, the last one at most."""
    wanted = number_of(request.query_params, "page") or 0
    page = min(wanted, max(len(rows) - 1, 0) // size)
    shown = rows[page * size : (page + 1) * size]
    more = page + 1 if (page + 1) * size < len(rows) else None
    before = page - 1 if page else None
    return Rows(shown, page * size + 1, page * size + len(shown), len(rows), before, more)


def text_of(values: Mapping[str, str], name: str, default: str = "") -> str:
    return values.get(name, default).strip()[:_TEXT_MAX]


def number_of(values: Mapping[str, str], name: str) -> int | None:
    """A number from 0; None without one. Raises HTTPException 400 for any other text."""
    text = text_of(values, name)
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX) or int(text) > _MOST:
        raise HTTPException(400, f"{name} is a number from 0 to {_MOST}, not {text!r}")
    return int(text)


def queue_of(values: Mapping[str, str]) -> MessageQueue:
    """The queue that `topic`, `broker` and `queue` name. Raises HTTPException 400."""
    topic, broker, number = text_of(values, "topic"), text_of(values, "broker"), number_of(values, "queue")
    if not topic or not broker or number is None:
        raise HTTPException(400, "a queue is named by topic, broker and queue")
    return MessageQueue(topic, broker, number)


def moment_ms(text: str) -> int | None:
    """Epoch ms of a text: epoch ms itself, or a date and time, which is UTC without a zone. None: it is no time."""
    text = text.strip()
    if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX:
        return min(int(text), _MOST)
    try:
        moment = datetime.fromisoformat(text)
        return max(int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000), 0)
    except (ValueError, OverflowError):
        return None


async def form_of(request: Request) -> dict[str, Any]:
    """The fields of a posted form. Raises HTTPException 413 for a large one, 400 for one that does not arrive."""
    body = b""
    try:
        async for part in request.stream():
            body += part
            if len(body) > BODY_BYTES_MAX:
                raise HTTPException(413, "the form is too large")
    except ClientDisconnect:
        raise HTTPException(400, "the form did not arrive") from None
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
