"""Records of traces in words: what a client did with one message, one offset, one period."""

from collections.abc import Mapping
from typing import Final

from lockstep.client import MessageQueue
from lockstep.order import Record
from lockstep.protocol.names import is_retry_topic
from lockstep.simulation.articles.narration import number
from lockstep.simulation.lab.findings import queue_of
from lockstep.simulation.lab.said import Said, say

__all__ = ["GOOD", "PLAIN", "WORDS", "queue_words", "record_words"]

GOOD: Final = frozenset({"SUCCESS", "COMMIT", "CONSUME_SUCCESS"})
"""The answers of a listener after which its messages do not come again."""

PLAIN: Final = frozenset({"sent", "handled", "delivered", "acked", "committed"})
"""What happens again and again while nothing goes wrong."""


def queue_words(queue: MessageQueue | None) -> str:
    if queue is None:
        return "no queue"
    words = "the group's retry queue {queue}" if is_retry_topic(queue.topic) else "queue {queue}"
    return say(words, queue=queue.queue_id)


def record_words(record: Record) -> Said:
    """A record, to follow the name of its host: "has handled offset 5 (key3) of queue 1 in 20 ms: SUCCESS"."""
    event, queue = record["event"], queue_words(queue_of(record))
    if event not in WORDS:
        return say("recorded: {event} of {queue}", event=str(event).replace("_", " "), queue=queue)
    offset, key = number(record["offset"]) if "offset" in record else "", record.get("key")
    message = say("offset {offset}{key} of {queue}", offset=offset, key=f" ({key})" if key else "", queue=queue)
    took = number((record["mono_ns"] - record.get("begin_mono_ns", record["mono_ns"])) // 1_000_000)
    did = say(WORDS[event], queue=queue, offset=offset, message=message, took=took, status=record.get("status"))
    return say("{did}: {why}", did=did, why=record["why"]) if event in _WITH_WHY and record.get("why") else did


WORDS: Final[Mapping[str, str]] = {
    "sent": "has sent {message}",
    "handled": "has handled {message} in {took} ms: {status}",
    "delivered": "is given {message}",
    "acked": "has acknowledged {message}",
    "refused": "is refused the answer for {message}: that delivery has ended",
    "renewed": "keeps {message} for longer",
    "acquired": "begins to own {queue}",
    "positioned": "begins {queue} at offset {offset}",
    "committed": "sends offset {offset} of {queue} to be stored",
    "stored": "has stored offset {offset} of {queue}",
    "reset": "sets the offset of {queue} to {offset}",
    "lock_lost": "has lost the lock of {queue}",
    "dropped": "does not own {queue} any more",
    "dead_lettered": "has made {message} a dead letter",
    "sent_back": "has sent {message} back, to come again later",
}
_WITH_WHY: Final = frozenset({"lock_lost", "dropped"})
