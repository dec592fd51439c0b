"""`lockstep topic`: lists, describes and creates topics."""

from collections.abc import Iterable
from typing import Any

from lockstep.cli.lookup import check_brokers
from lockstep.cli.output import CliError, OutputFormat, StderrLog, counted, date_time, note, print_rows
from lockstep.client.admin.at_once import at_once
from lockstep.client.admin.client import AdminClient
from lockstep.client.errors import TopicNotFoundError
from lockstep.protocol.bodies.broker import QueueData, TopicRouteData
from lockstep.protocol.names import check_topic
from lockstep.remoting.texts import known_names

__all__ = ["create_topic", "list_topics", "topic_stats"]


async def list_topics(name_server: str, show_all: bool, output: OutputFormat) -> None:
    """Print the users' topics; `show_all` adds the topics of brokers and groups."""
    rows = []
    async with AdminClient(name_server=name_server, log=StderrLog(verbose=False)) as admin:
        topics = await (admin.topics() if show_all else admin.user_topics())
        for topic, route in zip(topics, await at_once(admin.route, topics), strict=True):
            rows.append({"topic": topic, "queues": _queue_count(route.queue_datas), "brokers": _brokers(route)})
        if not rows:
            await check_brokers(admin)
    print_rows(("topic", "queues", "brokers"), rows, output)


def _queue_count(datas: Iterable[QueueData]) -> int:
    return sum(data.read_queue_nums for data in datas if data.readable)


def _brokers(route: TopicRouteData) -> list[str]:
    return sorted(data.broker_name for data in route.queue_datas)


async def topic_stats(name_server: str, topic: str, output: OutputFormat) -> None:
    """Print the offsets of each queue, and the store times of its first and its last message."""
    check_topic(topic)
    rows: list[dict[str, Any]] = []
    async with AdminClient(name_server=name_server, log=StderrLog(verbose=False)) as admin:
        stats = await admin.topic_stats(topic)
        times_ms = await at_once(admin.earliest_store_time_ms, stats)
        for (queue, offsets), earliest_ms in zip(stats.items(), times_ms, strict=True):
            row = {
                "broker": queue.broker_name,
                "queue_id": queue.queue_id,
                "min_offset": max(offsets.min_offset, 0),
                "max_offset": offsets.max_offset,
                "messages": offsets.max_offset - max(offsets.min_offset, 0),
                "earliest_timestamp": earliest_ms if earliest_ms > 0 else None,
                "last_timestamp": offsets.last_update_timestamp or None,
            }
            rows.append(row)
    if output is not OutputFormat.JSON:
        stamps = ("earliest", "last")
        rows = [row | {name: date_time(row[f"{name}_timestamp"] or 0) for name in stamps} for row in rows]
    print_rows(("broker", "queue_id", "min_offset", "max_offset", "messages", "earliest", "last"), rows, output)


async def create_topic(
    name_server: str, topic: str, queues: int, broker: str | None, message_type: str | None, force: bool
) -> None:
    """Create a topic.

    Raises:
        CliError: It exists with another number of queues, or on some of the brokers: keys would move to other queues.
    """
    check_topic(topic)
    async with AdminClient(name_server=name_server, log=StderrLog(verbose=False)) as admin:
        exists = await _queue_datas(admin, topic)
        known = [data for data in exists if broker in (None, data.broker_name)]
        other = [data for data in known if data.read_queue_nums != queues or data.write_queue_nums != queues]
        if other and not force:
            raise CliError(
                f"topic {topic!r} has {other[0].write_queue_nums} queues on {other[0].broker_name}; another number "
                f"sends keys to other queues, out of order with what is stored there: --force does it"
            )
        names = [data.broker_name for data in await admin.brokers() if broker in (None, data.broker_name)]
        if broker is not None and not names:
            brokers = [data.broker_name for data in await admin.brokers()]
            registered = known_names(broker, brokers, "`lockstep status`", begin="registered are")
            raise CliError(f"no broker {broker!r}; {registered}")
        has_it = sorted(data.broker_name for data in exists)
        new = sorted(set(names) - set(has_it))
        if exists and new and not force:
            raise CliError(
                f"topic {topic!r} is on {', '.join(has_it)} alone; queues on {', '.join(new)} too send keys to other "
                "queues, out of order with what is stored: --force does it"
            )
        await admin.create_topic(topic, queues, broker_name=broker, message_type=message_type)
        kind = f", for {message_type} messages" if message_type else ""
        note(f"topic {topic} has {counted(queues, 'queue')} on {', '.join(names)}{kind}")


async def _queue_datas(admin: AdminClient, topic: str) -> tuple[QueueData, ...]:
    try:
        return (await admin.route(topic)).queue_datas
    except TopicNotFoundError:
        return ()
