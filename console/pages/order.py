"""The page Order: queues and their owners, live; and what happened to them."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lockstep.console.collector import Collector
from lockstep.console.console import console_of
from lockstep.console.model import HISTORY_MS, Handover, Mark, MarkKind, QueueKey, QueueState
from lockstep.console.owners import Owner
from lockstep.console.render import language_of, query_url, render
from lockstep.console.ribbon import axis, legend_shape, ribbon
from lockstep.console.translations.choose import Texts
from lockstep.console.window import Window, window_of
from lockstep.protocol.bodies.client import ProcessQueueInfo
from lockstep.protocol.bodies.locks import LockTableRow
from lockstep.protocol.epochs import counter_of, epoch_text
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import is_retry_topic
from lockstep.remoting.texts import whole_number

__all__ = ["Call", "Lock", "Row", "details", "order_view", "routes"]

ROWS: Final = 200  # of one page
_LAST: Final = 20  # handovers, refusals
_HOUR_MS: Final = 3_600_000
_QUARTER_MS: Final = 900_000
_SHARES: Final = 100


class Lock(NamedTuple):
    """The lock of a queue at this moment.

    Args:
        epoch: Its counter; None without fenced locks. `epoch_full` has the broker's start before it.
        left_ms: Negative: it expired so long ago.
        share: How much of its life is left, 0 to 100.
    """

    owner: Owner
    epoch: str | None
    epoch_full: str
    held_ms: int
    left_ms: int
    life_ms: int
    share: int
    is_draining: bool
    waiting_count: int


class Call(NamedTuple):
    """What an owner's listener handles. `messages_count` 0: nothing."""

    messages_count: int
    offset: int
    since_ms: int


@dataclass(slots=True)
class Row:
    """
    Args:
        lock: None: no client owns the queue.
        call: None: the owner does not say.
        lag, oldest_ms: None: not known.
        stale_ms: The broker has gone: its rows are as they were then.
    """

    group: str
    queue: MessageQueue
    lock: Lock | None
    call: Call | None
    lag: int | None
    oldest_ms: int | None
    flaps_count: int
    claims: tuple[str, ...]
    stale_ms: int | None
    ribbon: Markup
    address: str


