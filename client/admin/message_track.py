"""track_message: which groups have consumed a message, by their offsets (messageTrackDetail, wire.md 2.8)."""

from enum import Enum
from typing import Final, NamedTuple

from lockstep.client.admin.at_once import at_once
from lockstep.client.admin.client import AdminClient
from lockstep.protocol.bodies.client import ConsumerConnection
from lockstep.protocol.bodies.heartbeat import ConsumeType, MessageModel
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.errors import RequestRefused

__all__ = ["MessageTrack", "TrackType", "track_message"]


_GROUPS_AT_ONCE: Final = 16


class TrackType(Enum):
    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"  # the group is past it and does not subscribe to its tag
    CONSUME_BROADCASTING = "CONSUME_BROADCASTING"  # each member has its own offset, which no broker knows
    PULL = "PULL"  # the group pulls by itself, and no broker knows what it handled
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    UNKNOWN = "UNKNOWN"


class MessageTrack(NamedTuple):
    consumer_group: str
    track_type: TrackType
    reason: str | None = None  # of UNKNOWN


async def track_message(admin: AdminClient, message: MessageExt) -> list[MessageTrack]:
    """Return the track of the message for each group of its topic.

    It is derived from offsets, so it may be wrong after a reset.
    """

    async def track(group: str) -> MessageTrack:
        try:
            return MessageTrack(group, await _track_type(admin, message, group))
        except RequestRefused as error:
            return MessageTrack(group, TrackType.UNKNOWN, str(error))

    return await at_once(track, await admin.groups_of(message.topic), at_most=_GROUPS_AT_ONCE)


async def _track_type(admin: AdminClient, message: MessageExt, group: str) -> TrackType:
    members = await admin.members(group)
    if members is None:
        return TrackType.NOT_ONLINE
    if members.consume_type is ConsumeType.CONSUME_ACTIVELY:
        return TrackType.PULL
    if members.message_model is MessageModel.BROADCASTING:
        return TrackType.CONSUME_BROADCASTING
    queue = MessageQueue(message.topic, message.broker_name, message.queue_id)
    offsets = (await admin.progress(group, message.topic)).offsets.get(queue)
    if offsets is None or offsets.consumer_offset <= message.queue_offset:
        return TrackType.NOT_CONSUME_YET
    return TrackType.CONSUMED if _wants(members, message) else TrackType.CONSUMED_BUT_FILTERED


def _wants(members: ConsumerConnection, message: MessageExt) -> bool:
    """Return whether the subscription has the tag. Other kinds of expressions have no set of tags."""
    subscription = members.subscription_table.get(message.topic)
    return subscription is None or not subscription.tags_set or message.tags in subscription.tags_set
