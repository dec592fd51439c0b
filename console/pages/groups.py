"""The pages of consumer groups: all of them, and one with its members, queues, lag and why each share is as it is."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lockstep.client.diagnosis.why import Group, why_rows
from lockstep.console.chart import flow_charts, queue_charts
from lockstep.console.collector import Collector
from lockstep.console.console import console_of
from lockstep.console.model import GroupReading
from lockstep.console.pages.neighbours import message_url
from lockstep.console.pages.parameters import rows_of, text_of
from lockstep.console.pages.questions import dead_letters, deliveries, group_config
from lockstep.console.render import language_of, render
from lockstep.console.translations.choose import Texts
from lockstep.console.window import window_of
from lockstep.protocol.bodies.client import Connection, ConsumerRunningInfo
from lockstep.protocol.bodies.heartbeat import ConsumeType
from lockstep.protocol.bodies.locks import LockTableRow
from lockstep.protocol.bodies.pop import DeliveryTableBody
from lockstep.protocol.epochs import epoch_text
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import is_retry_topic, retry_topic
from lockstep.protocol.versions import version_name
from lockstep.remoting.texts import whole_number

__all__ = [
    "GroupRow",
    "MemberRow",
    "QueueRow",
    "group_rows",
    "member_rows",
    "queue_rows",
    "routes",
]

_GRPC: Final = {"PUSH_CONSUMER": "push", "SIMPLE_CONSUMER": "simple"}
_QUEUES: Final = 200  # on one page
_SHARE: Final = 32  # queues of a member that are named beside each of them


class GroupRow(NamedTuple):
    """`order`: "orderly", "concurrent", "mixed", "pull", "offline" or "unknown"."""

    name: str
    members_count: int
    order: str
    topics: tuple[str, ...]
    lag: int
    retry_lag: int
    consume_tps: float


class MemberRow(NamedTuple):
    """
    Args:
        order: As in GroupRow.
        share: How many queues it reports.
        started_ms: Epoch ms.
        grpc: What a client of gRPC is: "push", "simple" or "other".

    None: it does not say; a member that pops has no share.
    """

    client_id: str
    address: str
    language: str
    version: str
    order: str
    grpc: str | None = None
    strategy: str | None = None
    share: int | None = None
    threads: int | None = None
    started_ms: int | None = None
    ok_tps: float | None = None
    failed_tps: float | None = None


class QueueRow(NamedTuple):
    """
    Args:
        owners: The holder of the lock, or the members that report the queue.
        epoch: Of a fenced lock; None: it cannot be released.
        committed, end, lag: None before the group has committed an offset of the topic to the broker.
        why: What the members' last rebalances did with it, that of the owner first.
    """

    queue: MessageQueue
    owners: tuple[str, ...]
    epoch: str | None
    committed: int | None
    end: int | None
    lag: int | None
    last_ms: int
    why: Sequence[Mapping[str, Any]]


def group_rows(collector: Collector, part: str = "") -> list[GroupRow]:
    """The groups whose names contain `part`, sorted."""
    names = sorted(name for name in collector.groups if part.lower() in name.lower())
    return [_group_row(collector.groups[name].reading) for name in names]


def _group_row(reading: GroupReading) -> GroupRow:
    lag, retry_lag = _lags(reading)
    topics = tuple(topic for topic in reading.topics if not is_retry_topic(topic))
    count = len(reading.members.connection_set) if reading.members is not None else 0
    return GroupRow(reading.name, count, _order_of_group(reading), topics, lag, retry_lag, reading.consume_tps)


def _lags(reading: GroupReading) -> tuple[int, int]:
    """Messages that wait in the topics, and in the retry topic."""
    lags = [0, 0]
    for queue, of in reading.offsets.items():
        lags[queue.topic == retry_topic(reading.name)] += of.lag
    return lags[0], lags[1]


def _order_of_group(reading: GroupReading) -> str:
    if reading.members is None:
        return "offline"
    pops = any(info.pops for info in reading.infos.values())
    if reading.members.consume_type is ConsumeType.CONSUME_ACTIVELY and not pops:
        return "pull"
    orders = {_order_of(info) for info in reading.infos.values()} - {"unknown"}
    return "mixed" if len(orders) > 1 else next(iter(orders), "unknown")


def _order_of(info: ConsumerRunningInfo | None) -> str:
    orderly = info.orderly if info is not None else None
    return {None: "unknown", True: "orderly", False: "concurrent"}[orderly]


# One group ---------------------------------------------------------------------------------------------------


def member_rows(reading: GroupReading) -> list[MemberRow]:
    """The members that are online, sorted by client id."""
    connections = reading.members.connection_set if reading.members is not None else ()
    rows = [_member_row(one, reading.infos.get(one.client_id)) for one in connections]
    return sorted(rows, key=lambda row: (row.client_id, row.address))


def _member_row(connection: Connection, info: ConsumerRunningInfo | None) -> MemberRow:
    version, language = version_name(connection.version), connection.language.name
    place = (connection.client_id, connection.client_addr, language, version)
    kind = connection.client_type
    row = MemberRow(*place, _order_of(info), None if kind is None else _GRPC.get(kind, "other"))
    if info is None:
        return row
    properties, statuses = info.properties, info.status_table.values()
    row = row._replace(started_ms=whole_number(properties.get("PROP_CONSUMER_START_TIMESTAMP", "")))
    if row.grpc is not None:
        return row  # the broker answers for it, and knows no more
    return row._replace(
        strategy=properties.get("allocateMessageQueueStrategy"),
        share=None
        if info.pops
        else sum(not of.dropped and not is_retry_topic(queue.topic) for queue, of in info.mq_table.items()),
        threads=whole_number(properties.get("PROP_THREADPOOL_CORE_SIZE", "")),
        ok_tps=round(sum(status.consume_ok_tps for status in statuses), 2),
        failed_tps=round(sum(status.consume_failed_tps for status in statuses), 2),
    )


def queue_rows(collector: Collector, reading: GroupReading) -> list[QueueRow]:
    """The queues of the group's topics; of an empty retry topic none."""
    offsets = reading.offsets
    held = {queue for info in reading.infos.values() for queue, of in info.mq_table.items() if not of.dropped}
    has_messages = {queue for queue, of in offsets.items() if of.broker_offset}
    shown = sorted(queue for queue in held.union(offsets) if queue in has_messages or not is_retry_topic(queue.topic))
    locks = {queue: row for queue in shown if (row := collector.row_of((reading.name, queue))) is not None}
    why = _why(reading, shown, locks)
    return [_queue_row(reading, queue, locks.get(queue), why.get(queue, [])) for queue in shown]


