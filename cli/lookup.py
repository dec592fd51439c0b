"""Finds what a command names: a queue as BROKER:N, a group and its topics."""

from collections.abc import Collection, Sequence

from lockstep.cli.option_values import QueueName
from lockstep.cli.output import CliError, UsageError
from lockstep.client.admin.client import AdminClient, NotLockstepError
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import check_topic
from lockstep.remoting.texts import known_names

__all__ = ["check_brokers", "check_known", "find_queue", "readable_queues", "topics_of_group"]


async def readable_queues(admin: AdminClient, topic: str) -> list[MessageQueue]:
    """The readable queues of a topic. Raises LocalProtocolError, TopicNotFoundError; CliError when there are none."""
    check_topic(topic)
    queues = (await admin.route(topic)).readable_queues(topic)
    if not queues:
        raise CliError(f"topic {topic!r} has no queue that may be read")
    return queues


def find_queue(name: QueueName, queues: Sequence[MessageQueue]) -> MessageQueue:
    """The queue of a name. Raises UsageError when several brokers have one, CliError when none has."""
    found = [one for one in queues if one.queue_id == name.number and name.broker in ("", one.broker_name)]
    if len(found) > 1:
        names = ", ".join(f"{queue.broker_name}:{name.number}" for queue in found)
        raise UsageError(f"--queue {name}: several brokers have one; write one of {names}")
    if not found:
        brokers: dict[str, int] = {}
        for queue in queues:
            brokers[queue.broker_name] = max(brokers.get(queue.broker_name, 0), queue.queue_id)
        known = ", ".join(f"{name}:0 to {name}:{last}" for name, last in brokers.items())
        raise CliError(f"topic {queues[0].topic!r} has no queue {name}; it has {known}")
    return found[0]


async def check_brokers(admin: AdminClient) -> None:
    """Raises CliError when no broker is registered: an empty table would look like an empty cluster."""
    if not await admin.brokers():
        raise CliError("no broker is registered")


async def check_known(admin: AdminClient, group: str, groups: Collection[str]) -> None:
    """Raises CliError, which names known groups, when `group` is none of `groups`, or there is no broker."""
    if not groups:
        await check_brokers(admin)
    if group not in groups:
        listed = known_names(group, groups, "`lockstep group list`", begin="known are")
        known = listed if groups else "there are no groups"
        raise CliError(f"no broker knows group {group!r}; {known}")


async def topics_of_group(admin: AdminClient, group: str) -> list[str]:
    """Existing topics that the group subscribes to, has offsets of or holds locks in.

    Members that were killed before their first commit leave nothing but locks.

    Raises CliError for an unknown group.
    """
    groups = await admin.all_groups()
    members = await admin.members(group)
    locked = await _locked_topics(admin, group)
    if members is None and not locked:
        await check_known(admin, group, groups)
    subscribed = members.subscription_table if members is not None else {}
    known = await admin.topics()
    return [topic for topic in sorted({*groups.get(group, ()), *subscribed, *locked}) if topic in known]


async def _locked_topics(admin: AdminClient, group: str) -> set[str]:
    """Topics with a queue that is locked for the group, if the brokers list their locks."""
    try:
        return {row.queue.topic for row in await admin.list_locks(group) if row.is_held}
    except NotLockstepError:
        return set()
