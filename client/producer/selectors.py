"""Selectors: functions that choose the queue of a message (wire.md 12.11)."""

import random
from collections.abc import Callable, Collection, Sequence
from typing import Any

from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.messages.to_send import Message
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.selector import queue_of_group, queue_of_hash

__all__ = ["MessageQueueSelector", "select_by_group", "select_by_hash", "select_by_machine_room", "select_by_random"]

MessageQueueSelector = Callable[[Sequence[MessageQueue], Message, Any], MessageQueue]
"""`(queues, message, arg) -> queue`: returns one of the topic's writable queues, which are sorted."""


def select_by_hash(queues: Sequence[MessageQueue], _message: Message | None, arg: object) -> MessageQueue:
    """Java's SelectMessageQueueByHash, `abs(hashCode() % n)`: producers in every language choose the same queue.

    Args:
        arg: a text, hashed as Java's String, or a number, hashed as Java's Integer or Long.
    """
    return queue_of_hash(queues, arg)


def select_by_group(queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
    """The queue that RocketMQ 5's proxy chooses for a message group: clients over gRPC send the group's messages there.

    Args:
        arg: the message group: the sharding key, if the caller gave no `arg`.

    Raises:
        LocalProtocolError: the message has none.
    """
    if not isinstance(arg, str) or not arg:
        raise LocalProtocolError(f"a message of topic {message.topic!r} has no message group: give a sharding key")
    return queues[queue_of_group(arg, len(queues))]


def select_by_random(rng: random.Random) -> MessageQueueSelector:
    """Java's SelectMessageQueueByRandom, with the caller's random numbers."""
    return lambda queues, _message, _arg: queues[rng.randrange(len(queues))]


def select_by_machine_room(
    rooms: Collection[str], within: MessageQueueSelector = select_by_hash
) -> MessageQueueSelector:
    """Choose only queues of these machine rooms, by broker names "room@name".

    Java's SelectMessageQueueByMachineRoom never chooses a queue.

    Args:
        within: chooses one of the queues of these rooms.

    Returns:
        A selector. It raises LocalProtocolError when the topic has no queue in these rooms, so that a message that
        must stay in its room does not leave it.
    """
    wanted = frozenset(rooms)

    def select(queues: Sequence[MessageQueue], message: Message, arg: Any) -> MessageQueue:
        near = [queue for queue in queues if "@" in queue.broker_name and queue.broker_name.split("@")[0] in wanted]
        if not near:
            raise LocalProtocolError(f"topic {message.topic!r} has no queue in the machine rooms {sorted(wanted)}")
        return within(near, message, arg)

    return select
