"""From a message to the command that carries it, and from the broker's answer to a SendResult."""

from collections.abc import Sequence
from typing import NamedTuple

from lockstep.client.config import ProducerConfig
from lockstep.client.errors import SendError, SendOutcome
from lockstep.client.send_lane import LaneNumber
from lockstep.protocol import properties as names
from lockstep.protocol.codes import PROPERTIES_BYTES_MAX, RequestCode, ResponseCode, response_name
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import HeaderError, LocalProtocolError
from lockstep.protocol.headers import SendMessageRequestHeaderV2, SendMessageResponseHeader
from lockstep.protocol.ids import UniqueKeyMaker
from lockstep.protocol.message import BatchRecord, encode_batch
from lockstep.protocol.model import Message, MessageQueue
from lockstep.protocol.names import DEFAULT_TOPIC, RESERVED_TOPICS, check_topic
from lockstep.protocol.properties import check_user_properties, encode_properties
from lockstep.remoting.runtime import Runtime

__all__ = ["Outgoing", "SendRequests", "SendResult", "SendStatus", "common_sharding_key", "read_send_reply"]

_SEND, _SEND_BATCH = int(RequestCode.SEND_MESSAGE_V2), int(RequestCode.SEND_BATCH_MESSAGE)
_CHECKED_TOPICS_MAX = 1000
_BYTES = (bytes, bytearray)
_SURELY_FITS = PROPERTIES_BYTES_MAX // 4  # no character has more than four bytes
_new_tuple = tuple.__new__  # a named tuple as its class makes it, at a third of the cost: every send makes three

# The four answers that mean "stored" (wire.md 3), under the names of Java's SendStatus.
SendStatus = {
    int(ResponseCode.SUCCESS): "SEND_OK",
    int(ResponseCode.FLUSH_DISK_TIMEOUT): "FLUSH_DISK_TIMEOUT",
    int(ResponseCode.SLAVE_NOT_AVAILABLE): "SLAVE_NOT_AVAILABLE",
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): "FLUSH_SLAVE_TIMEOUT",
}


class SendResult(NamedTuple):
    """`msg_id` is the producer's UNIQ_KEY, `offset_msg_id` the broker's id; a batch has them with commas between."""

    status: str
    msg_id: str
    queue: MessageQueue
    queue_offset: int
    offset_msg_id: str

    @property
    def queue_id(self) -> int:
        return self.queue.queue_id


class Outgoing(NamedTuple):
    """A message ready to leave; a repeat of it carries the same UNIQ_KEY."""

    code: int
    topic: str
    body: bytes
    flag: int
    properties: str
    msg_id: str
    sharding_key: str | None
    born_timestamp_ms: int
    reconsume_times: int = 0
    max_reconsume_times: int | None = None


