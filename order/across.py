"""Findings that cross queues: one message id at two offsets, one key in two queues.

A history (one queue in one group) passes on the id, key, queue and offset of each message that is handled for the first
time. Only these columns are joined, here or on a cluster. All other findings come from a single history.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from lockstep.order.kinds import Cause, Confidence, Kind
from lockstep.order.reader import Record
from lockstep.order.report import Findings
from lockstep.order.sent import SentQueue, digest

__all__ = ["Across", "GroupTopic", "QueueSeen"]

_KEPT_MAX: Final = 10_000
_NEW_QUEUE_MS: Final = 5000  # a queue that is first seen this much after its topic counts as added
_KEY_BITS: Final = 0xFFFF


@dataclass(slots=True)
class QueueSeen:
    """When one queue was seen, for `KEY_IN_TWO_QUEUES`. Wall clocks are exact enough: only minutes matter here."""

    number: int
    queue_id: int
    broker: str
    name: str
    sent: SentQueue
    first_wall_ms: int
    last_new_wall_ms: int = -1  # when a message was last handled for the first time


@dataclass(slots=True)
class GroupTopic:
    """The first handlings of one consumer group and topic."""

    queues: list[QueueSeen] = field(default_factory=list)
    ids: dict[int, int] = field(default_factory=dict)  # digest -> offset, queue number, 16 bits of key hash
    keys: dict[str, tuple[int, Record]] = field(default_factory=dict)  # key -> queue number, last message there
    twice: list[tuple[int, int, int, int, int, Record]] = field(default_factory=list)
    apart: list[tuple[int, str, Record]] = field(default_factory=list)  # digest between the two, text, second record
    moved: list[tuple[str, int, Record, int, Record]] = field(default_factory=list)
    twice_ids: set[int] = field(default_factory=set)


class Across:
    """Takes the first handling of each message. Memory grows with keys, and by 100 bytes a message with an id."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self.topics: defaultdict[tuple[str, str], GroupTopic] = defaultdict(GroupTopic)

    def first_handled(self, topic: GroupTopic, queue: QueueSeen, record: Record, offset: int, ordering: str) -> None:
        """Take the first handling of a message in its queue and group."""
        key = record.get("key")
        queue.last_new_wall_ms = record["wall_ms"]
        msg_id = record.get("msg_id")
        if msg_id is not None:
            number = digest(msg_id)
            queue.sent.handled(record["group"], record, offset, number)
            place = (offset << 16 | queue.number) << 16 | (digest(key or "") & _KEY_BITS)
            known = topic.ids.setdefault(number, place)
            if known != place:
                self._id_again(topic, number, known, place, record, ordering)
        if key is not None and ordering != "none":
            before = topic.keys.get(key)
            if (
                before is not None
                and before[0] != queue.number
                and topic.queues[before[0]].name != queue.name  # not the same queue in an emptied store
                and len(topic.moved) < _KEPT_MAX
            ):
                topic.moved.append((key, before[0], before[1], queue.number, record))
            topic.keys[key] = (queue.number, record)

    def _id_again(self, topic: GroupTopic, number: int, known: int, place: int, record: Record, ordering: str) -> None:
        """Judge two offsets with one id: a retry needs equal keys, and no message of that key between the two."""
        self._findings.duplicates[Cause.PRODUCER_RETRY] += 1
        topic.twice_ids.add(number)
        old_queue, old_offset = known >> 16 & 0xFFFF, known >> 32
        queue, offset = place >> 16 & 0xFFFF, place >> 32
        where = f"{topic.queues[old_queue].name} offset {old_offset} and {topic.queues[queue].name} offset {offset}"
        if (known ^ place) & _KEY_BITS:
            self._repeated_id(record, f"{where}, with different keys", Confidence.CERTAIN)
            return
        last = topic.keys.get(record.get("key") or "")
        if last is not None and ordering != "none" and queue == old_queue == last[0] and last[1]["offset"] > old_offset:
            why = f"and offset {last[1]['offset']} of the same key is between them: a retry lets nothing pass"
            if len(topic.apart) < _KEPT_MAX:
                topic.apart.append((digest(last[1].get("msg_id") or ""), f"{where}, {why}", record))
        elif len(topic.twice) < _KEPT_MAX:
            topic.twice.append((number, old_queue, old_offset, queue, offset, record))

    def _repeated_id(self, record: Record, where: str, confidence: Confidence) -> None:
        text = f"message {record.get('msg_id')} is at {where}"
        self._findings.violation(Kind.REPEATED_ID, text, record, confidence=confidence)

    def finish(self, unseen: list[str]) -> None:
        """Report the findings that need the whole history."""
        for topic in self.topics.values():
            for number, old_queue, old_offset, queue, offset, record in topic.twice:
                one, other = topic.queues[old_queue], topic.queues[queue]
                if one.sent.id_at(old_offset) == other.sent.id_at(offset) == number:
                    where = f"{one.name} offset {old_offset} and {other.name} offset {offset}"
                    self._repeated_id(record, f"{where}, and both sends were answered: no retry", Confidence.CERTAIN)
            for between, where, record in topic.apart:
                if between not in topic.twice_ids:  # otherwise the producer repeated a run of messages, in order
                    self._repeated_id(record, where, Confidence.LIKELY)
            self._moved_keys(topic, unseen)

    def _moved_keys(self, topic: GroupTopic, unseen: list[str]) -> None:
        explained = 0
        several_brokers = len({queue.broker for queue in topic.queues}) > 1
        few = max(1, len(topic.keys) // 10) if several_brokers else max(2, len(topic.keys) // 4)
        if len({moved[0] for moved in topic.moved}) > few:
            unseen.append(
                f"{topic.queues[0].name.partition('@')[0]}: many keys are in several queues, as when a broker is away "
                "or producers choose queues otherwise: order between queues is not judged"
            )
            return
        for key, old, before, new, record in topic.moved:
            if _number_of_queues_changed(topic, topic.queues[old], before["wall_ms"], record["wall_ms"]):
                explained += 1
                continue
            self._findings.violation(
                Kind.KEY_IN_TWO_QUEUES,
                f"key {key!r} is in {topic.queues[old].name} (offset {before['offset']}) and then in "
                f"{topic.queues[new].name} (offset {record['offset']})",
                before,
                record,
                confidence=Confidence.LIKELY,
            )
        if explained:
            unseen.append(
                f"{topic.queues[0].name.partition('@')[0]}: {explained:,} keys moved to other queues as the number of "
                "queues changed: their order across that change is not judged"
            )


def _number_of_queues_changed(topic: GroupTopic, old: QueueSeen, before_ms: int, after_ms: int) -> bool:
    """Whether a queue was added between two times, or the old queue, with a high id, was removed."""
    began_ms = min(queue.first_wall_ms for queue in topic.queues)
    if any(max(before_ms, began_ms + _NEW_QUEUE_MS) < queue.first_wall_ms <= after_ms for queue in topic.queues):
        return True
    alive = [queue for queue in topic.queues if queue.last_new_wall_ms >= after_ms]
    same_broker = [queue.queue_id for queue in alive if queue.broker == old.broker]
    last_ms = max(queue.last_new_wall_ms for queue in topic.queues)
    if last_ms < old.last_new_wall_ms + _NEW_QUEUE_MS:
        return False  # it may have ended with the traces
    return old not in alive and (not same_broker or old.queue_id > max(same_broker))
