"""How a message finds its queue (wire.md 12.11)."""

import random
from collections.abc import Callable, Collection, Sequence
from typing import Any

from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.model import Message, MessageQueue
from lockstep.protocol.selector import queue_of_hash

__all__ = ["MessageQueueSelector", "select_by_hash", "select_by_machine_room", "select_by_random"]

MessageQueueSelector = Callable[[Sequence[MessageQueue], Message, Any], MessageQueue]
"""`(queues, message, arg) -> queue`, one of the topic's writable queues, which come sorted."""


def select_by_hash(queues: Sequence[MessageQueue], _message: Message | None, arg: object) -> MessageQueue:
    """Java's SelectMessageQueueByHash: `abs(hashCode() % n)`, so that producers in every language agree.

    `arg` is a text, whose hash is Java's String.hashCode, or a number, as Java's Integer and Long.
    """
    return queue_of_hash(queues, arg)


def select_by_random(rng: random.Random) -> MessageQueueSelector:
    """Any queue, whatever the message: Java's SelectMessageQueueByRandom, with chance of your own."""
    return lambda queues, _message, _arg: queues[rng.randrange(len(queues))]


def select_by_machine_room(
    rooms: Collection[str], within: MessageQueueSelector = select_by_hash
) -> MessageQueueSelector:
    """Queues of these machine rooms only, by brokers' names "room@name"; `within` picks one of them.

    Java's SelectMessageQueueByMachineRoom never picks any. A topic without a queue in these rooms is refused with
    LocalProtocolError: a message that has to stay in its room does not leave it for want of a queue.
    """
    wanted = frozenset(rooms)

    def select(queues: Sequence[MessageQueue], message: Message, arg: Any) -> MessageQueue:
        near = [queue for queue in queues if "@" in queue.broker_name and queue.broker_name.split("@")[0] in wanted]
        if not near:
            raise LocalProtocolError(f"topic {message.topic!r} has no queue in the machine rooms {sorted(wanted)}")
        return within(near, message, arg)

    return select
