"""Exhibits about the answer of a listener."""

from lockstep.client.consumer.cache.message_cache import MessageCache
from lockstep.order import Kind
from lockstep.simulation.museum.exhibit import Exhibit
from lockstep.simulation.museum.plan import Swarm
from lockstep.simulation.museum.variant import replaced

__all__ = ["FAILED_MESSAGE"]

FAILED_MESSAGE = Exhibit(
    key="failed-message",
    report="apache/rocketmq-client-go #618",
    title="a message that failed once is gone when the next one succeeds",
    told=(
        "A listener failed for message A, and its queue was suspended. When message B succeeded, the offset "
        "behind B was committed and A never came back. An earlier repair of a leaking counter had left out "
        "the step that puts a failed message back into the cache."
    ),
    translated=(
        "MessageCache.make_messages_to_consume_again does nothing, so a failed message stays among those that "
        "the listener has taken, and the next commit is behind all of them."
    ),
    rule=("A failed message goes back before any later one is taken (docs/order.md 2, A consumer's queue)."),
    kind=Kind.LOST_WRITE,
    variant=replaced(MessageCache, "make_messages_to_consume_again", lambda _: lambda _self, _messages: None),
    swarm=Swarm(failing=(0, 10, 30)),
)
