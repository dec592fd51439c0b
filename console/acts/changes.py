"""What every change has: a form of this console, one broker after the other in words, and a line in the log."""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request

from lockstep.client.admin.tolerance import FAILURES, no_answer_within
from lockstep.console.console import console_of
from lockstep.console.pages.parameters import form_of, text_of
from lockstep.protocol.bodies.broker import BrokerData
from lockstep.remoting.errors import RequestRefused

__all__ = [
    "DONE",
    "REFUSED",
    "UNKNOWN",
    "BadInputError",
    "Outcome",
    "at_each",
    "checked_form",
    "log_change",
    "outcome_of",
]

_PATIENCE_S: Final = 5.0  # for a change at one broker, which may write files
DONE, REFUSED, UNKNOWN = "done", "refused", "unknown"


class BadInputError(Exception):
    """What the reader wrote cannot be used; `key` and `fields` are of the text that says why."""

    def __init__(self, key: str, **fields: object) -> None:
        super().__init__(key)
        self.key = key
        self.fields = fields


class Outcome(NamedTuple):
    """What became of a change.

    Args:
        name: Of the broker.
        state: "done"; "refused", for the reason `why`; "unknown": there was no answer, and it may still be done.
    """

    name: str
    state: str
    why: str = ""


async def checked_form(request: Request) -> dict[str, str]:
    """The fields of a form that this console has made. Raises HTTPException 403 for any other."""
    form = await form_of(request)
    token = text_of(form, "token")
    if not hmac.compare_digest(token.encode(), console_of(request).token.encode()):
        raise HTTPException(403, "the form is not of this console, or of an earlier start of it")
    return form


async def outcome_of(name: str, change: Awaitable[object]) -> Outcome:
    """Wait for a change at one broker."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await change
    except TimeoutError:
        return Outcome(name, UNKNOWN, no_answer_within(_PATIENCE_S))
    except RequestRefused as error:
        return Outcome(name, REFUSED, error.remark or str(error))
    except FAILURES as error:
        return Outcome(name, UNKNOWN, str(error))
    return Outcome(name, DONE)


async def at_each(brokers: Sequence[BrokerData], change: Callable[[BrokerData], Awaitable[object]]) -> list[Outcome]:
    """Make a change at brokers, at all of them at once: one that refuses stops no other."""
    return await asyncio.gather(*[outcome_of(broker.broker_name, change(broker)) for broker in brokers])


def log_change(request: Request, act: str, outcomes: Sequence[Outcome] = (), **fields: object) -> None:
    """Write who changed what, and what became of it, into the log of the console: one line a change."""
    states = {one.name: one.state if not one.why else f"{one.state}: {one.why}" for one in outcomes}
    peer = request.client.host if request.client is not None else ""
    account = {"account": request.user.display_name} if request.user.display_name else {}
    told = {"outcome": states} if states else {}
    console_of(request).log.warning("console_change", act=act, **fields, **told, **account, peer=peer)
