"""Large bodies written a few rows at a time have the bytes of those written at once."""

import random

import pytest

from lockstep.protocol.bodies.admin import ConsumeStats, OffsetWrapper
from lockstep.protocol.bodies.broker import DataVersion, TopicConfig
from lockstep.protocol.bodies.codec import decode_body, encode_body, encode_part
from lockstep.protocol.bodies.config import ConsumerOffsetTable, SubscriptionGroupWrapper, TopicConfigWrapper
from lockstep.protocol.bodies.queue_tables import queue_table
from lockstep.protocol.bodies.records import record_to_wire
from lockstep.protocol.bodies.rows import BodyRows, BodySteps
from lockstep.protocol.bodies.subscription_group import SubscriptionGroupConfig
from lockstep.protocol.codes import SerializeType
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.model import MessageQueue
from tests.rows import by_row

ENCODINGS = (SerializeType.JSON, SerializeType.MSGPACK)
VERSION = DataVersion(3, 1_700_000_000_000)
TableBody = TopicConfigWrapper | SubscriptionGroupWrapper | ConsumerOffsetTable


def run(steps: BodySteps) -> tuple[bytes, int]:
    """The body, and in how many steps it was written."""
    count = 1
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1


def names(count: int) -> list[str]:
    """In no order, of several lengths and alphabets."""
    found = [f"{'%RETRY%' * (number % 2)}g-{number}-\u00e4" for number in range(count)]
    random.Random(1).shuffle(found)
    return found


def bodies(count: int) -> list[TableBody]:
    return [
        TopicConfigWrapper(VERSION, tuple(TopicConfig(name, 4, 8, 6) for name in names(count))),
        SubscriptionGroupWrapper(VERSION, tuple(SubscriptionGroupConfig(name) for name in names(count))),
        ConsumerOffsetTable({f"T@{name}": {10: 5, 9: 7} for name in names(count)}),
    ]


@by_row("encoding", ENCODINGS)
@by_row("count", [0, 1, 15, 16, 200, 5000])
def test_tables_of_any_size(count: int, encoding: SerializeType) -> None:
    """JSON has the very bytes, msgpack the same value; a large one takes many steps."""
    for body in bodies(count):
        written, steps = run(body.encode_in_steps(encoding))
        assert steps >= count // 64
        if encoding is SerializeType.JSON:
            assert written == encode_body(body, encoding)
        whole = decode_body(type(body), encode_body(body, encoding), encoding)
        assert decode_body(type(body), written, encoding) == whole


def test_tables_that_are_as_long_as_their_header_says() -> None:
    """msgpack's headers have three lengths."""
    body = ConsumerOffsetTable({f"T@{number}": {} for number in range(70_000)})
    written, _ = run(body.encode_in_steps(SerializeType.MSGPACK))
    assert decode_body(ConsumerOffsetTable, written, SerializeType.MSGPACK) == body


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_objects_as_names(encoding: SerializeType) -> None:
    """As in tables of queues, whose order is kept."""
    table = {MessageQueue("T", "b", number): OffsetWrapper(number, 1, 2) for number in range(100)}
    rows, queues = BodyRows(encoding), list(table)
    for start in range(0, 100, 30):
        rows.add(queue_table({queue: table[queue] for queue in queues[start : start + 30]}, record_to_wire))
    written, _ = run(rows.finish({"consumeTps": 1.5}, "offsetTable"))
    assert written == encode_body(ConsumeStats(table, 1.5), encoding)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_body_as_a_row_of_another(encoding: SerializeType) -> None:
    """Whether it is short or long. A long body is put together in steps, and not once more for each body around it."""
    short, long = names(20), ["x" * 1000] * 3000
    whole, wire = BodyRows(encoding), []
    for rows in (short, long, []):
        row = BodyRows(encoding)
        for name in rows:
            row.add([name])
        whole.add_body(row, {"a": 1, "z": 2}, "rows", as_list=True)
        wire.append({"a": 1, "rows": rows, "z": 2})
    written, steps = run(whole.finish({"b": 3, "table": None}, "table", as_list=True))
    assert written == encode_part({"b": 3, "table": wire}, encoding)
    assert steps > len(written) // 300_000 > 5


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_body_that_no_frame_can_carry_is_given_up_on_the_way(encoding: SerializeType) -> None:
    """Not when it is complete."""
    steps = bodies(5000)[1].encode_in_steps(encoding, 20_000)
    with pytest.raises(LocalProtocolError, match="over 20000 bytes"):
        run(steps)
