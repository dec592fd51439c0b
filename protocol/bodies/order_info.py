"""The file consumerOrderInfo.json: the deliveries of queues that groups read in order (docs/wire.md 18.3)."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from lockstep.protocol.bodies.codec import as_int, as_list, as_object, as_table, take
from lockstep.protocol.errors import BodyError

__all__ = ["OrderInfo", "OrderInfoTable", "WaitingMessage"]


class WaitingMessage(NamedTuple):
    """A message of a fenced queue that is not consumed with all before it; RocketMQ has no such thing."""

    queue_offset: int
    key: int
    pop_ms: int
    visible_ms: int
    times_before: int
    is_acked: bool
    client: str
    attempt_id: str | None


class OrderInfo(NamedTuple):
    """The last delivery of a queue.

    Args:
        offsets: Of its messages, absolute; the file has the first, and distances from it.
        acked: Bit n: the message n is acknowledged.
        visible_ms, times_before: By queue offset, where it differs from the delivery's, or from 0.
        end: Of a fenced queue: behind the last message that was read. None: it is RocketMQ's.
        waiting: Of a fenced queue.
        in_doubt_ms: Of a fenced queue: a crash took acknowledgements of deliveries up to this name; 0: of none.
    """

    pop_ms: int
    invisible_ms: int
    offsets: tuple[int, ...]
    acked: int = 0
    visible_ms: Mapping[int, int] = {}
    times_before: Mapping[int, int] = {}
    used_ms: int = 0
    attempt_id: str | None = None
    end: int | None = None
    waiting: tuple[WaitingMessage, ...] = ()
    in_doubt_ms: int = 0

    def to_wire(self) -> dict[str, Any]:
        first = self.offsets[0] if self.offsets else 0
        wire: dict[str, Any] = {
            "cm": self.acked,
            "i": self.invisible_ms,
            "l": self.used_ms,
            "o": [*self.offsets[:1], *(offset - first for offset in self.offsets[1:])],
            "oc": {str(offset): count for offset, count in self.times_before.items()},
            "ot": {str(offset): time for offset, time in self.visible_ms.items()},
            "popTime": self.pop_ms,
        }
        if self.attempt_id is not None:
            wire["a"] = self.attempt_id
        if self.end is not None:
            wire["lockstepEnd"] = self.end
            wire["lockstepWaiting"] = [list(one) for one in self.waiting]
            wire["lockstepInDoubt"] = self.in_doubt_ms
        return wire

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "an order record")
        steps = [as_int(step, "o") for step in as_list(wire.get("o"), "o")]
        first = steps[0] if steps else 0
        end = take(wire, "lockstepEnd", int, None)
        return cls(
            take(wire, "popTime", int, 0),
            take(wire, "i", int, 0),
            (*steps[:1], *(first + step for step in steps[1:])),
            take(wire, "cm", int, 0),
            _numbers(wire.get("ot"), "ot"),
            _numbers(wire.get("oc"), "oc"),
            take(wire, "l", int, 0),
            take(wire, "a", str, None),
            end,
            tuple(map(_waiting, as_list(wire.get("lockstepWaiting"), "lockstepWaiting"))),
            take(wire, "lockstepInDoubt", int, 0),
        )


class OrderInfoTable(NamedTuple):
    """(topic, group) -> queue id -> its last delivery. `log_offset`: the end of the log when it was written."""

    table: Mapping[tuple[str, str], Mapping[int, OrderInfo]]
    log_offset: int | None = None

    def to_wire(self) -> dict[str, Any]:
        table = {
            f"{topic}@{group}": {str(queue_id): info.to_wire() for queue_id, info in queues.items()}
            for (topic, group), queues in self.table.items()
        }
        wire: dict[str, Any] = {"table": table}
        if self.log_offset is not None:
            wire["lockstepLogOffset"] = self.log_offset
        return wire

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "the file of order records")
        table: dict[tuple[str, str], dict[int, OrderInfo]] = {}
        for key, queues in as_table(wire.get("table") or {}, "table").items():
            topic, _, group = key.partition("@")
            table[topic, group] = {
                as_int(queue_id, "a queue id"): OrderInfo.from_wire(info)
                for queue_id, info in as_object(queues, key).items()
            }
        return cls(table, take(wire, "lockstepLogOffset", int, None))


def _numbers(value: Any, what: str) -> dict[int, int]:
    return {as_int(key, what): as_int(number, what) for key, number in as_object(value or {}, what).items()}


def _waiting(value: Any) -> WaitingMessage:
    row = as_list(value, "a row of lockstepWaiting")
    if len(row) != len(WaitingMessage._fields):
        raise BodyError(f"a row of lockstepWaiting has {len(WaitingMessage._fields)} members, not {len(row)}")
    queue_offset, key, pop_ms, visible_ms, times = [as_int(number, "lockstepWaiting") for number in row[:5]]
    attempt_id = None if row[7] is None else str(row[7])
    return WaitingMessage(queue_offset, key, pop_ms, visible_ms, times, bool(row[5]), str(row[6]), attempt_id)
