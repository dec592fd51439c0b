"""Bodies of POP: assignments, how a group asks for messages, acknowledgements of a batch (docs/wire.md 18.1)."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Self

from lockstep.protocol.bodies.broker import queue_from_wire, queue_to_wire
from lockstep.protocol.bodies.codec import as_list, as_object, as_table, as_texts, take
from lockstep.protocol.errors import BodyError, short_text
from lockstep.protocol.model import MessageQueue

__all__ = [
    "POP",
    "PULL",
    "Assignment",
    "AssignmentsBody",
    "BatchAck",
    "BatchAckBody",
    "DeliveryRow",
    "DeliveryTableBody",
    "QueryAssignmentBody",
    "RequestMode",
    "RequestModesBody",
]

POP, PULL = "POP", "PULL"
# A delivery has 32 messages; between them may lie others that did not pass the filter.
_BITS_MAX: Final = 8192


class QueryAssignmentBody(NamedTuple):
    """Request of QUERY_ASSIGNMENT (400): which queues does a client read, and how?"""

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str = "AVG"
    message_model: str = "CLUSTERING"

    def to_wire(self) -> dict[str, Any]:
        return {
            "clientId": self.client_id,
            "consumerGroup": self.consumer_group,
            "messageModel": self.message_model,
            "strategyName": self.strategy_name,
            "topic": self.topic,
        }

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "a query of assignments")
        return cls(
            take(wire, "topic", str),
            take(wire, "consumerGroup", str),
            take(wire, "clientId", str, ""),
            take(wire, "strategyName", str, "AVG"),
            take(wire, "messageModel", str, "CLUSTERING"),
        )


class Assignment(NamedTuple):
    """A queue for a client. `mode`: POP or PULL. With POP the queue id may be -1, for all queues of the broker."""

    queue: MessageQueue
    mode: str

    def to_wire(self) -> dict[str, Any]:
        return {"messageQueue": queue_to_wire(self.queue), "mode": self.mode}

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "an assignment")
        return cls(queue_from_wire(wire.get("messageQueue")), take(wire, "mode", str, PULL))


class AssignmentsBody(NamedTuple):
    """Reply to QUERY_ASSIGNMENT. None: there is no answer, so what the client has stays."""

    assignments: tuple[Assignment, ...] | None

    def to_wire(self) -> dict[str, Any]:
        if self.assignments is None:
            return {}
        return {"messageQueueAssignments": [one.to_wire() for one in self.assignments]}

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        rows = as_object(value, "the body").get("messageQueueAssignments")
        if rows is None:
            return cls(None)
        return cls(tuple(map(Assignment.from_wire, as_list(rows, "messageQueueAssignments"))))


class RequestMode(NamedTuple):
    """How a group reads a topic. `share_queue_num`: with POP, 0 and less share all queues between all members."""

    topic: str
    consumer_group: str
    mode: str
    share_queue_num: int = 0

    def to_wire(self) -> dict[str, Any]:
        return {
            "consumerGroup": self.consumer_group,
            "mode": self.mode,
            "popShareQueueNum": self.share_queue_num,
            "topic": self.topic,
        }

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        """Raises BodyError for a mode that does not exist."""
        wire = as_object(value, "a request mode")
        mode = take(wire, "mode", str, PULL)
        if mode not in (POP, PULL):
            raise BodyError(f"the mode must be {POP} or {PULL}, not {short_text(mode)}")
        return cls(
            take(wire, "topic", str), take(wire, "consumerGroup", str), mode, take(wire, "popShareQueueNum", int, 0)
        )


class RequestModesBody(NamedTuple):
    """Reply to GET_ALL_MESSAGE_REQUEST_MODE (402), and the file messageRequestMode.json: topic -> group -> mode."""

    modes: Mapping[str, Mapping[str, RequestMode]]

    def to_wire(self) -> dict[str, Any]:
        table = {topic: {g: mode.to_wire() for g, mode in groups.items()} for topic, groups in self.modes.items()}
        return {"messageRequestModeMap": table}

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        table = as_table(as_object(value, "the body").get("messageRequestModeMap") or {}, "messageRequestModeMap")
        return cls(
            {
                topic: {group: RequestMode.from_wire(mode) for group, mode in as_table(groups, topic).items()}
                for topic, groups in table.items()
            }
        )


class BatchAck(NamedTuple):
    """Acknowledgements of one delivery of one queue. `places`: offset minus `start_offset` of each message.

    Args:
        topic_kind: As a text: "0", "1" or "2".
    """

    consumer_group: str
    topic: str
    topic_kind: str
    start_offset: int
    queue_id: int
    revive_queue_id: int
    pop_ms: int
    invisible_ms: int
    places: tuple[int, ...]

    def to_wire(self) -> dict[str, Any]:
        bits = 0
        for place in self.places:
            bits |= 1 << place
        octets = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
        return {
            "b": base64.b64encode(octets).decode(),
            "c": self.consumer_group,
            "it": self.invisible_ms,
            "pt": self.pop_ms,
            "q": self.queue_id,
            "r": self.topic_kind,
            "rq": self.revive_queue_id,
            "so": self.start_offset,
            "t": self.topic,
        }

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "a batch of acknowledgements")
        text = take(wire, "b", str, "")
        try:
            bits = int.from_bytes(base64.b64decode(text, validate=True), "little")
        except (ValueError, binascii.Error):
            raise BodyError(f"b must be a bit set in base64, not {short_text(text)}") from None
        if bits.bit_length() > _BITS_MAX:
            raise BodyError(f"b has {bits.bit_length()} bits, more than {_BITS_MAX}")
        return cls(
            take(wire, "c", str),
            take(wire, "t", str),
            take(wire, "r", str, "0"),
            take(wire, "so", int),
            take(wire, "q", int),
            take(wire, "rq", int, 0),
            take(wire, "pt", int),
            take(wire, "it", int, 0),
            tuple(place for place, bit in enumerate(reversed(f"{bits:b}")) if bit == "1"),
        )


class BatchAckBody(NamedTuple):
    """Request of BATCH_ACK_MESSAGE (200151)."""

    broker_name: str
    acks: tuple[BatchAck, ...]

    def to_wire(self) -> dict[str, Any]:
        return {"acks": [one.to_wire() for one in self.acks], "brokerName": self.broker_name}

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "the body")
        acks = tuple(map(BatchAck.from_wire, as_list(wire.get("acks"), "acks")))
        return cls(take(wire, "brokerName", str, ""), acks)


class DeliveryRow(NamedTuple):
    """The newest delivery of a message that is not acknowledged. Times are epoch ms by the broker's clock.

    Args:
        key_hash: Of the key that waits for it. None: it has none, or the whole queue waits, as in RocketMQ's way.
        client_id: Who has it. None: RocketMQ's way does not keep it.
        visible_ms: Until then nobody else gets it.
        times_before: How often it was delivered before.
    """

    queue: MessageQueue
    queue_offset: int
    pop_ms: int
    visible_ms: int
    times_before: int
    key_hash: int | None = None
    client_id: str | None = None

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {
            "messageQueue": queue_to_wire(self.queue),
            "popTime": self.pop_ms,
            "queueOffset": self.queue_offset,
            "timesBefore": self.times_before,
            "visibleTime": self.visible_ms,
        }
        if self.key_hash is not None:
            wire["keyHash"] = self.key_hash
        if self.client_id is not None:
            wire["clientId"] = self.client_id
        return wire

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "a delivery")
        return cls(
            queue_from_wire(wire.get("messageQueue")),
            take(wire, "queueOffset", int),
            take(wire, "popTime", int),
            take(wire, "visibleTime", int),
            take(wire, "timesBefore", int),
            take(wire, "keyHash", int, None),
            take(wire, "clientId", str, None),
        )


class DeliveryTableBody(NamedTuple):
    """Reply to LIST_DELIVERIES (30010).

    Args:
        late: Answers to deliveries that had ended, which were ignored.
        stale: Likewise, which were refused.
        stale_ms: When the last one was, in epoch ms.
        revived: Messages that were stored again, as nobody acknowledged them: of a group without order.
        topics: Of which the group pops messages in order.
    """

    rows: tuple[DeliveryRow, ...]
    late: int = 0
    stale: int = 0
    stale_ms: int = 0
    revived: int = 0
    topics: tuple[str, ...] = ()

    def to_wire(self) -> dict[str, Any]:
        return {"deliveryTable": [row.to_wire() for row in self.rows], **self.rest_to_wire()}

    def rest_to_wire(self) -> dict[str, Any]:
        return {
            "late": self.late,
            "revived": self.revived,
            "stale": self.stale,
            "staleTime": self.stale_ms,
            "topics": list(self.topics),
        }

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "a table of deliveries")
        rows = tuple(map(DeliveryRow.from_wire, as_list(wire.get("deliveryTable"), "deliveryTable")))
        return cls(
            rows,
            take(wire, "late", int, 0),
            take(wire, "stale", int, 0),
            take(wire, "staleTime", int, 0),
            take(wire, "revived", int, 0),
            as_texts(wire.get("topics"), "topics"),
        )
