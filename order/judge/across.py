"""Findings that cross queues: one message id at two offsets, one key in two queues.

A history (one queue in one group and store) passes on each message that is handled for the first time. What matters are
messages whose id or key is in several places, so a cluster may pass on only these. All other findings come from a
single history.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from lockstep.order.judge.sent import digest
from lockstep.order.kinds import Cause, Confidence, Kind
from lockstep.order.report import Findings
from lockstep.order.traces.reader import Record
from lockstep.protocol.model import MessageQueue

__all__ = ["Across", "FirstHandled", "Ids", "QueueSeen"]

_KEPT_MAX: Final = 10_000
# A queue that is first seen this much after its topic counts as added.
_NEW_QUEUE_MS: Final = 5000
_KEY_BITS: Final = 0xFFFF

FirstHandled = Callable[[Record, int, str, Record | None], None]
"""Takes the first `handled` record of an offset, the offset, the ordering, and the message of its key with the highest
offset of those that were handled before."""


class Ids(Protocol):
    """The ids that were sent to a queue in one store."""

    def id_at(self, offset: int) -> int:
        """The digest of the id that was sent to an offset; 0 if it is unknown."""
        ...


@dataclass(slots=True)
class QueueSeen:
    """When a group saw one queue in one store. Wall clocks are exact enough: only minutes matter here."""

    group: str
    queue: MessageQueue
    generation: int
    first_wall_ms: int
    last_new_wall_ms: int = -1  # when a message was last handled for the first time

    @property
    def name(self) -> str:
        return str(self.queue)


@dataclass(slots=True)
class _Topic:
    """The first handlings of one consumer group and topic."""

    queues: list[QueueSeen] = field(default_factory=list)
    ids: dict[int, int] = field(default_factory=dict)  # digest -> offset, queue number, 16 bits of key hash
    keys: dict[str, tuple[int, Record]] = field(default_factory=dict)  # key -> queue number, last message there
    twice: list["_Twice"] = field(default_factory=list)
    apart: list[tuple[int, str, Record]] = field(default_factory=list)  # digest between the two, text, second record
    moved: list[tuple[str, int, Record, int, Record]] = field(default_factory=list)
    twice_ids: set[int] = field(default_factory=set)


class _Twice(NamedTuple):
    """An id at two offsets that may be a retry, if one of the two sends was not answered."""

    number: int
    old_queue: QueueSeen
    old_offset: int
    queue: QueueSeen
    offset: int
    record: Record


class Across:
    """Judges the first handlings of all queues. Memory grows with keys, and by 100 bytes a message with an id."""

    def __init__(self) -> None:
        self.findings = Findings()
        self.key_counts: dict[tuple[str, str], tuple[int, int]] = {}
        """By group and topic: the number of keys, and of keys in several queues, if not all messages come here."""
        self._takers: dict[tuple[str, MessageQueue, int], FirstHandled] = {}
        self._topics: defaultdict[tuple[str, str], _Topic] = defaultdict(_Topic)

    def of(self, seen: QueueSeen) -> FirstHandled:
        """What takes the first handlings of a queue."""
        name = seen.group, seen.queue, seen.generation
        known = self._takers.get(name)
        if known is None:
            known = self._takers[name] = self._taker(seen)
        return known

    def expect(self, queues: Iterable[QueueSeen]) -> None:
        """Name all queues: which there are decides about keys that moved."""
        for seen in queues:
            self.of(seen)

    def _taker(self, seen: QueueSeen) -> FirstHandled:
        topic = self._topics[seen.group, seen.queue.topic]
        number = len(topic.queues)
        topic.queues.append(seen)
        ids, keys, moved = topic.ids, topic.keys, topic.moved

        def first_handled(record: Record, offset: int, ordering: str, last: Record | None) -> None:
            key, msg_id = record.get("key"), record.get("msg_id")
            if msg_id is not None:
                id_number = digest(msg_id)
                place = (offset << 16 | number) << 16 | (digest(key or "") & _KEY_BITS)
                known = ids.setdefault(id_number, place)
                if known != place:
                    self._id_again(topic, id_number, known, place, record, last if ordering != "none" else None)
            if key is not None and ordering != "none":
                before = keys.get(key)
                if (
                    before is not None
                    and before[0] != number
                    and topic.queues[before[0]].queue != seen.queue  # not the same queue in an emptied store
                    and len(moved) < _KEPT_MAX
                ):
                    moved.append((key, before[0], before[1], number, record))
                keys[key] = (number, record)

        return first_handled

    def _id_again(
        self, topic: _Topic, number: int, known: int, place: int, record: Record, last: Record | None
    ) -> None:
        """Judge two offsets with one id: a retry needs equal keys, and no message of that key between the two."""
        self.findings.duplicates[Cause.PRODUCER_RETRY] += 1
        topic.twice_ids.add(number)
        old_queue, old_offset = topic.queues[known >> 16 & 0xFFFF], known >> 32
        queue, offset = topic.queues[place >> 16 & 0xFFFF], place >> 32
        where = f"{old_queue.name} offset {old_offset} and {queue.name} offset {offset}"
        if (known ^ place) & _KEY_BITS:
            self._repeated_id(record, f"{where}, with different keys", Confidence.CERTAIN)
            return
        if last is not None and queue is old_queue and last["offset"] > old_offset:
            why = f"and offset {last['offset']} of the same key is between them: a retry lets nothing pass"
            if len(topic.apart) < _KEPT_MAX:
                topic.apart.append((digest(last.get("msg_id") or ""), f"{where}, {why}", record))
        elif len(topic.twice) < _KEPT_MAX:
            topic.twice.append(_Twice(number, old_queue, old_offset, queue, offset, record))

    def _repeated_id(self, record: Record, where: str, confidence: Confidence) -> None:
        text = f"message {record.get('msg_id')} is at {where}"
        self.findings.violation(Kind.REPEATED_ID, text, record, confidence=confidence)

    def repeated(self, msg_id: str) -> bool:
        """Whether an id is at two offsets of a topic."""
        return any(digest(msg_id) in topic.twice_ids for topic in self._topics.values())

    def doubted(self) -> Iterable[tuple[QueueSeen, int]]:
        """The queues and offsets for which `finish` needs to know the sent id."""
        for topic in self._topics.values():
            for one in topic.twice:
                yield one.old_queue, one.old_offset
                yield one.queue, one.offset

    def finish(self, sent_of: Callable[[QueueSeen], Ids], unseen: list[str]) -> None:
        """Report the findings that need the whole history. `sent_of` finds what was sent to a queue."""
        self.findings.at_the_end()
        for name in sorted(self._topics):
            topic = self._topics[name]
            for one in topic.twice:
                old_id = sent_of(one.old_queue).id_at(one.old_offset)
                if old_id == sent_of(one.queue).id_at(one.offset) == one.number:
                    where = f"{one.old_queue.name} offset {one.old_offset} and {one.queue.name} offset {one.offset}"
                    text = f"{where}, and both sends were answered: no retry"
                    self._repeated_id(one.record, text, Confidence.CERTAIN)
            for between, where, record in topic.apart:
                if between not in topic.twice_ids:
                    # Otherwise the producer repeated a run of messages, in order.
                    self._repeated_id(record, where, Confidence.LIKELY)
            keys, moved = self.key_counts.get(name) or (len(topic.keys), len({moved[0] for moved in topic.moved}))
            if moved > _few_keys(topic.queues, keys):
                unseen.append(
                    f"{name[1]}: many keys are in several queues, as when a broker is away or producers choose queues "
                    "otherwise: order between queues is not judged"
                )
            else:
                self._moved_keys(topic, unseen)

    def _moved_keys(self, topic: _Topic, unseen: list[str]) -> None:
        explained = 0
        for key, old, before, new, record in topic.moved:
            if _number_of_queues_changed(topic, topic.queues[old], before["wall_ms"], record["wall_ms"]):
                explained += 1
                continue
            self.findings.violation(
                Kind.KEY_IN_TWO_QUEUES,
                f"key {key!r} is in {topic.queues[old].name} (offset {before['offset']}) and then in "
                f"{topic.queues[new].name} (offset {record['offset']})",
                before,
                record,
                confidence=Confidence.LIKELY,
            )
        if explained:
            unseen.append(
                f"{topic.queues[0].queue.topic}: {explained:,} keys moved to other queues as the number of "
                "queues changed: their order across that change is not judged"
            )


def _few_keys(queues: Iterable[QueueSeen], keys: int) -> int:
    """How many of the keys of a topic may be in several queues if producers choose queues by key."""
    several_brokers = len({seen.queue.broker_name for seen in queues}) > 1
    return max(1, keys // 10) if several_brokers else max(2, keys // 4)


def _number_of_queues_changed(topic: _Topic, old: QueueSeen, before_ms: int, after_ms: int) -> bool:
    """Whether a queue was added between two times, or the old queue, with a high id, was removed."""
    began_ms = min(queue.first_wall_ms for queue in topic.queues)
    if any(max(before_ms, began_ms + _NEW_QUEUE_MS) < queue.first_wall_ms <= after_ms for queue in topic.queues):
        return True
    alive = [queue for queue in topic.queues if queue.last_new_wall_ms >= after_ms]
    same_broker = [queue.queue.queue_id for queue in alive if queue.queue.broker_name == old.queue.broker_name]
    last_ms = max(queue.last_new_wall_ms for queue in topic.queues)
    if last_ms < old.last_new_wall_ms + _NEW_QUEUE_MS:
        # It may have ended with the traces.
        return False
    return old not in alive and (not same_broker or old.queue.queue_id > max(same_broker))
