"""The journal of deliveries in order: a message of the log for each, so that a crash does not forget who holds what.

It is read at a start after a crash, from the place on where the file of deliveries ends (docs/wire.md 18.4).
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import orjson

from lockstep.broker.catalog.offsets import ConsumerOffsetManager
from lockstep.broker.messages.pop.pops import Pops
from lockstep.broker.messages.pop.port import Order, Replayed
from lockstep.broker.messages.pop.reader import StoreReader
from lockstep.broker.messages.stored import messages_of
from lockstep.protocol.names import POP_JOURNAL_TOPIC
from lockstep.store import MessageStore, Record

__all__ = ["Journaled", "record_of_delivery", "replay_journal"]


class Journaled(NamedTuple):
    """A delivery of messages of one queue, or a change of its invisible time, under the same `pop_ms`.

    Args:
        commit_offset, acked: As of `Delivered`; of a change -1 and none.
    """

    topic: str
    consumer_group: str
    queue_id: int
    pop_ms: int
    invisible_ms: int
    client: str
    attempt_id: str | None
    offsets: Sequence[int]
    commit_offset: int = -1
    acked: Sequence[int] = ()


def record_of_delivery(store: MessageStore, made: Journaled, now_ms: int) -> Record:
    """The message for the log."""
    host, port = store.store_host, store.store_port
    body = orjson.dumps(list(made._replace(acked=_runs_of(made.acked, made.commit_offset))))
    return Record(POP_JOURNAL_TOPIC, 0, 0, 0, now_ms, host, port, now_ms, 0, 0, body, b"", 0)


def _runs_of(offsets: Sequence[int], begin: int) -> list[int]:
    """How many offsets from `begin` on are not among these, how many then are, and so on: mostly few numbers."""
    runs, end = list[int](), begin
    for offset in offsets:
        if offset == end and runs:
            runs[-1] += 1
        else:
            runs += [offset - end, 1]
        end = offset + 1
    return runs


def _offsets_of(runs: Sequence[int], begin: int, end: int) -> list[int]:
    """The offsets again. All are of the queue, which ends at `end`, whatever the log says."""
    offsets = list[int]()
    for without, count in zip(runs[::2], runs[1::2], strict=True):
        first, begin = begin + without, begin + without + count
        offsets += range(max(first, 0), min(begin, end))
    return offsets


def replay_journal(
    store: MessageStore, pops: Pops, offsets: ConsumerOffsetManager, log_offset: int, now_ms: int
) -> int:
    """Bring back deliveries that the log has at this offset or later. Returns how many."""
    found = messages_of(store, POP_JOURNAL_TOPIC, 0, _first_of(store, log_offset))
    made = [one.body for one in found if one.commit_log_offset >= log_offset]
    return sum(_is_replayed(store, pops, offsets, body, now_ms) for body in made)


def _first_of(store: MessageStore, log_offset: int) -> int:
    """A queue offset: what the journal has before it, which may be days of it, is before this offset of the log."""

    def is_behind(queue_offset: int) -> bool:
        (entry,) = store.entries(POP_JOURNAL_TOPIC, 0, queue_offset, 1)
        # A damaged entry tells nothing: then the search goes on before it.
        return entry.commit_log_offset >= log_offset or not entry.size_bytes

    begin = store.min_offset(POP_JOURNAL_TOPIC, 0)
    return begin + bisect_left(range(begin, store.max_offset(POP_JOURNAL_TOPIC, 0)), True, key=is_behind)


def _is_replayed(store: MessageStore, pops: Pops, offsets: ConsumerOffsetManager, body: bytes, now_ms: int) -> bool:
    try:
        _replay(store, pops, offsets, Journaled(*orjson.loads(body)), now_ms)
    # What cannot be read holds up no start: the messages are given again.
    except (ValueError, KeyError, TypeError, IndexError):
        return False
    return True


def _replay(store: MessageStore, pops: Pops, offsets: ConsumerOffsetManager, made: Journaled, now_ms: int) -> None:
    order = Order(made.client, made.attempt_id, len(made.offsets), made.pop_ms, made.invisible_ms)
    reader = StoreReader(store, made.topic, made.queue_id, None)
    pops.in_use = True
    queue = pops.fifo.queue(made.topic, made.consumer_group, made.queue_id, now_ms)
    acked = _offsets_of(made.acked, made.commit_offset, store.max_offset(made.topic, made.queue_id))
    queue.replay(Replayed(order, made.offsets, made.commit_offset, acked), reader)
    # The file of offsets may be older. A pop would take that for an offset that somebody set back.
    if made.commit_offset > offsets.query(made.consumer_group, made.topic, made.queue_id):
        offsets.commit(made.consumer_group, made.topic, made.queue_id, made.commit_offset)
