"""`lockstep group`: consumer groups, and how far each queue of one is."""

from typing import Any

from lockstep.client.admin import AdminClient, NotLockstepError
from lockstep.client.cli_output import CliError, OutputFormat, StderrLog, note, print_rows
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import check_group, check_topic, is_retry_topic

__all__ = ["describe_group", "list_groups"]

_COLUMNS = ("topic", "broker", "queue_id", "owner", "committed_offset", "max_offset", "lag")


async def list_groups(name_server: str, output: OutputFormat) -> None:
    """Groups that are online or have offsets stored. Raises NotLockstepError."""
    async with AdminClient(name_server=name_server, log=StderrLog(verbose=False)) as admin:
        groups = await admin.groups()
        rows = [
            {
                "group": group,
                "members": len(await admin.consumer_ids(group)),
                "topics": [topic for topic in topics if not is_retry_topic(topic)],
            }
            for group, topics in groups.items()
        ]
    print_rows(("group", "members", "topics"), rows, output)


async def describe_group(name_server: str, group: str, topic: str | None, output: OutputFormat) -> None:
    """Each queue with its owner by the lock table, and its offsets. Raises CliError for a group nobody knows.

    The retry topic's queues are left out while they are empty.
    """
    check_group(group)
    if topic is not None:
        check_topic(topic)
    async with AdminClient(name_server=name_server, log=StderrLog(verbose=False)) as admin:
        topics = [topic] if topic is not None else await _topics_of(admin, group)
        owners = await _owners(admin, group)
        rows = [
            await _row(admin, group, queue, owners)
            for name in topics
            for queue in (await admin.route(name)).readable_queues(name)
        ]
    rows = [row for row in rows if row["max_offset"] or row["topic"] == topic or not is_retry_topic(row["topic"])]
    print_rows(_COLUMNS, rows, output)


async def _topics_of(admin: AdminClient, group: str) -> list[str]:
    try:
        groups = await admin.groups()
    except NotLockstepError as error:
        raise CliError(f"{error} as to list a group's topics; name one with --topic") from None
    if group not in groups:
        raise CliError(f"no broker knows group {group!r}; known are {', '.join(groups) or 'none'}")
    known = await admin.topics()
    return [topic for topic in groups[group] if topic in known]


async def _owners(admin: AdminClient, group: str) -> dict[MessageQueue, str]:
    try:
        rows = await admin.list_locks(group)
    except NotLockstepError:
        note("owners are not shown: only a Lockstep broker lists its locks")
        return {}
    return {row.queue: row.client_id for row in rows if row.remaining_ms >= 0}


async def _row(admin: AdminClient, group: str, queue: MessageQueue, owners: dict[MessageQueue, str]) -> dict[str, Any]:
    committed, maximum = await admin.consumer_offset(group, queue), await admin.max_offset(queue)
    return {
        "topic": queue.topic,
        "broker": queue.broker_name,
        "queue_id": queue.queue_id,
        "owner": owners.get(queue),
        "committed_offset": committed,
        "max_offset": maximum,
        "lag": None if committed is None else maximum - committed,
    }
