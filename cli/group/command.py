"""`lockstep group`: lists, describes and deletes consumer groups."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from lockstep.cli.confirm import asks, confirm
from lockstep.cli.group.deliveries import DELIVERIES, delivery_json, delivery_texts
from lockstep.cli.lookup import check_brokers, check_known, topics_of_group
from lockstep.cli.output import (
    CliError,
    OutputFormat,
    StderrLog,
    date_time,
    json_line,
    note,
    print_rows,
    write_out,
)
from lockstep.client.admin.at_once import at_once
from lockstep.client.admin.client import AdminClient, NotLockstepError
from lockstep.client.admin.groups import GroupProgress
from lockstep.client.admin.removal import own_topics
from lockstep.client.diagnosis.why import COLUMNS, Group, why_rows
from lockstep.protocol.bodies.client import Connection, ConsumerConnection, ConsumerRunningInfo, ConsumeStatus
from lockstep.protocol.bodies.heartbeat import ConsumeType, MessageModel
from lockstep.protocol.bodies.locks import LockTableRow
from lockstep.protocol.bodies.pop import DeliveryRow, DeliveryTableBody
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import check_group, check_topic, is_retry_topic
from lockstep.protocol.versions import version_name
from lockstep.remoting.texts import seconds, whole_number

__all__ = ["delete_group", "describe_group", "list_groups"]

_MEMBERS = ("client_id", "address", "language", "version", "consumes", "threads", "since")
_QUEUES = ("topic", "broker", "queue_id", "owner", "committed_offset", "max_offset", "lag", "last_consumed")
_STATISTICS = (
    "client_id",
    "topic",
    "pull_rt",
    "pull_tps",
    "consume_rt",
    "consume_ok_tps",
    "consume_failed_tps",
    "consume_failed_msgs",
)
_GROUPS_AT_ONCE: Final = 16  # a broker waits 10 s for a member that does not answer
_ORDERLY = {"true": "orderly", "false": "concurrently", None: "orderly or not"}


async def list_groups(name_server: str, output: OutputFormat) -> None:
    """Groups that are online or have offsets stored."""
    async with AdminClient(name_server=name_server, log=StderrLog(verbose=False)) as admin:
        rows: list[dict[str, Any]] = []
        groups = await admin.all_groups()
        of_groups = await at_once(partial(_orderly_members, admin), groups, at_most=_GROUPS_AT_ONCE)
        for (group, topics), orderly in zip(groups.items(), of_groups, strict=True):
            topics = [topic for topic in topics if not is_retry_topic(topic)]
            rows.append({"group": group, "members": len(orderly), "orderly": orderly, "topics": topics})
        if not rows:
            await check_brokers(admin)
    if output is OutputFormat.JSON:
        rows = [row | {"orderly": row["orderly"].count(True), "in_order": _in_order(row["orderly"])} for row in rows]
    else:
        rows = [row | {"in_order": _in_order_text(row["orderly"])} for row in rows]
    print_rows(("group", "members", "in_order", "topics"), rows, output)


async def _orderly_members(admin: AdminClient, group: str) -> list[bool | None]:
    """Of each member whether it consumes in order; None: it does not say, as clients of some languages."""
    infos = (await admin.running_infos(group, await admin.consumer_ids(group))).values()
    return [one.orderly if isinstance(one, ConsumerRunningInfo) else None for one in infos]


def _in_order(orderly: Sequence[bool | None]) -> bool | None:
    """Whether all members consume in order; None without members, and when one does not say."""
    if False in orderly:
        return False
    return None if not orderly or None in orderly else True


def _in_order_text(orderly: Sequence[bool | None]) -> str | None:
    """Only a group with nothing but orderly members is in order; None: a dash."""
    if True in orderly and _in_order(orderly) is not True:
        return f"{orderly.count(True)} of {len(orderly)}"
    known = _in_order(orderly)
    return None if known is None else "yes" if known else "no"


# describe ----------------------------------------------------------------------------------------------------


async def describe_group(
    name_server: str, group: str, topic: str | None, output: OutputFormat, *, why: bool = False
) -> None:
    """Print members, queues and the statistics of each member for each topic. Raises CliError for an unknown group.

    An empty retry topic is left out.

    Args:
        why: also print what the members' rebalances did with each queue, and why.
    """
    check_group(group)
    if topic is not None:
        check_topic(topic)
    async with AdminClient(name_server=name_server, log=StderrLog(verbose=False)) as admin:
        topics = [topic] if topic is not None else await topics_of_group(admin, group)
        members = await admin.members(group)
        infos = await _running_infos(admin, group, members)
        progress = await admin.progress(group, topic)
        locks, popped = await _locks(admin, group), await _deliveries(admin, group)
        queues = await _queue_rows(admin, group, topics, _owners(infos, locks), progress)
        routes = {name: (await admin.route(name)).readable_queues(name) for name in topics} if why else {}
    _note_of_gone_owners(members, locks)
    queues = [row for row in queues if row["max_offset"] or row["topic"] == topic or not is_retry_topic(row["topic"])]
    shown = {row["topic"] for row in queues}
    described = {
        "group": group,
        "consume_tps": round(progress.consume_tps, 3),
        "total_lag": sum(row["lag"] or 0 for row in queues),
        "members": _member_rows(members, infos),
        "queues": queues,
        "statistics": [row for row in _statistics_rows(infos) if row["topic"] in shown],
    }
    if popped is not None:
        described["deliveries"] = [delivery_json(row) for row in popped.rows]
        described["answers"] = {"late": popped.late, "stale": popped.stale, "revived": popped.revived}
    if why:
        ids = sorted(connection.client_id for connection in members.connection_set) if members is not None else []
        of = Group(group, ids, infos, {name: routes[name] for name in sorted(shown)}, locks)
        described["rebalance"] = why_rows(of)
    if output is OutputFormat.JSON:
        write_out(json_line(described).encode("utf-8", "replace") + b"\n")
    else:
        _print_tables(described, popped.rows if popped is not None else ())


async def _running_infos(
    admin: AdminClient, group: str, members: ConsumerConnection | None
) -> dict[str, ConsumerRunningInfo]:
    """Running info by client id. A member that gives none is named on stderr and left out."""
    infos: dict[str, ConsumerRunningInfo] = {}
    ids = [connection.client_id for connection in members.connection_set] if members is not None else []
    for client_id, answer in (await admin.running_infos(group, ids)).items():
        if isinstance(answer, ConsumerRunningInfo):
            infos[client_id] = answer
        else:
            note(f"no statistics of {client_id}: {answer}")
    return infos


async def _locks(admin: AdminClient, group: str) -> dict[MessageQueue, LockTableRow]:
    """The lock tables of the brokers, if they list them."""
    try:
        return {row.queue: row for row in await admin.list_locks(group)}
    except NotLockstepError:
        return {}


async def _deliveries(admin: AdminClient, group: str) -> DeliveryTableBody | None:
    """What the group popped, if the brokers list it."""
    try:
        return await admin.list_deliveries(group)
    except NotLockstepError:
        return None


def _note_of_gone_owners(members: ConsumerConnection | None, locks: Mapping[MessageQueue, LockTableRow]) -> None:
    """Say on stderr whose locks keep queues from the group, though it has ended, and for how long."""
    online = {connection.client_id for connection in members.connection_set} if members is not None else set()
    left_ms: dict[str, int] = {}
    for row in locks.values():
        if row.client_id not in online and row.is_held:
            left_ms[row.client_id] = max(left_ms.get(row.client_id, 0), row.remaining_ms)
    for client_id, most_ms in left_ms.items():
        note(f"{client_id} is no member any more and has locks for {seconds(most_ms)} more")


def _owners(
    infos: Mapping[str, ConsumerRunningInfo], locks: Mapping[MessageQueue, LockTableRow]
) -> dict[MessageQueue, list[str]]:
    """Owner by queue: what the members report, and the lock tables where the brokers list them."""
    owners: dict[MessageQueue, list[str]] = {}
    for client_id, info in infos.items():
        for queue, process_queue in info.mq_table.items():
            if not process_queue.dropped:
                owners.setdefault(queue, []).append(client_id)
    return owners | {queue: [row.client_id] for queue, row in locks.items() if row.is_held}


async def _queue_rows(
    admin: AdminClient,
    group: str,
    topics: list[str],
    owners: Mapping[MessageQueue, list[str]],
    progress: GroupProgress,
) -> list[dict[str, Any]]:
    async def ask(queue: MessageQueue) -> tuple[int | None, int]:
        return await admin.consumer_offset(group, queue), await admin.max_offset(queue)

    rows = []
    queues = [queue for name in topics for queue in (await admin.route(name)).readable_queues(name)]
    for queue, (committed, maximum) in zip(queues, await at_once(ask, queues), strict=True):
        known = progress.offsets.get(queue)
        row = {
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queue_id": queue.queue_id,
            "owner": ", ".join(owners.get(queue, [])) or None,
            "committed_offset": committed,
            "max_offset": maximum,
            "lag": None if committed is None else maximum - committed,
            "last_timestamp": known.last_timestamp or None if known is not None else None,
        }
        rows.append(row)
    return rows


def _member_rows(members: ConsumerConnection | None, infos: Mapping[str, ConsumerRunningInfo]) -> list[dict[str, Any]]:
    if members is None:
        return []
    return [_member_row(members, connection, infos.get(connection.client_id)) for connection in members.connection_set]


def _member_row(
    members: ConsumerConnection, connection: Connection, info: ConsumerRunningInfo | None
) -> dict[str, Any]:
    properties = info.properties if info is not None else {}
    threads = properties.get("PROP_THREADPOOL_CORE_SIZE", "")
    started_ms = properties.get("PROP_CONSUMER_START_TIMESTAMP", "")
    return {
        "client_id": connection.client_id,
        "address": connection.client_addr,
        "language": connection.language.name,
        "version": version_name(connection.version),
        "consume_type": members.consume_type.name,
        "message_model": members.message_model.name,
        "consume_from_where": members.consume_from_where.name,
        "orderly": info.orderly if info is not None else None,
        "pops": info.pops if info is not None else None,
        "grpc_client_type": connection.client_type,
        "threads": whole_number(threads),
        "started": whole_number(started_ms),
    }


def _statistics_rows(infos: Mapping[str, ConsumerRunningInfo]) -> list[dict[str, Any]]:
    """Means in ms and rates a second, over the last minute; failures over the last hour."""
    return [
        {"client_id": client_id, "topic": topic, **_status_row(status)}
        for client_id, info in infos.items()
        for topic, status in sorted(info.status_table.items())
    ]


def _status_row(status: ConsumeStatus) -> dict[str, Any]:
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in status._asdict().items()}


def _print_tables(described: Mapping[str, Any], popped: Sequence[DeliveryRow]) -> None:
    members, queues = described["members"], described["queues"]
    if members:
        print_rows(_MEMBERS, [_member_texts(row) for row in members], OutputFormat.TABLE)
        write_out(b"\n")
    else:
        note(f"no member of group {described['group']} is online")
    if members and members[0]["message_model"] == MessageModel.BROADCASTING.name:
        note("each member keeps its own offsets: what is committed is what the brokers know of")
    rows = [row | {"last_consumed": date_time(row["last_timestamp"] or 0)} for row in queues]
    total = dict.fromkeys(_QUEUES) | {"topic": "total", "lag": described["total_lag"]}
    print_rows(_QUEUES, [*rows, total], OutputFormat.TABLE)
    if popped:
        write_out(b"\n")
        print_rows(DELIVERIES, [delivery_texts(row) for row in popped], OutputFormat.TABLE)
    if any(described.get("answers", {}).values()):
        note("of its pops: {late} answers came too late, {stale} were refused, {revived} messages were stored again"
             .format(**described["answers"]))  # fmt: skip
    if described["statistics"]:
        write_out(b"\n")
        print_rows(_STATISTICS, described["statistics"], OutputFormat.TABLE)
    if described.get("rebalance"):
        write_out(b"\n")
        why = [row | {"since": date_time(row["since_ms"] or 0)} for row in described["rebalance"]]
        print_rows(COLUMNS, why, OutputFormat.TABLE)


def _member_texts(row: Mapping[str, Any]) -> dict[str, Any]:
    how = "pulls itself"
    if row["pops"] or row["consume_type"] == ConsumeType.CONSUME_PASSIVELY.name:
        how = _ORDERLY[None if row["orderly"] is None else str(row["orderly"]).lower()]
    if row["pops"]:
        how = f"pops {how}"
    if row["grpc_client_type"]:
        how += f" (gRPC {row['grpc_client_type'].lower().replace('_', ' ')})"
    return {**row, "consumes": f"{how}, {row['message_model'].lower()}", "since": date_time(row["started"] or 0)}


# delete ------------------------------------------------------------------------------------------------------


async def delete_group(name_server: str, group: str, with_topics: bool, yes: bool) -> None:
    """Delete a group's settings and offsets; `with_topics` also its retry and dead-letter topics.

    Raises CliError for an unknown group, and for one that is online: its members would create it again.
    """
    check_group(group)
    async with AdminClient(name_server=name_server, log=StderrLog(verbose=False)) as admin:
        groups = await admin.all_groups()
        online = await admin.consumer_ids(group)
        if online:
            raise CliError(f"group {group!r} is online with {', '.join(online)}: stop its members first")
        # A group that was made, and that no member has joined yet, has nothing but its settings.
        if group not in await admin.group_configs():
            await check_known(admin, group, groups)
        topics = await own_topics(admin, group, groups.get(group, ())) if with_topics else []
        if asks(yes):
            await confirm(f"delete group {group} with its offsets{' and ' + ', '.join(topics) if topics else ''}?")
        await admin.delete_group(group)
        for name in topics:
            await admin.delete_topic(name)
    note(f"group {group} is deleted{' with ' + ', '.join(topics) if topics else ''}")
