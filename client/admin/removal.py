"""What has to be known before a topic or a group is deleted, and what stays behind."""

from collections.abc import Sequence

from lockstep.client.admin.at_once import at_once
from lockstep.client.admin.client import AdminClient
from lockstep.protocol.names import dead_letter_topic, pop_retry_topic, retry_topic

__all__ = ["groups_with_kept_offsets", "online_consumers", "own_topics"]


async def online_consumers(admin: AdminClient, topic: str, groups: Sequence[str]) -> dict[str, list[str]]:
    """Return those of the groups that consume the topic now, with the client ids of their members."""
    found = {}
    for group, members in zip(groups, await at_once(admin.members, groups), strict=True):
        if members is not None and topic in members.subscription_table:
            found[group] = sorted({one.client_id for one in members.connection_set})
    return found


async def groups_with_kept_offsets(admin: AdminClient, topic: str) -> list[str]:
    """Groups that still have offsets of a deleted topic: RocketMQ 5 removes them, 4 does not."""
    kept: set[str] = set()
    for broker in await admin.brokers():
        # Ours remove them too, in steps that may not have ended.
        if broker.master_addr is not None and not await admin.is_lockstep(broker.master_addr):
            found = await admin.at(broker).groups_with_offsets()
            kept |= {group for group, topics in found.items() if topic in topics}
    return sorted(kept)


async def own_topics(admin: AdminClient, group: str, consumed: Sequence[str]) -> list[str]:
    """The existing topics of the group's retries, popped or not, and of its dead letters.

    Args:
        consumed: The topics that the group consumes.
    """
    known = await admin.topics()
    names = [retry_topic(group), *(pop_retry_topic(group, topic, version) for topic in consumed for version in (1, 2))]
    return [name for name in (*names, dead_letter_topic(group)) if name in known]
