"""The pages of topics: all of them, and one with its queues and the groups that consume it."""

from collections.abc import Mapping
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lockstep.client.errors import TopicNotFoundError
from lockstep.console.collector import Collector
from lockstep.console.console import console_of
from lockstep.console.pages.parameters import Rows, rows_of, text_of
from lockstep.console.pages.questions import answers_of
from lockstep.console.render import render
from lockstep.protocol.bodies.admin import TopicOffset
from lockstep.protocol.bodies.broker import TopicRouteData
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import check_topic

__all__ = ["ConsumerRow", "StoredRow", "TopicRow", "consumer_rows", "routes", "stored_rows", "topic_row"]


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
        rows.append(StoredRow(queue, first, of.max_offset, of.max_offset - first, of.last_update_timestamp))
    return rows


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
    return render(
        request, "topic.html", page="topics", is_live=True, topic=topic, rows=rows_of(request, rows, 200), total=total,
        groups=groups, left_out=console.left_out(admin),
    )  # fmt: skip


def routes() -> list[Route]:
    return [Route("/topics", _topics), Route("/topic", _topic)]