def order_view(
    collector: Collector,
    now_ms: int,
    texts: Texts,
    *,
    group: str = "",
    topic: str = "",
    page: int = 1,
    minutes: int = 15,
    is_snapshot: bool = False,
) -> dict[str, Any]:
    """What order.html shows.

    Args:
        group, topic: Only these; empty: all.
        page: From 1; a page has 200 rows.
        minutes: What the ribbons show, one of RANGES.
        is_snapshot: Marks lead to a place in the same file.
    """
    keys = sorted(
        (key for key in _keys(collector) if group in ("", key[0]) and topic in ("", key[1].topic)), key=_place_of
    )
    pages = max((len(keys) + ROWS - 1) // ROWS, 1)
    page = min(max(page, 1), pages)
    shown = keys[(page - 1) * ROWS : page * ROWS]
    window = Window(now_ms, minutes)
    rows = [_row(collector, key, window, texts, is_snapshot=is_snapshot) for key in shown]
    handovers = [one for one in collector.handovers if group in ("", one.group) and topic in ("", one.queue.topic)]
    refusals = [one for one in collector.refusals if group in ("", one[0][0]) and topic in ("", one[0][1].topic)]
    return {
        "rows": rows,
        "owners": _owners(rows),
        "several_groups": len({key[0] for key in keys}) > 1,
        "queues_count": len(keys),
        "page_number": page,
        "pages_count": pages,
        "first": (page - 1) * ROWS + 1,
        "last": (page - 1) * ROWS + len(rows),
        "group": group,
        "topic": topic,
        "all_groups": sorted({key[0] for key in collector.queues} | set(collector.groups)),
        "all_topics": sorted({key[1].topic for key in collector.queues}),
        "figures": _figures(collector, keys, handovers, now_ms),
        "handovers": [_handover(collector, one) for one in reversed(handovers[-_LAST:])],
        "refusals": [_refusal(collector, *one) for one in reversed(refusals[-_LAST:])],
        "fences": _fences(collector),
        "apaches": [state.name for state in collector.brokers() if state.is_lockstep is False],
        "window": window,
        "axis": axis(window, texts),
        "shapes": {kind: legend_shape(kind) for kind in MarkKind},
        "times": [_events(collector, key, now_ms) for key in shown] if is_snapshot else [],
    }


def _place_of(key: QueueKey) -> tuple[str, bool, MessageQueue]:
    """By group, retry topics last."""
    return key[0], is_retry_topic(key[1].topic), key[1]


def _keys(collector: Collector) -> Iterable[QueueKey]:
    """Queues of which a lock was seen, and those without an owner of groups that have locks."""
    ordered = {group for group, _ in collector.queues}
    found = dict.fromkeys(collector.queues)
    for name, state in collector.groups.items():
        if name in ordered:
            found |= dict.fromkeys((name, queue) for queue in state.reading.offsets if not is_retry_topic(queue.topic))
    return found


# Rows --------------------------------------------------------------------------------------------------------


def _row(collector: Collector, key: QueueKey, window: Window, texts: Texts, *, is_snapshot: bool) -> Row:
    (group, queue), now_ms = key, window.now_ms
    state = collector.queues.get(key) or QueueState()
    gone = collector.broker(queue.broker_name)
    stale_ms = state.row_ms if gone is not None and gone.gone_ms is not None else None
    lock_row = collector.row_of(key)
    lock = _lock(collector, lock_row, (now_ms if stale_ms is None else stale_ms) - state.row_ms) if lock_row else None
    known = collector.groups.get(group)
    offsets = known.reading.offsets.get(queue) if known else None
    info = known.reading.infos.get(lock_row.client_id) if known and lock_row else None
    address = f"#{_place(key)}" if is_snapshot else _address(key)

    def address_of(mark: Mark) -> str:
        return address if is_snapshot else f"{address}&at={mark.at_ms}"

    return Row(
        group=group,
        queue=queue,
        lock=lock,
        call=_call(info.mq_table.get(queue), now_ms) if info is not None else None,
        lag=offsets.lag if offsets else None,
        oldest_ms=max(now_ms - offsets.oldest_timestamp, 0) if offsets and offsets.oldest_timestamp else None,
        flaps_count=sum(at_ms >= now_ms - _HOUR_MS for at_ms in state.flaps_ms),
        claims=state.claims,
        stale_ms=stale_ms,
        ribbon=ribbon(state.spans, state.marks, window, partial(collector.owner, group), address_of, texts),
        address=address,
    )


def _lock(collector: Collector, row: LockTableRow, since_ms: int) -> Lock:
    """`since_ms`: how long ago the row was read."""
    life_ms = max(row.age_ms + row.remaining_ms, 1)
    left_ms = max(row.remaining_ms - since_ms, 0) if row.is_held else row.remaining_ms - since_ms
    return Lock(
        owner=collector.owner(row.consumer_group, row.client_id),
        epoch=None if row.epoch is None else str(counter_of(row.epoch)),
        epoch_full="" if row.epoch is None else epoch_text(row.epoch),
        held_ms=row.held_ms + since_ms,
        left_ms=left_ms,
        life_ms=life_ms,
        share=min(max(left_ms, 0) * _SHARES // life_ms, _SHARES),
        is_draining=bool(row.draining),
        waiting_count=row.waiting_count or 0,
    )


def _call(info: ProcessQueueInfo | None, now_ms: int) -> Call:
    if info is None or not info.transaction_msg_count:
        return Call(0, 0, 0)
    since_ms = max(now_ms - info.last_consume_timestamp, 0)
    return Call(info.transaction_msg_count, info.transaction_msg_min_offset, since_ms)


def _owners(rows: Iterable[Row]) -> list[tuple[str, Owner, int]]:
    """Group, owner, and how many of these queues it owns; sorted."""
    counts: dict[tuple[str, Owner], int] = {}
    for row in rows:
        if row.lock is not None and row.lock.left_ms >= 0:
            key = (row.group, row.lock.owner)
            counts[key] = counts.get(key, 0) + 1
    return sorted((group, owner, count) for (group, owner), count in counts.items())


# Figures, lists ----------------------------------------------------------------------------------------------


def _figures(
    collector: Collector, keys: Iterable[QueueKey], handovers: Iterable[Handover], now_ms: int
) -> dict[str, int | None]:
    """Key of a text -> its number; None: the brokers do not say."""
    held = free = draining = flaps = lag = 0
    for key in keys:
        row, state = collector.row_of(key), collector.queues.get(key)
        is_held = row is not None and row.is_held
        held, free = held + is_held, free + (not is_held)
        draining += bool(row is not None and row.draining)
        flaps += sum(at_ms >= now_ms - _HOUR_MS for at_ms in state.flaps_ms) if state else 0
        known = collector.groups.get(key[0])
        offsets = known.reading.offsets.get(key[1]) if known else None
        lag += offsets.lag if offsets else 0
    refused = [state.refused_count for state in collector.brokers() if state.refused_count is not None]
    fenced = [sum(state.fenced_counts.values()) for state in collector.brokers() if state.fenced_counts is not None]
    return {
        "order.held": held,
        "order.free": free,
        "order.draining": draining,
        "order.lag": lag,
        "order.handovers_15": sum(one.at_ms >= now_ms - _QUARTER_MS for one in handovers),
        "order.flaps": flaps,
        "order.refused": sum(refused) if refused else None,
        "order.fenced": sum(fenced) if fenced else None,
    }


def _handover(collector: Collector, one: Handover) -> dict[str, Any]:
    epoch = "" if one.epoch is None else str(counter_of(one.epoch))
    pair = {"old": collector.owner(one.group, one.old), "new": collector.owner(one.group, one.new)}
    return {**one._asdict(), **pair, "epoch": epoch}


def _refusal(collector: Collector, key: QueueKey, mark: Mark) -> dict[str, Any]:
    owner, asking = [collector.owner(key[0], client_id) if client_id else None for client_id in (mark.old, mark.new)]
    return {"at_ms": mark.at_ms, "group": key[0], "queue": key[1], "asking": asking, "owner": owner}


def _fences(collector: Collector) -> list[tuple[str, str, int]] | None:
    """Broker, request and reason, count; None: no broker has fenced locks."""
    fenced = [(state.name, state.fenced_counts) for state in collector.brokers() if state.fenced_counts is not None]
    if not fenced:
        return None
    return [(name, request, count) for name, counts in fenced for request, count in sorted(counts.items())]


# Details of a queue ------------------------------------------------------------------------------------------


def _address(key: QueueKey) -> str:
    group, queue = key
    about = {"group": group, "topic": queue.topic, "broker": queue.broker_name, "queue": queue.queue_id}
    return query_url("/order/queue", about)


def _place(key: QueueKey) -> str:
    return f"{key[0]}-{key[1]}"


def _events(collector: Collector, key: QueueKey, now_ms: int) -> dict[str, Any]:
    state = collector.queues.get(key) or QueueState()

    def owner(client_id: str | None) -> Owner | None:
        return collector.owner(key[0], client_id) if client_id else None

    events = [
        mark._asdict()
        | {
            "old": owner(mark.old),
            "new": owner(mark.new),
            "epoch": "" if mark.epoch is None else str(counter_of(mark.epoch)),
        }
        for mark in reversed(state.marks)
        if mark.at_ms >= now_ms - HISTORY_MS
    ]
    return {"group": key[0], "queue": key[1], "place": _place(key), "events": events}


def details(collector: Collector, key: QueueKey, now_ms: int) -> dict[str, Any] | None:
    """What queue.html shows; None: nothing is known of the queue."""
    if key not in collector.queues and key not in dict.fromkeys(_keys(collector)):
        return None
    return _events(collector, key, now_ms) | {"shapes": {kind: legend_shape(kind) for kind in MarkKind}}


# Routes ------------------------------------------------------------------------------------------------------


async def _page(request: Request) -> Response:
    console, query = console_of(request), request.query_params
    view = order_view(
        console.collector,
        console.runtime.now_ms(),
        Texts(language_of(request)),
        group=query.get("group", ""),
        topic=query.get("topic", ""),
        page=whole_number(query.get("page", "1")) or 0,
        minutes=window_of(query, 0).minutes,
    )
    return render(request, "order.html", page="order", is_live=True, **view)


async def _queue_page(request: Request) -> Response:
    console, query = console_of(request), request.query_params
    queue = MessageQueue(query.get("topic", ""), query.get("broker", ""), whole_number(query.get("queue", "")) or 0)
    view = details(console.collector, (query.get("group", ""), queue), console.runtime.now_ms())
    if view is None:
        raise HTTPException(404)
    return render(request, "queue.html", page="order", at_ms=whole_number(query.get("at", "")) or 0, **view)


def routes() -> list[Route]:
    return [Route("/", _page), Route("/order/queue", _queue_page)]
