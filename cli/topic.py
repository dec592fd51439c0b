"""`lockstep topic`: lists, describes, creates and deletes topics."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from lockstep.cli.confirm import asks, confirm
from lockstep.cli.lookup import check_brokers
from lockstep.cli.output import (
    CliError,
    OutputFormat,
    StderrLog,
    counted,
    date_time,
    json_line,
    note,
    print_rows,
    write_out,
)
from lockstep.client.admin.at_once import at_once
from lockstep.client.admin.client import AdminClient
from lockstep.client.admin.removal import groups_with_kept_offsets, online_consumers
from lockstep.client.errors import TopicNotFoundError
from lockstep.protocol.bodies.broker import QueueData, TopicConfig, TopicRouteData
from lockstep.protocol.codes import Permission
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import check_topic
from lockstep.remoting.texts import known_names

__all__ = ["create_topic", "delete_topic", "describe_topic", "list_topics", "topic_stats"]

_BROKERS = (
    "broker",
    "type",
    "read_queues",
    "write_queues",
    "permissions",
    "messages",
    "bytes",
    "earliest",
    "last",
    "attributes",
)


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
    async with AdminClient(name_server=name_server, log=StderrLog(verbose=False)) as admin:
        rows = await _queue_rows(admin, topic)
    if output is not OutputFormat.JSON:
        rows = [_with_dates(row) for row in rows]
    print_rows(("broker", "queue_id", "min_offset", "max_offset", "messages", "earliest", "last"), rows, output)


async def _queue_rows(admin: AdminClient, topic: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    stats = await admin.topic_stats(topic)
    times_ms = await at_once(admin.earliest_store_time_ms, stats)
    for (queue, offsets), earliest_ms in zip(stats.items(), times_ms, strict=True):
        row = {
            "broker": queue.broker_name,
            "queue_id": queue.queue_id,
            "min_offset": max(offsets.min_offset, 0),
            "max_offset": offsets.max_offset,
            "messages": offsets.message_count,
            "earliest_timestamp": earliest_ms if earliest_ms > 0 else None,
            "last_timestamp": offsets.last_update_timestamp or None,
        }
        rows.append(row)
    return rows


def _with_dates(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, **{name: date_time(row[f"{name}_timestamp"] or 0) for name in ("earliest", "last")}}


# describe ----------------------------------------------------------------------------------------------------


async def describe_topic(name_server: str, topic: str, output: OutputFormat) -> None:
    """Print what each broker has of a topic, and the groups that consume it. Raises TopicNotFoundError."""
    check_topic(topic)
    async with AdminClient(name_server=name_server, log=StderrLog(verbose=False)) as admin:
        configs, queues = await admin.topic_configs(topic), await _queue_rows(admin, topic)
        sizes = await at_once(partial(_bytes, admin, topic), queues)
        queues = [row | {"bytes": size} for row, size in zip(queues, sizes, strict=True)]
        names = await admin.groups_of(topic)
        groups = await at_once(partial(_group_row, admin, topic), names)
    brokers = [_broker_row(name, config, queues) for name, config in configs.items()]
    described = {"topic": topic, **_sums(queues), "brokers": brokers, "groups": groups}
    if output is OutputFormat.JSON:
        write_out(json_line(described).encode("utf-8", "replace") + b"\n")
        return
    total = dict.fromkeys(_BROKERS) | _with_dates(_sums(queues)) | {"broker": "total"}
    print_rows(_BROKERS, [*map(_broker_texts, brokers), total], output)
    if not groups:
        note(f"no group consumes topic {topic}")
        return
    write_out(b"\n")
    print_rows(("group", "members", "lag"), groups, output)


async def _bytes(admin: AdminClient, topic: str, row: Mapping[str, Any]) -> int | None:
    queue = MessageQueue(topic, row["broker"], row["queue_id"])
    return await admin.stored_bytes(queue, row["min_offset"], row["max_offset"])


def _broker_row(name: str, config: TopicConfig, queues: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "broker": name,
        # Brokers of RocketMQ 4 have no types.
        "type": config.message_type if config.attributes else None,
        "read_queues": config.read_queue_nums,
        "write_queues": config.write_queue_nums,
        "permissions": [str(one.name).lower() for one in Permission if one & config.perm],
        **_sums([row for row in queues if row["broker"] == name]),
        "attributes": dict(config.attributes),
    }


def _broker_texts(row: Mapping[str, Any]) -> dict[str, Any]:
    attributes = [f"{name}={value}" for name, value in row["attributes"].items()]
    return _with_dates(row) | {"permissions": row["permissions"] or None, "attributes": attributes or None}


def _sums(queues: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "messages": sum(row["messages"] for row in queues),
        # By the newest messages; None: a broker does not say sizes.
        "bytes": None if any(row["bytes"] is None for row in queues) else sum(row["bytes"] for row in queues),
        "earliest_timestamp": min(
            (row["earliest_timestamp"] for row in queues if row["earliest_timestamp"]), default=None
        ),
        "last_timestamp": max((row["last_timestamp"] for row in queues if row["last_timestamp"]), default=None),
    }


async def _group_row(admin: AdminClient, topic: str, group: str) -> dict[str, Any]:
    """A group that the brokers have no progress of, such as one that only subscribes, has no lag."""
    members, progress = await admin.consumer_ids(group), await admin.progress(group, topic)
    lags = [of.lag for queue, of in progress.offsets.items() if queue.topic == topic]
    return {"group": group, "members": len(members), "lag": sum(lags) if lags else None}


# create ------------------------------------------------------------------------------------------------------


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


# delete ------------------------------------------------------------------------------------------------------


async def delete_topic(name_server: str, topic: str, yes: bool) -> None:
    """Delete a topic on all brokers, with its messages and the offsets that groups have of it.

    Raises CliError when members that are online consume it.
    """
    check_topic(topic)
    async with AdminClient(name_server=name_server, log=StderrLog(verbose=False)) as admin:
        groups = await admin.groups_of(topic)
        for group, ids in (await online_consumers(admin, topic, groups)).items():
            raise CliError(f"group {group!r} consumes topic {topic!r} with {', '.join(ids)}: stop its members first")
        stats = (await admin.topic_stats(topic)).values()
        messages = counted(sum(of.message_count for of in stats), "message")
        if asks(yes):
            offsets = f" and offsets of {', '.join(groups)}" if groups else ""
            await confirm(f"topic {topic} has {messages}{offsets}; delete it?")
        await admin.delete_topic(topic)
        kept = await groups_with_kept_offsets(admin, topic)
    gone = [group for group in groups if group not in kept]
    note(f"topic {topic} is deleted with {messages}{' and the offsets of ' + ', '.join(gone) if gone else ''}")
    if kept:
        note(
            f"a broker of RocketMQ 4 keeps the offsets of {', '.join(kept)}: when there is a topic of this name again, "
            "`lockstep offset reset` puts them back to its first message"
        )
