"""The revive log: checkpoints of groups without order, and acknowledgements of them, in a topic (docs/wire.md 18.5).

A checkpoint that is acknowledged soon is never written. Until it is written, the group's offset stays before it, so
that after a crash its messages are delivered again.
"""

from collections.abc import Callable
from typing import Any, Final

import orjson

from lockstep.broker.messages.pop.checkpoints import REVIVE_QUEUES, Checkpoint, CheckpointKey, Checkpoints
from lockstep.broker.messages.stored import messages_of
from lockstep.protocol.filter import tags_code
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.messages.properties import encode_properties
from lockstep.protocol.names import REVIVE_LOG_PREFIX
from lockstep.store import MessageStore, Record

__all__ = ["REVIVE_GROUP", "ack_record", "checkpoint_record", "read_revive_log", "revive_topic"]

REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
_CHECKPOINT, _ACK, _BATCH_ACK = "ck", "ack", "bAck"  # tags


def revive_topic(cluster: str) -> str:
    return REVIVE_LOG_PREFIX + cluster


def checkpoint_record(store: MessageStore, topic: str, broker_name: str, one: Checkpoint, now_ms: int) -> Record:
    """A checkpoint, as RocketMQ writes it."""
    key, start = one.key, one.key.start_offset
    content = {
        "bm": one.acked,
        "bn": broker_name,
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
    return _record(store, topic, one, _CHECKPOINT, (start, broker_name), content, now_ms)


def ack_record(
    store: MessageStore, topic: str, broker_name: str, one: Checkpoint, queue_offset: int, now_ms: int
) -> Record:
    """An acknowledgement of a message whose checkpoint is in the log."""
    key = one.key
    content = {
        "ao": queue_offset,
        "bn": broker_name,
        "c": key.consumer_group,
        "pt": key.pop_ms,
        "q": key.queue_id,
        "so": key.start_offset,
        "t": key.topic,
    }
    return _record(store, topic, one, _ACK, (queue_offset, broker_name), content, now_ms)


def _record(
    store: MessageStore,
    topic: str,
    one: Checkpoint,
    tag: str,
    named: tuple[int, str],
    content: dict[str, Any],
    now_ms: int,
) -> Record:
    key, (offset, broker_name) = one.key, named
    unique = f"{key.topic}@{key.queue_id}@{offset}@{key.consumer_group}@{key.pop_ms}@{broker_name}@{tag}"
    properties = encode_properties({names.TAGS: tag, names.UNIQ_KEY: unique}).encode("utf-8", "replace")
    host, port, body = store.store_host, store.store_port, orjson.dumps(content)
    revive = one.revive_queue_id
    return Record(topic, revive, 0, 0, now_ms, host, port, now_ms, 0, 0, body, properties, tags_code(tag))


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
