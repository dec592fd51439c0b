"""The pages of topics: all of them, and one with its queues and the groups that consume it."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lockstep.client.errors import TopicNotFoundError
from lockstep.console.chart import flow_charts
from lockstep.console.collector import Collector
from lockstep.console.console import Console, console_of
from lockstep.console.pages.parameters import Rows, rows_of, text_of
from lockstep.console.pages.questions import answers_of
from lockstep.console.render import language_of, render
from lockstep.console.translations.choose import Texts
from lockstep.console.window import window_of
from lockstep.protocol.bodies.admin import TopicOffset
from lockstep.protocol.bodies.broker import TopicRouteData
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import check_topic

__all__ = ["ConsumerRow", "StoredRow", "TopicRow", "consumer_rows", "routes", "stored_rows", "topic_row"]

_SIZE_MS: Final = 30_000  # a size is shown for so long
_SIZED_QUEUES: Final = 64  # of a topic that are asked for sizes
_SIZES_KEPT: Final = 256  # topics


class TopicRow(NamedTuple):
    """`queues_count`: that can be read; None: the name server gave no route. `groups`: those that were seen."""

    name: str
    queues_count: int | None
    brokers: tuple[str, ...]
    groups: tuple[str, ...]


class StoredRow(NamedTuple):
    """A queue: the offsets that it has, and when its last message was stored; 0: it has none."""

    queue: MessageQueue
    first: int
    end: int
    stored: int
    last_ms: int


class ConsumerRow(NamedTuple):
    """A group that has offsets of the topic."""

    group: str
    members_count: int
    queues_count: int
    lag: int


def topic_row(name: str, route: TopicRouteData | None, collector: Collector) -> TopicRow:
    groups = tuple(row.group for row in consumer_rows(name, collector))
    if route is None:
        return TopicRow(name, None, (), groups)
    brokers = tuple(sorted(data.broker_name for data in route.queue_datas))
    return TopicRow(name, len(route.readable_queues(name)), brokers, groups)


def consumer_rows(topic: str, collector: Collector) -> list[ConsumerRow]:
    """The groups that were seen with the topic, sorted."""
    rows = []
    for name in sorted(collector.groups):
        reading = collector.groups[name].reading
        lags = [of.lag for q, of in reading.offsets.items() if q.topic == topic]
        if lags or topic in reading.topics:
            count = len(reading.members.connection_set) if reading.members is not None else 0
            rows.append(ConsumerRow(name, count, len(lags), sum(lags)))
    return rows


def stored_rows(stats: Mapping[MessageQueue, TopicOffset]) -> list[StoredRow]:
    """The queues of a topic, sorted."""
    rows = []
    for queue, of in sorted(stats.items()):
        first = max(of.min_offset, 0)
        rows.append(StoredRow(queue, first, of.max_offset, of.message_count, of.last_update_timestamp))
    return rows


async def _bytes_of(console: Console, topic: str, rows: Sequence[StoredRow]) -> int | None:
    """About how many bytes a topic takes, kept a while: its page asks again and again. None: a broker does not say."""
    now_ms, kept = console.runtime.now_ms(), console.sizes
    known = kept.get(topic)
    if known is None or now_ms - known[0] >= _SIZE_MS:
        admin, filled = console.admin, [row for row in rows if row.stored]
        asked = filled[:_SIZED_QUEUES]  # those of the others are as large, on the mean
        sizes = await answers_of([admin.stored_bytes(row.queue, row.first, row.end) for row in asked])
        found = [size for size in sizes if size is not None]
        messages = sum(row.stored for row in asked)
        share = sum(row.stored for row in filled) / messages if messages else 1.0
        known = now_ms, round(sum(found) * share) if len(found) == len(sizes) else None
        kept.pop(topic, None)
        kept[topic] = known
        if len(kept) > _SIZES_KEPT:
            del kept[next(iter(kept))]
    return known[1]


async def _topics(request: Request) -> Response:
    console = console_of(request)
    part, is_all = text_of(request.query_params, "q"), text_of(request.query_params, "all") == "1"
    found = await (console.admin.topics() if is_all else console.admin.user_topics())
    names = rows_of(request, [name for name in found if part.lower() in name.lower()])
    known = await answers_of([console.admin.route(name) for name in names.rows])
    rows = [topic_row(name, route, console.collector) for name, route in zip(names.rows, known, strict=True)]
    return render(request, "topics.html", page="topics", rows=Rows(rows, *names[1:]), part=part, is_all=is_all)


async def _topic(request: Request) -> Response:
    console, topic = console_of(request), text_of(request.query_params, "topic")
    check_topic(topic)
    admin = console.tolerant_admin()
    try:
        stats = await admin.topic_stats(topic)
    except TopicNotFoundError:
        return render(request, "topic_unknown.html", page="topics", status=404, topic=topic)
    rows = stored_rows(stats)
    total = sum(row.stored for row in rows)
    groups = consumer_rows(topic, console.collector)
    now_ms, left_out = console.runtime.now_ms(), console.left_out(admin)
    flows = console.collector.flows
    flows.topics_end({row.queue: row.end for row in rows}, now_ms, is_whole=not left_out)
    window = window_of(request.query_params, now_ms)
    charts = flow_charts(flows.topics.get(topic), window, Texts(language_of(request)), is_read=bool(groups))
    return render(
        request, "topic.html", page="topics", is_live=True, topic=topic, rows=rows_of(request, rows, 200), total=total,
        groups=groups, left_out=left_out, size=await _bytes_of(console, topic, rows), window=window, charts=charts,
    )  # fmt: skip


def routes() -> list[Route]:
    return [Route("/topics", _topics), Route("/topic", _topic)]
