"""A key finds its queue as Java's SelectMessageQueueByHash does, so that producers in every language agree."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.client import (
    Message,
    MessageQueue,
    select_by_group,
    select_by_hash,
    select_by_machine_room,
    select_by_random,
)
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.filter import java_string_hash
from tests.rows import by_row


def queues(count: int) -> list[MessageQueue]:
    return [MessageQueue("T", "broker-a", i) for i in range(count)]


def chosen(arg: object, count: int) -> int:
    return select_by_hash(queues(count), None, arg).queue_id


# Values of String.hashCode in Java 8 to 21.
@by_row(
    "text, java_hash",
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("Hello, World!", 1498789909),
        ("polygenelubricants", -(2**31)),  # the well-known text of hash Integer.MIN_VALUE
        ("DESIGNING WORKHOUSES", -(2**31)),
        ("Aa", 2112),
        ("BB", 2112),
        ("\u00e9", 233),
        ("\U0001f600", 1772899),  # two UTF-16 units: 31 * 0xD83D + 0xDE00
    ],
)
def test_hashes_are_javas(text: str, java_hash: int) -> None:
    """String.hashCode on UTF-16 units, a signed 32-bit number."""
    assert java_string_hash(text) == java_hash
    for count in (1, 3, 4, 7, 16):
        assert chosen(text, count) == abs(java_hash) % count


@by_row(
    "arg, count, queue_id",
    [
        (-1, 4, 1),  # Java: -1 % 4 is -1, abs 1; Python's -1 % 4 would be 3
        (-5, 3, 2),
        (-(2**31), 3, 2),  # -2147483648 % 3 is -2
        (-(2**31), 7, 2),
        (-(2**31), 4, 0),
        (2**31 - 1, 4, 3),
        (7, 4, 3),
        (0, 4, 0),
        (2**31, 4, 0),  # Long.hashCode folds: 0x80000000 is Integer.MIN_VALUE
        (2**32, 4, 1),
        (2**32 + 1, 4, 0),
        (-(2**31) - 1, 3, 2),  # 0x7FFFFFFF ^ 0xFFFFFFFF: Integer.MIN_VALUE again
        (2**63 - 1, 5, 3),  # and again
        (-(2**63), 4, 0),
        (-(2**63) + 1, 7, 1),  # 0x80000000 ^ 1: -2147483647
    ],
)
def test_numbers_hash_as_integer_and_long(arg: int, count: int, queue_id: int) -> None:
    """A number is an Integer where it fits one, else a Long."""
    assert chosen(arg, count) == queue_id


def test_other_objects_hash_as_their_text() -> None:
    """An order id of a user's class hashes as its str()."""

    class OrderId:
        def __str__(self) -> str:
            return "hello"

    assert chosen(OrderId(), 4) == chosen("hello", 4) == 99162322 % 4


@given(st.text() | st.integers(-(2**63), 2**63 - 1), st.integers(1, 64))
def test_any_key_finds_a_queue_and_always_the_same(arg: object, count: int) -> None:
    """No key is without a queue, and equal keys never part."""
    assert 0 <= chosen(arg, count) < count
    assert chosen(arg, count) == chosen(arg, count)


def test_a_message_group_finds_the_queue_of_rocketmq_5() -> None:
    """One of its recorded queues; a message without a group would be out of order anywhere."""
    message = Message("T", b"x")
    assert [select_by_group(queues(count), message, "order-17").queue_id for count in (2, 3, 4, 8, 16)] == [
        1,
        2,
        3,
        3,
        3,
    ]
    for nothing in (None, "", 7):
        with pytest.raises(LocalProtocolError, match="no message group"):
            select_by_group(queues(4), message, nothing)


# Other selectors ---------------------------------------------------------------------------------------------


def test_random_queues() -> None:
    """Every queue has its turn, whatever the message; the same chance gives the same choice."""
    message = Message("T", b"x")

    def picks(seed: int) -> list[int]:
        select = select_by_random(random.Random(seed))
        return [select(queues(4), message, "hello").queue_id for _ in range(40)]

    assert set(picks(1)) == {0, 1, 2, 3}
    assert picks(1) == picks(1) != picks(2)


ROOMS = [MessageQueue("T", name, i) for name in ("east@a", "east@b", "none", "west@a") for i in range(2)]


def test_queues_of_the_machine_room() -> None:
    """Only brokers named room@name count; within them the key decides, or another selector."""
    message = Message("T", b"x")
    east = select_by_machine_room({"east"})
    for number in range(20):
        chosen = east(ROOMS, message, f"key{number}")
        assert chosen == select_by_hash(ROOMS[:4], message, f"key{number}")
    both = select_by_machine_room(["west", "east"], within=lambda near, _message, _arg: near[-1])
    assert both(ROOMS, message, None) == MessageQueue("T", "west@a", 1)


@pytest.mark.parametrize("rooms", [["north"], ["none"], []])
def test_no_queue_in_the_machine_room(rooms: list[str]) -> None:
    """The message does not leave its room for want of a queue."""
    with pytest.raises(LocalProtocolError, match="no queue in the machine rooms"):
        select_by_machine_room(rooms)(ROOMS, Message("T", b"x"), "k")
