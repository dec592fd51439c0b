"""Recall: a message that waits for its time is not delivered (docs/wire.md 18.7)."""

from lockstep.broker.core.broker import Broker
from lockstep.broker.core.refused import Reason, Refused
from lockstep.broker.messages.delays.timers import TimerRefused, recall_record
from lockstep.protocol.codes import Permission
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.recall import RecallHandle

__all__ = ["recall"]


def recall(broker: Broker, topic: str, handle: str, now_ms: int) -> str:
    """Recall the message of a handle. As in RocketMQ it need not be there, and may be recalled before.

    Returns:
        The message's id.

    Raises:
        Refused: The message is not recalled.
        StoreFull: The message is not recalled.
    """
    if not broker.config.recall_message_enable:
        raise Refused(Reason.NOT_PERMITTED, "recall failed, operation is forbidden")
    if not broker.config.broker_permission & Permission.WRITE:
        raise Refused(Reason.NOT_PERMITTED, "recall failed, broker service not available")
    if broker.catalog.topics.get(topic) is None:
        raise Refused(Reason.NO_TOPIC, f"recall failed, the topic[{topic}] not exist")
    try:
        named = RecallHandle.decode(handle)
    except LocalProtocolError as error:
        raise Refused(Reason.ILLEGAL_OPERATION, str(error)) from None
    if named.topic != topic:
        raise Refused(Reason.ILLEGAL_OPERATION, "recall failed, topic not match")
    if named.broker_name != broker.config.broker_name:
        raise Refused(Reason.ILLEGAL_OPERATION, "recall failed, broker service not available")
    if not 0 < named.deliver_at_ms - now_ms < broker.config.timer_delay_max_sec * 1000:
        raise Refused(Reason.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
    messages, at_ms, message_id = broker.messages, named.deliver_at_ms, named.message_id
    try:
        messages.timers.check_room()
    except TimerRefused as why:
        raise Refused(Reason.INVALID, str(why)) from None
    # First stored: what is not delivered stays so after a crash.
    messages.put(recall_record(messages.store, topic, message_id, at_ms, now_ms))
    messages.timers.recall(at_ms, topic, message_id)
    broker.log.info("message_recalled", topic=topic, msg_id=message_id)
    return message_id
