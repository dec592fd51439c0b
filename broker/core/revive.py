"""Revive: a message that a group without order popped and did not acknowledge is stored again (docs/wire.md 18.5)."""

from typing import Final

from lockstep.broker.core.broker import Broker
from lockstep.broker.core.pop import commit_settled
from lockstep.broker.messages.delays.service import record_of
from lockstep.broker.messages.pop.checkpoints import REVIVE_QUEUES, Checkpoint
from lockstep.broker.messages.pop.reader import StoreReader
from lockstep.broker.messages.pop.revive_log import REVIVE_GROUP, revive_topic
from lockstep.broker.sliced_work import Steps
from lockstep.protocol.codes import PROPERTIES_BYTES_MAX
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.message import decode_messages
from lockstep.protocol.names import is_retry_topic, pop_retry_topic
from lockstep.store import Record, StoreFull

__all__ = ["run_pops", "save_checkpoints"]

_REVIVED_AT_ONCE_MAX: Final = 100  # checkpoints: a few milliseconds of work
_SAVED_A_STEP: Final = 100  # checkpoints: about a millisecond
_STORE_FULL_WAIT_MS: Final = 1000
# The field of a stored message has 32 bits, with a sign; Java reads the length of a topic as a signed byte.
_TIMES_MAX: Final = (1 << 31) - 1
_TOPIC_BYTES_MAX: Final = 127
# As in RocketMQ: most deliveries are acknowledged before that, and cost the log nothing.
_STAY_IN_MEMORY_MS: Final = 10_000


def run_pops(broker: Broker, now_ms: int) -> None:
    """Called when `pops.next_due_ms` has come: revive checkpoints, and try again calls that wait."""
    pops = broker.messages.pops
    for checkpoint in pops.checkpoints.due(now_ms, _REVIVED_AT_ONCE_MAX):
        try:
            _revive(broker, checkpoint, now_ms)
        # One message that cannot be stored stops neither other groups' nor the timer.
        except Exception as why:
            broker.log.error("pop_revive_failed", group=checkpoint.key.consumer_group, reason=str(why))
            pops.checkpoints.defer(checkpoint, now_ms + _STORE_FULL_WAIT_MS)
    pops.held.run(now_ms)


def save_checkpoints(broker: Broker, now_ms: int) -> None:
    """Called every 10 s, for a broker with files: older deliveries enter the log, and the groups' offsets go on."""
    checkpoints = broker.messages.pops.checkpoints
    broker.work.start(checkpoints, _save_in_steps(broker, now_ms))


def _save_in_steps(broker: Broker, now_ms: int) -> Steps:
    checkpoints = broker.messages.pops.checkpoints
    try:
        for number, one in enumerate(checkpoints.unsaved(now_ms - _STAY_IN_MEMORY_MS), 1):
            # Acknowledged, or ended by a reset, since an earlier step: the log must not bring it back.
            if checkpoints.find(one.key) is one:
                # First the log, then the offset: what is before the offset does not come again after a crash.
                broker.messages.pops.revive_log.save(one, now_ms)
                commit_settled(broker, one.key.consumer_group, one.key.topic, one.key.queue_id)
            if number % _SAVED_A_STEP == 0:
                yield None
    except StoreFull as why:
        broker.log.error("pop_checkpoint_failed", reason=str(why))
    topic = revive_topic(broker.config.cluster)
    first_saved = checkpoints.first_saved()
    for queue_id in range(REVIVE_QUEUES):
        end = broker.messages.store.max_offset(topic, queue_id)
        if end:
            broker.catalog.offsets.commit(REVIVE_GROUP, topic, queue_id, first_saved.get(queue_id, end))


def _revive(broker: Broker, checkpoint: Checkpoint, now_ms: int) -> None:
    """Raises StoreFull; then what was stored is acknowledged, and the rest is tried again.

    A message that the store cannot read now is tried again, too, unless the store has dropped it.
    """
    key = checkpoint.key
    reader = StoreReader(broker.messages.store, key.topic, key.queue_id, None)
    for offset in checkpoint.left:
        message = reader.at(offset)
        if not message and offset >= broker.messages.store.min_offset(key.topic, key.queue_id):
            raise StoreFull(f"the message at {key.topic}:{key.queue_id}:{offset} cannot be read now")
        if message:
            broker.messages.put(_again(broker, checkpoint, message, now_ms))
            broker.messages.pops.revived[key.topic, key.consumer_group] += 1
        broker.messages.pops.revive_log.end(checkpoint, [offset], now_ms)
        broker.messages.pops.checkpoints.ack(key, offset)
    broker.log.info(
        "pop_revived", group=key.consumer_group, topic=key.topic, queue_id=key.queue_id, count=len(checkpoint.offsets)
    )
    commit_settled(broker, key.consumer_group, key.topic, key.queue_id)


def _again(broker: Broker, checkpoint: Checkpoint, body: bytes, now_ms: int) -> Record:
    """The message for the group's retry topic, or for its dead letters after its last retry."""
    key, topics = checkpoint.key, broker.catalog.topics
    message = decode_messages(body, unzip=False)[0]
    group = broker.catalog.groups.find(key.consumer_group, now_ms)
    retries_max = broker.config.retry_max_times if group is None else group.retry_max_times
    properties = dict(message.properties)
    properties.setdefault(names.FIRST_POP_TIME, str(key.pop_ms))
    properties[names.ORIGIN_GROUP] = key.consumer_group
    retry = key.topic if is_retry_topic(key.topic) else pop_retry_topic(key.consumer_group, key.topic)
    # What has a name longer than a topic's becomes a dead letter at once.
    if message.reconsume_times >= retries_max or len(retry.encode()) > _TOPIC_BYTES_MAX:
        topic = topics.ensure_dead_letter_topic(key.consumer_group, now_ms).topic_name
        broker.log.info("dead_letter", group=key.consumer_group, topic=topic, reconsume_times=message.reconsume_times)
    else:
        topic = topics.ensure_pop_retry_topic(retry, now_ms).topic_name
    record = record_of(message, properties, topic, 0, now_ms)
    if len(record.properties) > PROPERTIES_BYTES_MAX:
        # No room for what a pop adds: the message goes as it was sent.
        record = record_of(message, message.properties, topic, 0, now_ms)
    return record._replace(reconsume_times=min(message.reconsume_times, _TIMES_MAX - 1) + 1)
