"""Consumer groups: an administrator creates, changes and deletes them."""

from lockstep.broker.catalog.topics import QUEUE_NUMS_MAX
from lockstep.broker.core.broker import Broker
from lockstep.broker.core.refused import Reason, Refused
from lockstep.broker.peer import Peer
from lockstep.protocol.bodies.subscription_group import SubscriptionGroupConfig
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.names import check_group

__all__ = ["delete_group", "put_group"]


def put_group(broker: Broker, peer: Peer, config: SubscriptionGroupConfig, now_ms: int) -> None:
    """Create or change a group. Raises Refused."""
    group, groups = config.group_name, broker.catalog.groups
    try:
        check_group(group)
    except LocalProtocolError as error:
        raise Refused(Reason.INVALID, str(error)) from None
    if config.retry_queue_nums > QUEUE_NUMS_MAX:
        # Its retry topic has as many; 0 or less means no retries.
        remark = f"retryQueueNums must be at most {QUEUE_NUMS_MAX}, not {config.retry_queue_nums}"
        raise Refused(Reason.INVALID, remark)
    if config.attributes:
        raise Refused(Reason.INVALID, f"unsupported key: {config.attributes[0][1:]}")  # in RocketMQ's words
    if not groups.has_capacity(group, now_ms):
        raise Refused(Reason.INVALID, groups.why_absent(group))
    _check_retry_queues(broker, config, now_ms)
    groups.put(config.without_defaults(), now_ms)
    broker.log.info("group_changed", group=group, peer=peer.address)


def _check_retry_queues(broker: Broker, config: SubscriptionGroupConfig, now_ms: int) -> None:
    """A group that an administrator gives more retry queues than others must find room for them in `queues_max`.

    Its retry topic is created later, and then is not refused: those of other groups may still come too.
    """
    usual = broker.config.retry_queue_nums
    if config.retry_queue_nums <= usual:
        return
    others = sum(
        max(group.retry_queue_nums - usual, 0)
        for group in broker.catalog.groups.groups
        if group.group_name != config.group_name
    )
    if not broker.catalog.topics.has_room_for(others + config.retry_queue_nums, now_ms):
        queues_max = broker.config.queues_max
        remark = (
            f"{config.retry_queue_nums} retry queues would be too many: the broker's setting queues_max is {queues_max}"
        )
        raise Refused(Reason.INVALID, remark)


def delete_group(broker: Broker, peer: Peer, group: str, remove_offsets: bool, now_ms: int) -> None:
    """Delete a group, and its offsets if `remove_offsets`, also those of an unknown group, which is no error."""
    if broker.catalog.groups.delete(group, now_ms):
        broker.log.info("group_deleted", group=group, peer=peer.address)
    if remove_offsets:
        broker.catalog.offsets.remove_group(group)
        broker.messages.pops.forget(lambda _, of_group: of_group == group, now_ms)
