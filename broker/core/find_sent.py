"""Find sent: whether a send that had no answer is stored, asked before it is repeated (docs/wire.md 17.3)."""

from collections.abc import Generator
from typing import Final, Protocol

from lockstep.broker.core.broker import Broker
from lockstep.broker.core.refused import Reason, Refused
from lockstep.broker.peer import Peer
from lockstep.broker.sliced_work import Wait
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.message import decode_messages
from lockstep.store.base import KEY_QUERY_MESSAGE_COST, KEY_QUERY_STEP_BYTES, AppendResult, StoreFull

__all__ = ["Asked", "Search", "find_sent"]

# Messages that one question looks at (wire.md 17.3). Those behind the last answered send of a producer are few.
_SEARCHED_MAX: Final = 100_000
_ENTRIES: Final = 128  # read together
# Bytes as which one counts besides its own, so that a step takes a millisecond.
_MESSAGE_COST: Final = 1024

Search = Generator[Wait | None, None, list[AppendResult]]


class Asked(Protocol):
    """The messages of a send, next to each other in their queue.

    `message_id` is the UNIQ_KEY of the first one, which is at `begin_offset` or behind it. The last three are those
    that the repeat would have.
    """

    @property
    def topic(self) -> str: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def begin_offset(self) -> int: ...
    @property
    def message_id(self) -> str: ...
    @property
    def message_count(self) -> int: ...
    @property
    def send_generation(self) -> int: ...
    @property
    def send_sequence(self) -> int: ...
    @property
    def sender_id(self) -> str: ...


def find_sent(broker: Broker, peer: Peer, asked: Asked, now_ms: int) -> Search:
    """Begin to search; the producer's sequence is at the generation of the question from now on.

    So an attempt of an older generation that has not arrived yet is refused, and what is not found now is never stored.

    Returns:
        The steps of the search. Their result: where all the messages are, or nothing. They raise StoreFull when the
        messages may not be on the disk.

    Raises:
        Refused: The numbers of the repeat are not the next of its sequence.
    """
    key = (asked.sender_id, asked.topic, asked.queue_id)
    why = broker.messages.send_sequences.refusal(key, asked.send_generation, asked.send_sequence, peer, now_ms)
    if why is not None:
        raise Refused(Reason.OUT_OF_SEQUENCE, why)
    return _found(broker, asked)


def _found(broker: Broker, asked: Asked) -> Search:
    kept = broker.durable
    if kept is not None and (when_synced := kept.when_synced) is not None:
        log, log_end = kept.store.log, kept.store.log.max_offset
        if log.synced_offset < log_end:
            # What is not on the disk is not in its queue.
            yield lambda then: when_synced(lambda _: then())
        if log.synced_offset < log_end:
            raise StoreFull(kept.store.refusal)
    first = yield from _search(broker, asked)
    if first is None:
        return []
    entries = broker.messages.store.entries(asked.topic, asked.queue_id, first, asked.message_count)
    # A part of a batch is no batch.
    if len(entries) < asked.message_count:
        return []
    return [AppendResult(entry.commit_log_offset, queue_offset) for queue_offset, entry in enumerate(entries, first)]


def _search(broker: Broker, asked: Asked) -> Generator[None, None, int | None]:
    """The queue offset of the message with the id, newest first; None when it is not there."""
    store, topic, queue_id = broker.messages.store, asked.topic, asked.queue_id
    wanted = f"{names.UNIQ_KEY}{names.NAME_END}{asked.message_id}".encode("utf-8", "replace")
    end, looked_at = store.max_offset(topic, queue_id), 0
    last = max(asked.begin_offset, store.min_offset(topic, queue_id), end - _SEARCHED_MAX)
    while end > last:
        start = max(last, end - _ENTRIES)
        for entry in reversed(store.entries(topic, queue_id, start, end - start)):
            message = store.message_at(entry.commit_log_offset) or b""
            if wanted in message:
                looked_at += KEY_QUERY_MESSAGE_COST
                found = decode_messages(message, unzip=False)[0]
                if found.properties.get(names.UNIQ_KEY) == asked.message_id:
                    return found.queue_offset
            looked_at += _MESSAGE_COST + len(message)
            if looked_at >= KEY_QUERY_STEP_BYTES:
                looked_at = 0
                yield None
        end = start
    return None
