"""Which groups there are, and their topics, whoever made the broker."""

from lockstep.cli.output import CliError
from lockstep.client.admin.client import AdminClient, NotLockstepError
from lockstep.protocol.names import RETRY_PREFIX, is_retry_topic

__all__ = ["all_groups", "topics_of_group"]


async def all_groups(admin: AdminClient) -> dict[str, list[str]]:
    """Groups that are online or have offsets stored. Of Apache's brokers: those with offsets or a retry topic."""
    try:
        return await admin.groups()
    except NotLockstepError:
        groups = await admin.groups_with_offsets()
        for topic in await admin.topics():
            if is_retry_topic(topic):
                groups.setdefault(topic.removeprefix(RETRY_PREFIX), [])
        return {group: groups[group] for group in sorted(groups)}


async def topics_of_group(admin: AdminClient, group: str) -> list[str]:
    """Those that exist still, of which it has offsets or which it subscribes to. Raises CliError."""
    groups = await all_groups(admin)
    members = await admin.members(group)
    if group not in groups and members is None:
        raise CliError(f"no broker knows group {group!r}; known are {', '.join(groups) or 'none'}")
    subscribed = members.subscription_table if members is not None else {}
    known = await admin.topics()
    return [topic for topic in sorted({*groups.get(group, ()), *subscribed}) if topic in known]