def _why(
    reading: GroupReading, queues: Sequence[MessageQueue], locks: Mapping[MessageQueue, LockTableRow]
) -> dict[MessageQueue, list[dict[str, Any]]]:
    by_topic: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        by_topic.setdefault(queue.topic, []).append(queue)
    ids = [row.client_id for row in member_rows(reading)]
    why: dict[MessageQueue, list[dict[str, Any]]] = {}
    for row in why_rows(Group(reading.name, ids, reading.infos, by_topic, locks)):
        why.setdefault(MessageQueue(row["topic"], row["broker"], row["queue_id"]), []).append(row)
    return why


def _queue_row(
    reading: GroupReading, queue: MessageQueue, lock: LockTableRow | None, why: Sequence[Mapping[str, Any]]
) -> QueueRow:
    owners = tuple(
        client_id
        for client_id, info in sorted(reading.infos.items())
        if (held := info.mq_table.get(queue)) is not None and not held.dropped
    )
    epoch = None
    if lock is not None and lock.is_held:
        owners = (lock.client_id,)
        epoch = epoch_text(lock.epoch) if lock.epoch is not None else None
    why = sorted(why, key=lambda row: row["client_id"] not in owners)
    of = reading.offsets.get(queue)
    if of is None:
        return QueueRow(queue, owners, epoch, None, None, None, 0, why)
    return QueueRow(queue, owners, epoch, of.consumer_offset, of.broker_offset, of.lag, of.last_timestamp, why)


def _holders(popped: DeliveryTableBody | None) -> dict[MessageQueue, list[str]]:
    """Who holds deliveries of a queue: a member that pops owns no queue."""
    holders: dict[MessageQueue, dict[str, None]] = {}
    for row in popped.rows if popped is not None else ():
        if row.client_id:
            holders.setdefault(row.queue, {})[row.client_id] = None
    return {queue: list(ids) for queue, ids in holders.items()}


# Routes ------------------------------------------------------------------------------------------------------


async def _groups(request: Request) -> Response:
    part = text_of(request.query_params, "q")
    rows = rows_of(request, group_rows(console_of(request).collector, part))
    return render(request, "groups.html", page="groups", is_live=True, rows=rows, part=part)


async def _group(request: Request) -> Response:
    console = console_of(request)
    name = text_of(request.query_params, "group")
    if not name:
        raise HTTPException(404)
    state = console.collector.groups.get(name)
    if state is None:  # not read yet, or no broker knows it
        return render(request, "group_unknown.html", page="groups", status=404, is_live=True, name=name)
    rows = queue_rows(console.collector, state.reading)
    popped = await deliveries(console, name)
    window, texts = window_of(request.query_params, console.runtime.now_ms()), Texts(language_of(request))
    flow = console.collector.flows.groups.get(name)
    return render(
        request,
        "group.html",
        page="groups",
        is_live=True,
        group=_group_row(state.reading),
        at_ms=state.at_ms,
        members=member_rows(state.reading),
        queues=rows_of(request, rows, _QUEUES),
        topics=sorted({row.queue.topic for row in rows}),
        window=window,
        charts=flow_charts(flow, window, texts),
        queue_charts=queue_charts(flow, window, texts),
        dead_letters=await dead_letters(console, name),
        popped=popped,
        config=await group_config(console, name),
        holders=_holders(popped),
        message_url=message_url,
        deliveries_max=_QUEUES,
        share_max=_SHARE,
        who=partial(console.collector.owner, name),
    )


def routes() -> list[Route]:
    return [Route("/groups", _groups), Route("/group", _group)]