class SendRequests:
    """Makes `Outgoing`s and their commands for one producer."""

    def __init__(
        self, group: str, config: ProducerConfig, client_id: str, unique_keys: UniqueKeyMaker, runtime: Runtime
    ) -> None:
        self._group = group
        self._config = config
        self._lane_id = f"{group}@{client_id}"
        self._unique_keys = unique_keys
        self._runtime = runtime
        self._checked_topics: set[str] = set()

    def outgoing(self, message: Message, sharding_key: str | None) -> Outgoing:
        """Raises LocalProtocolError for a message that must not be sent (wire.md 12.11)."""
        topic, body = message.topic, message.body
        if not isinstance(body, _BYTES):
            raise LocalProtocolError(f"a body must be bytes, not {type(body).__name__}; encode text first")
        self._check(topic, len(body))
        now_ms = self._runtime.now_ms()
        msg_id = self._unique_keys.next(now_ms)
        text = f"{_own_properties(message, sharding_key)}UNIQ_KEY\x01{msg_id}\x02WAIT\x01true"
        if len(text) > _SURELY_FITS and len(text.encode("utf-8", "replace")) > PROPERTIES_BYTES_MAX:
            raise LocalProtocolError(f"the properties have over {PROPERTIES_BYTES_MAX} bytes, the most RocketMQ stores")
        fields = (_SEND, topic, body, message.flag, text, msg_id, sharding_key, now_ms, 0, None)
        return _new_tuple(Outgoing, fields)

    def outgoing_batch(self, messages: Sequence[Message], sharding_key: str | None) -> Outgoing:
        """Raises LocalProtocolError likewise, and for an empty batch or one of several topics (wire.md 4.4)."""
        if not messages:
            raise LocalProtocolError("a batch holds at least one message")
        topic = messages[0].topic
        records, ids = [], []
        for message in messages:
            if message.topic != topic:
                raise LocalProtocolError(f"a batch has one topic, not both {topic!r} and {message.topic!r}")
            if message.delay_level:
                raise LocalProtocolError("a message of a batch cannot be delayed; send it by itself")
            single = self.outgoing(message, message.sharding_key if sharding_key is None else sharding_key)
            records.append(BatchRecord(single.flag, single.body, single.properties))
            ids.append(single.msg_id)
        blob = encode_batch(records)
        self._check(topic, len(blob))
        return Outgoing(_SEND_BATCH, topic, blob, 0, "", ",".join(ids), sharding_key, self._runtime.now_ms())

    def _check(self, topic: str, body_bytes: int) -> None:
        if topic not in self._checked_topics:
            if topic in RESERVED_TOPICS:
                raise LocalProtocolError(f"topic {topic!r} is RocketMQ's own; nobody may send to it")
            check_topic(topic)
            if len(self._checked_topics) < _CHECKED_TOPICS_MAX:
                self._checked_topics.add(topic)
        if not 0 < body_bytes <= self._config.body_bytes_max:
            raise LocalProtocolError(f"a body must have 1 to {self._config.body_bytes_max} bytes, not {body_bytes}")

    def command(self, queue: MessageQueue, outgoing: Outgoing, lane: LaneNumber | None = None) -> RemotingCommand:
        generation, sequence, lane_id = (None, None, None) if lane is None else (lane[0], lane[1], self._lane_id)
        header = _new_tuple(
            SendMessageRequestHeaderV2,
            (
                self._group,
                outgoing.topic,
                DEFAULT_TOPIC,
                self._config.default_topic_queue_nums,
                queue.queue_id,
                0,
                outgoing.born_timestamp_ms,
                outgoing.flag,
                outgoing.properties,
                outgoing.reconsume_times,
                False,
                outgoing.max_reconsume_times,
                outgoing.code == _SEND_BATCH,
                queue.broker_name,
                generation,
                sequence,
                lane_id,
            ),
        )
        return RemotingCommand(outgoing.code, header, outgoing.body)


def _own_properties(message: Message, sharding_key: str | None) -> str:
    """The properties that are the message's own, ready for more behind them. Raises LocalProtocolError."""
    if message.properties:
        check_user_properties(message.properties)
    if message.delay_level < 0:
        raise LocalProtocolError(f"a delay level must be 0 or above, not {message.delay_level}")
    own = message.wire_properties()
    if sharding_key is not None:
        if not sharding_key:
            raise LocalProtocolError("a sharding key must not be empty; leave it out, or name what must stay in order")
        own[names.SHARDING_KEY] = sharding_key
    if not own:
        return ""
    text = encode_properties(own)
    if text.count(names.NAME_END) != len(own) or text.count(names.PAIR_END) != len(own) - 1:
        raise LocalProtocolError("tags, keys and sharding keys must not hold 0x01 or 0x02, which part properties")
    return text + names.PAIR_END


def common_sharding_key(messages: Sequence[Message]) -> str | None:
    """The key by which a batch finds its one queue. Raises LocalProtocolError when there are several."""
    keys = list(dict.fromkeys(message.sharding_key for message in messages))
    if len(keys) > 1:
        raise LocalProtocolError(
            f"a batch goes to one queue: give it, or one sharding key, not {keys[0]!r}, {keys[1]!r}"
        )
    return keys[0] if keys else None


def read_send_reply(reply: RemotingCommand, queue: MessageQueue, outgoing: Outgoing) -> SendResult:
    """Raises SendError unless the message is stored."""
    status = SendStatus.get(reply.code)
    if status is None:
        reason = f"{response_name(reply.code)}: {reply.remark}"
        raise SendError(reason, SendOutcome.REFUSED, msg_id=outgoing.msg_id, code=reply.code)
    try:
        header = reply.decode_header(SendMessageResponseHeader)
    except HeaderError as error:
        raise SendError(f"the broker's answer: {error}", SendOutcome.UNKNOWN, msg_id=outgoing.msg_id) from None
    if header.queue_id != queue.queue_id:
        queue = queue._replace(queue_id=header.queue_id)
    return _new_tuple(SendResult, (status, outgoing.msg_id, queue, header.queue_offset, header.msg_id))
