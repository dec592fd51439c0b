"""Assignments: which queues a member of a group reads, and how, when the broker shares them out (docs/wire.md 18.1)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from lockstep.broker.core.broker import Broker
from lockstep.broker.core.refused import Reason, Refused
from lockstep.protocol.allocation import share_averagely, share_by_circle
from lockstep.protocol.bodies.heartbeat import MessageModel
from lockstep.protocol.bodies.pop import POP, Assignment, QueryAssignmentBody, RequestMode
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import check_group, check_topic, is_retry_topic

__all__ = ["assignments", "set_mode"]

_ANY_QUEUE: Final = -1
_Share = Callable[[Sequence[MessageQueue], int, int], list[MessageQueue]]
_STRATEGIES: Final[Mapping[str, _Share]] = {"AVG": share_averagely, "AVG_BY_CIRCLE": share_by_circle}


def assignments(broker: Broker, asked: QueryAssignmentBody) -> tuple[Assignment, ...] | None:
    """The queues of a member; none for a client that is no member of the group.

    None, which tells the client to keep what it has: there is no such topic, strategy or member.
    """
    queues = broker.catalog.queues_of(asked.topic, broker.config.broker_name)
    mode = broker.messages.pops.modes.find(asked.topic, asked.consumer_group)
    if not queues:
        return None
    if asked.message_model == MessageModel.BROADCASTING.name:
        return tuple(Assignment(queue, mode.mode) for queue in queues)
    share = _STRATEGIES.get(asked.strategy_name)
    members = sorted(broker.members.consumers.client_ids(asked.consumer_group))
    if share is None or not members:
        return None
    if mode.mode == POP and not 0 < mode.share_queue_num < len(members) - 1:
        # As RocketMQ: without a number, or with one that reaches all members, each pops all queues of all brokers.
        mine = [queue._replace(queue_id=_ANY_QUEUE) for queue in queues]
    elif asked.client_id not in members:
        mine = []
    else:
        # A pop also has the queues of the next members: when one of these stops, its queues are read on.
        next_members = mode.share_queue_num if mode.mode == POP and len(members) <= len(queues) else 0
        first, count = members.index(asked.client_id), len(members)
        mine = [queue for step in range(next_members + 1) for queue in share(queues, (first + step) % count, count)]
    return tuple(Assignment(queue, mode.mode) for queue in dict.fromkeys(mine))


def set_mode(broker: Broker, mode: RequestMode) -> None:
    """A group pops a topic, or pulls it, from now on.

    Raises:
        Refused: A name is illegal or that of a retry topic, or there are too many.
    """
    if is_retry_topic(mode.topic):
        raise Refused(Reason.NOT_PERMITTED, "retry topic is not allowed to set mode")
    try:
        check_topic(mode.topic)
        check_group(mode.consumer_group)
    except LocalProtocolError as error:
        raise Refused(Reason.INVALID, str(error)) from None
    if not broker.messages.pops.modes.put(mode):
        maximum = broker.config.offset_entries_max
        raise Refused(Reason.INVALID, f"there are {maximum} modes, as many as the broker's setting offset_entries_max")
