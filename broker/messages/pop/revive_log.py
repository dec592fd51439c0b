"""The revive log: checkpoints of groups without order, and acknowledgements of them, in a topic (docs/wire.md 18.5).

A checkpoint that is acknowledged soon is never written. Until it is written, the group's offset stays before it, so
that after a crash its messages are delivered again.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import orjson

from lockstep.broker.messages.pop.checkpoints import REVIVE_QUEUES, Checkpoint, CheckpointKey, Checkpoints
from lockstep.broker.messages.stored import messages_of
from lockstep.protocol.filter import tags_code
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.messages.properties import encode_properties
from lockstep.protocol.names import REVIVE_LOG_PREFIX
from lockstep.store import AppendResult, MessageStore, Record

__all__ = ["REVIVE_GROUP", "ReviveLog", "read_revive_log", "revive_topic"]

REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
_CHECKPOINT, _ACK, _BATCH_ACK = "ck", "ack", "bAck"  # tags
# Of ends of deliveries: a few milliseconds of work.
_PUT_TOGETHER_MAX: Final = 256


def revive_topic(cluster: str) -> str:
    return REVIVE_LOG_PREFIX + cluster


class ReviveLog:
    """Writes the log.

    Args:
        put_all: Stores messages. Raises StoreFull.
    """

    def __init__(
        self,
        cluster: str,
        broker_name: str,
        store: MessageStore,
        put_all: Callable[[Sequence[Record]], Sequence[AppendResult]],
    ) -> None:
        self._topic = revive_topic(cluster)
        self._broker_name = broker_name
        self._store = store
        self._put_all = put_all

    def save(self, one: Checkpoint, now_ms: int) -> None:
        """A delivery enters the log, as RocketMQ writes it. Raises StoreFull."""
        key, start = one.key, one.key.start_offset
        content = {
            "bm": one.acked,
            "bn": self._broker_name,
            "c": key.consumer_group,
            "d": [offset - start for offset in one.offsets],
            "it": one.invisible_ms,
            "n": len(one.offsets),
            "pt": key.pop_ms,
            "q": key.queue_id,
            "reviveTime": one.due_ms,
            "ro": 0,
            "so": start,
            "sp": False,
            "t": key.topic,
        }
        (stored,) = self._put_all([self._record(one, _CHECKPOINT, start, content, now_ms)])
        one.saved_at = stored.queue_offset

    def end(self, one: Checkpoint, queue_offsets: Sequence[int], now_ms: int) -> None:
        """Messages of a delivery are acknowledged, or stored again: a restart must know, if it knows the delivery.

        Raises StoreFull.
        """
        self.end_all([(one, queue_offsets)], now_ms)

    def end_all(self, ended: Iterable[tuple[Checkpoint, Sequence[int]]], now_ms: int) -> None:
        """As `end`, of several deliveries. Raises StoreFull: then the log may have some of them."""
        records = [
            self._end_record(one, queue_offsets, now_ms)
            for one, queue_offsets in ended
            if one.saved_at is not None and queue_offsets
        ]
        for begin in range(0, len(records), _PUT_TOGETHER_MAX):
            self._put_all(records[begin : begin + _PUT_TOGETHER_MAX])

    def _end_record(self, one: Checkpoint, queue_offsets: Sequence[int], now_ms: int) -> Record:
        key, first = one.key, queue_offsets[0]
        is_batch = len(queue_offsets) > 1
        content = {
            **({"aol": list(queue_offsets)} if is_batch else {"ao": first}),
            "bn": self._broker_name,
            "c": key.consumer_group,
            "pt": key.pop_ms,
            "q": key.queue_id,
            "so": key.start_offset,
            "t": key.topic,
        }
        return self._record(one, _BATCH_ACK if is_batch else _ACK, first, content, now_ms)

    def _record(self, one: Checkpoint, tag: str, offset: int, content: dict[str, Any], now_ms: int) -> Record:
        key, store = one.key, self._store
        unique = f"{key.topic}@{key.queue_id}@{offset}@{key.consumer_group}@{key.pop_ms}@{self._broker_name}@{tag}"
        properties = encode_properties({names.TAGS: tag, names.UNIQ_KEY: unique}).encode("utf-8", "replace")
        host, port, body = store.store_host, store.store_port, orjson.dumps(content)
        revive = one.revive_queue_id
        return Record(self._topic, revive, 0, 0, now_ms, host, port, now_ms, 0, 0, body, properties, tags_code(tag))


def read_revive_log(store: MessageStore, checkpoints: Checkpoints, topic: str, begin_of: Callable[[int], int]) -> int:
    """Bring back checkpoints that a run before this one left open. Returns how many.

    Args:
        begin_of: Of a queue id of the log: nothing before this offset is needed.
    """
    for queue_id in range(REVIVE_QUEUES):
        for message in messages_of(store, topic, queue_id, begin_of(queue_id)):
            _replay(checkpoints, message)
    return len(checkpoints)


def _replay(checkpoints: Checkpoints, message: MessageExt) -> None:
    try:
        _apply(checkpoints, message, orjson.loads(message.body))
    # Another broker may have written anything. What cannot be read holds up no start: its messages are in the log.
    except (ValueError, KeyError, TypeError, IndexError):
        return


def _apply(checkpoints: Checkpoints, message: MessageExt, content: dict[str, Any]) -> None:
    key = CheckpointKey(content["t"], content["c"], content["q"], content["so"], content["pt"])
    if message.properties.get(names.TAGS) in (_ACK, _BATCH_ACK):
        for offset in content["aol"] if "aol" in content else (content["ao"],):
            checkpoints.ack(key, offset)
        return
    offsets = [key.start_offset + distance for distance in content["d"]]
    one = Checkpoint(key, offsets, content["it"], message.queue_id)
    one.acked, one.saved_at = content["bm"], message.queue_offset
    checkpoints.add(one)
