"""Chooses queue and properties of each row, once for each distinct key instead of once a row."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from lockstep.pipeline.errors import RowError
from lockstep.pipeline.sink.sequencer import QueueSends
from lockstep.protocol.codes import PROPERTIES_BYTES_MAX
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.properties import check_user_properties
from lockstep.protocol.selector import queue_of_hash

__all__ = ["Place", "Places", "Shard", "header_text"]

_MARK_BYTES: Final = 256  # reserved for the properties of the sink
_HEAD_BYTES_MAX: Final = PROPERTIES_BYTES_MAX - _MARK_BYTES
_PARTERS: Final = (names.NAME_END, names.PAIR_END)
# Properties that producers, brokers or other columns write.
_LEFT_ASIDE: Final = frozenset({
    names.KEYS, names.TAGS, *names.SHARDING_KEY_NAMES, names.UNIQ_KEY, names.CLUSTER, names.WAIT, names.MIN_OFFSET,
    names.MAX_OFFSET, names.REAL_TOPIC, names.REAL_QID, "MSG_REGION", "TRACE_ON", "INSTANCE_ID", "SPARK_TASK",
    "SPARK_ROW",
})  # fmt: skip

Combination = tuple[str | None, ...]  # topic, key, sharding key, tags of a row


class Shard:
    """A sharding key in a topic, whose rows must stay in order. `sends` is None without a key: such rows take turns."""

    __slots__ = ("key", "last", "sends", "topic")

    def __init__(self, topic: str, key: str | None, sends: QueueSends | None) -> None:
        self.topic = topic
        self.key = key
        self.sends = sends
        self.last: Any = None  # order value of its last row


class Place(NamedTuple):
    """`head`: the properties of key and tags, with the last 0x02."""

    head: str
    shard: Shard


class Places:
    """Where the rows go. `topic` is used instead of a column.

    `queues_of(topic)` gives what a task sends to each queue of a topic, sorted by queue.
    """

    def __init__(self, queues_of: Callable[[str], Sequence[QueueSends]], topic: str | None) -> None:
        self._queues_of = queues_of
        self._topic = topic
        self._places: dict[Combination, Place] = {}
        self.shards: dict[tuple[str, str | None], Shard] = {}

    def find(self, combinations: list[Combination], first_row: int) -> list[Place]:
        """A place for each row. Raises RowError for a text that cannot be a property, TopicError, SendFailed."""
        known = self._places
        places = []
        for number, combination in enumerate(combinations):
            place = known.get(combination)
            if place is None:
                place = known[combination] = self._make(combination, first_row + number)
            places.append(place)
        return places

    def _make(self, combination: Combination, row: int) -> Place:
        column, key, sharding_key, tags = combination
        topic = self._topic or column
        if not topic:
            raise RowError(f"row {row}: topic is null or empty, and there is no option topic")
        shard_key = key if sharding_key is None else sharding_key
        if shard_key == "" or key == "":
            raise RowError(f"row {row}: {'shardingKey' if sharding_key == '' else 'key'} is empty; use null for none")
        pairs = ((names.KEYS, key), (names.TAGS, tags), (names.SHARDING_KEY, shard_key))
        head = "".join([_pair(name, value, row) for name, value in pairs if value])
        if len(head.encode()) > _HEAD_BYTES_MAX:
            raise RowError(f"row {row}: key, shardingKey and tags have over {_HEAD_BYTES_MAX} bytes together")
        shard = self.shards.get((topic, shard_key))
        if shard is None:
            queues = self._queues_of(topic)
            sends = None if shard_key is None else queue_of_hash(queues, shard_key)
            shard = self.shards[topic, shard_key] = Shard(topic, shard_key, sends)
        return Place(head, shard)


def _pair(name: str, value: str, row: int) -> str:
    if any(parter in value for parter in _PARTERS):
        raise RowError(f"row {row}: {name} must not hold 0x01 or 0x02, which part properties: {value[:80]!r}")
    return f"{name}{names.NAME_END}{value}{names.PAIR_END}"


def header_text(headers: list[dict[str, Any]] | None, row: int) -> str:
    """The user's properties of one row. Raises RowError for one that is not allowed.

    Properties that producers and brokers write are ignored, so that headers of a read message can be sent again.
    """
    text = ""
    for header in headers or ():
        name, value = header["key"], header["value"]
        if name in _LEFT_ASIDE or value is None:
            continue
        try:
            own = value.decode()
            check_user_properties({name: own})
        except (LocalProtocolError, UnicodeDecodeError) as error:
            raise RowError(f"row {row}: headers: {name!r}: {error}") from None
        text += _pair(name, own, row)
    if len(text.encode()) > _HEAD_BYTES_MAX:
        raise RowError(f"row {row}: headers have over {_HEAD_BYTES_MAX} bytes together")
    return text
