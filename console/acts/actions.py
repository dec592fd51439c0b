"""Two changes of a group at work, each after a page that asks: reset offsets, and release a fenced lock."""

from collections.abc import Mapping, Sequence
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lockstep.client.admin.client import AdminClient
from lockstep.client.admin.offset_moves import Target
from lockstep.console.acts import resets
from lockstep.console.acts.changes import checked_form, log_change
from lockstep.console.acts.resets import Done, ResetPlan, planned, reset, route_of
from lockstep.console.console import Console, console_of
from lockstep.console.pages.parameters import moment_ms, queue_of, text_of
from lockstep.console.render import render
from lockstep.protocol.bodies.locks import LockTableRow
from lockstep.protocol.epochs import epoch_text, parse_epoch
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import check_group, check_topic

__all__ = ["routes", "target_of"]

_ENDS_MS: Final = {"earliest": 0, "latest": -1}  # as planned_move has them


# Reset offsets -----------------------------------------------------------------------------------------------


def target_of(values: Mapping[str, str]) -> Target | None:
    """Where the offsets shall go; None: the reader has not said it yet. Raises LocalProtocolError, HTTPException."""
    group, topic, to = text_of(values, "group"), text_of(values, "topic"), text_of(values, "to")
    check_group(group)
    check_topic(topic)
    if not to:
        return None
    to_ms = _ENDS_MS.get(to)
    if to == "time":
        to_ms = moment_ms(text_of(values, "at"))
    if to_ms is None:
        raise HTTPException(400, "give a date and time such as 2026-01-31T12:00, in UTC, or epoch milliseconds")
    return Target(group, topic, to_ms, force=text_of(values, "force") == "1")


async def _ask_reset(request: Request) -> Response:
    admin, values = console_of(request).admin, request.query_params
    target = target_of(values)
    if target is None:
        await route_of(admin, text_of(values, "topic"))  # a form that cannot work is not shown
        return _reset_page(request, values, None)
    plans, online = await planned(admin, target)
    return _reset_page(request, values, plans, online=online)


async def _reset(request: Request) -> Response:
    admin, form = console_of(request).admin, await checked_form(request)
    target = target_of(form)
    if target is None:
        raise HTTPException(400, "the form does not say where the offsets go")
    plans, _ = await planned(admin, target)
    done = await reset(admin, target, plans)
    told = {part.name: part.state for part in done}
    log_change(request, "reset", group=target.group, topic=target.topic, to_ms=target.to_ms, outcome=told)
    return _reset_page(request, form, done, is_done=True)


def _reset_page(
    request: Request,
    values: Mapping[str, str],
    parts: Sequence[ResetPlan | Done] | None,
    *,
    online: bool = False,
    is_done: bool = False,
) -> Response:
    """`parts`: of each broker; None: the reader has not said where the offsets go."""
    return render(
        request, "reset.html", page="groups", values=dict(values), parts=parts, online=online, is_done=is_done,
        moves=[move for part in parts or () for move in part.moves], patience_s=f"{resets.PATIENCE_S:g}",
    )  # fmt: skip


# Release a lock ----------------------------------------------------------------------------------------------


async def _lock_of(console: Console, group: str, queue: MessageQueue) -> LockTableRow | None:
    broker = next((one for one in await console.admin.brokers() if one.broker_name == queue.broker_name), None)
    if broker is None:
        raise HTTPException(404)
    rows = await console.admin.at(broker).list_locks(group)
    return next((row for row in rows if row.queue == queue and row.is_held), None)


async def _ask_release(request: Request) -> Response:
    values = request.query_params
    group, queue = text_of(values, "group"), queue_of(values)
    check_group(group)
    row = await _lock_of(console_of(request), group, queue)
    return _release_page(request, group, queue, row, done=False)


async def _release(request: Request) -> Response:
    console, form = console_of(request), await checked_form(request)
    group, queue, owner = text_of(form, "group"), queue_of(form), text_of(form, "owner")
    check_group(group)
    try:
        epoch = parse_epoch(text_of(form, "epoch"))
    except ValueError as error:
        raise HTTPException(400, str(error)) from None
    asked = LockTableRow(group, queue, owner, 0, 0, 0, epoch)
    async with AdminClient(**console.access, runtime=console.runtime) as own:
        await own.release_lock(asked)
    log_change(request, "release", group=group, queue=str(queue), owner=owner, epoch=text_of(form, "epoch"))
    return _release_page(request, group, queue, await _lock_of(console, group, queue), done=True, asked=asked)


def _release_page(
    request: Request,
    group: str,
    queue: MessageQueue,
    row: LockTableRow | None,
    *,
    done: bool,
    asked: LockTableRow | None = None,
) -> Response:
    state = "ask"
    if done:
        assert asked is not None
        state = "kept" if row is not None and row.epoch == asked.epoch else "released"
    elif row is None:
        state = "free"
    elif row.epoch is None:
        state = "no_fence"
    epoch = epoch_text(row.epoch) if row is not None and row.epoch is not None else ""
    return render(request, "release.html", page="groups", group=group, queue=queue, row=row, epoch=epoch, state=state)


def routes() -> list[Route]:
    return [
        Route("/reset", _ask_reset),
        Route("/reset", _reset, methods=["POST"]),
        Route("/release", _ask_release),
        Route("/release", _release, methods=["POST"]),
    ]
