"""`lockstep bench`: its figures, and that it removes what it made."""

import signal
from collections.abc import Iterator

import pytest

from lockstep.cli.bench.figures import percentiles
from lockstep.cli.bench.handover import Rests
from lockstep.cli.bench.place import paced
from lockstep.protocol.messages.message import MessageExt, Record, decode_messages, encode_stored_message
from lockstep.simulation import World, simulate
from tests.commands import Lockstep, running_broker

MINE = "lockstep-bench-"


@pytest.fixture(scope="module")
def lockstep() -> Iterator[Lockstep]:
    with running_broker("--lock-mode", "fenced") as command:
        yield command


def left(lockstep: Lockstep) -> list[str]:
    """Topics and groups of measurements."""
    topics = [row["topic"] for row in lockstep("topic", "list", "--all", "-o", "json").rows]
    groups = [row["group"] for row in lockstep("group", "list", "-o", "json").rows]
    return [name for name in topics + groups if MINE in name]


def test_percentiles_are_milliseconds() -> None:
    """Of nanoseconds in any order; of one time all are that time, of none 0."""
    assert percentiles([3_000_000, 1_000_000, 2_000_000])["p50_ms"] == 2.0
    assert set(percentiles([1_500_000]).values()) == {1.5}
    assert set(percentiles([]).values()) == {0.0}


def message(queue_id: int, offset: int) -> MessageExt:
    host = b"\x7f\0\0\x01"
    record = Record("orders", queue_id, 0, 0, 1, host, 1, 1234, 0, 0, b"x", b"", 0)
    (stored,) = decode_messages(encode_stored_message(record, b"orders", offset, 0, host, 2), "broker-a")
    return stored


def test_a_rest_is_from_the_last_end_to_the_next_owners_begin() -> None:
    """Of each queue; a queue that came from the guest is of its leave. What is handled twice is counted."""
    rests = Rests()
    for owner, queue_id, offset, began, ended in (
        ("stays", 0, 0, 10, 20),
        ("stays", 1, 0, 11, 21),
        ("guest", 1, 1, 50, 60),
        ("stays", 0, 1, 55, 65),
        ("stays", 1, 1, 90, 95),
    ):
        rests.began(owner, message(queue_id, offset), began)
        rests.ended(owner, message(queue_id, offset), ended)
    assert rests.rests_ns == {"join": [29], "leave": [30]}
    assert rests.repeated == 1
    assert rests.owners() == {"stays": 2}


def test_live_messages_have_their_rate() -> None:
    """What sends take is not added to the time between them; after a long one the next ones make up for it."""

    async def sent(world: World) -> list[int]:
        runtime, times = world.host("client"), list[int]()
        async for number in paced(runtime, range(1, 201), 200):
            times.append(world.elapsed_ms)
            await world.sleep_ms(12 if number == 100 else 3)
        return times

    due = [5 * place for place in range(200)]
    due[100:104] = [507, 510, 513, 516]
    assert simulate(sent).value == due


def test_sends_are_measured(lockstep: Lockstep) -> None:
    """All messages, in a table or as JSON; nothing is left."""
    result = lockstep("bench", "send", "--messages", "200", "--in-flight", "4", "--queues", "2", "-o", "json")
    assert result.status == 0, result.err
    (row,) = result.rows
    assert (row["bench"], row["messages"]) == ("send", 200)
    assert 0 < row["p50_ms"] <= row["p90_ms"] <= row["p99_ms"] <= row["p999_ms"] <= row["max_ms"]
    assert row["messages_a_second"] > 0
    assert left(lockstep) == []


def test_consuming_is_measured(lockstep: Lockstep) -> None:
    """Stored messages first, which batches spread over all queues, then live ones."""
    options = ("--messages", "305", "--live", "10", "--queues", "3", "--rate", "100")
    result = lockstep("bench", "consume", *options, "-o", "json")
    assert result.status == 0, result.err
    (row,) = result.rows
    assert (row["messages"], row["live"]) == (305, 10)
    assert 0 < row["p50_ms"] <= row["max_ms"]
    assert left(lockstep) == []


def test_the_largest_messages_are_consumed_too(lockstep: Lockstep) -> None:
    """They are sent one by one: a batch of one of them would be too large."""
    options = ("--messages", "2", "--live", "1", "--queues", "1", "--size", str(4 * 1024 * 1024))
    result = lockstep("bench", "consume", *options, "-o", "json")
    assert result.status == 0, result.err
    assert [(row["messages"], row["live"]) for row in result.rows] == [(2, 1)]


def test_handovers_are_measured(lockstep: Lockstep) -> None:
    """Each round moves half of the queues there and back; under fenced locks nothing is handled twice."""
    result = lockstep("bench", "handover", "--rounds", "2", "--queues", "4", "--fenced")
    assert result.status == 0, result.err
    header, join, leave = (line.split("  ") for line in result.out.splitlines())
    assert header[0] == "BENCH"
    for words, event in ((join, "join"), (leave, "leave")):
        fields = [word.strip() for word in words if word]
        assert fields[1] == event
        assert int(fields[2]) >= 4
        assert fields[-1] == "0"
    assert left(lockstep) == []


def test_ctrl_c_removes_topic_and_group(lockstep: Lockstep) -> None:
    """The topic is there while it runs."""
    with lockstep.start("bench", "consume", "--messages", "10", "--live", "1000000", "--rate", "5") as running:
        while not left(lockstep):
            pass
        result = running.stop(signal.SIGINT)
    assert result.status == 130
    assert left(lockstep) == []
