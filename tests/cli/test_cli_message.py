"""`lockstep message` as a user runs it, against a real broker."""

import json
import signal
from collections.abc import Iterator

import pytest

from tests.cli.cli_inside import Inside
from tests.commands import Lockstep, running_broker, without_progress
from tests.rows import by_row

LINES = [
    {
        "topic": "orders",
        "key": f"K{n % 2}",
        "tags": "odd" if n % 2 else "even",
        "keys": f"order-{n} all",
        "body": f"b{n}",
    }
    for n in range(25)
]


@pytest.fixture(scope="module")
def lockstep() -> Iterator[Lockstep]:
    """The command with a broker of this module's own, and 25 messages of two keys in topic `orders`."""
    with running_broker() as command:
        assert command("topic", "create", "orders", "--queues", "2").status == 0
        sent = command("produce", "orders", "--envelope", stdin="".join(json.dumps(line) + "\n" for line in LINES))
        assert sent.status == 0, sent.err
        yield command


@pytest.fixture
def inside(lockstep: Lockstep, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Inside:
    return Inside(lockstep.name_server, monkeypatch, capfd)


def bodies(out: str) -> list[str]:
    return [json.loads(line)["body"] for line in out.splitlines()]


def test_messages_are_found_by_key_and_by_place(inside: Inside) -> None:
    """Each word of KEYS is one; of many the newest; a queue and an offset name one message."""
    (found,) = inside("message", "find", "-t", "orders", "--keys", "order-7", "-o", "json").rows
    assert (found["body"], found["keys"], found["key"]) == ("b7", "order-7 all", "K1")
    newest = inside("message", "find", "-t", "orders", "--keys", "all", "--max", "3", "-o", "json")
    assert sorted(row["body"] for row in newest.rows) == ["b22", "b23", "b24"]
    assert "the newest 3 messages; --max and --end find others" not in newest.err
    place = f"{found['broker']}:{found['queue_id']}"
    (same,) = inside(
        "message", "find", "-t", "orders", "-q", place, "--offset", str(found["offset"]), "-o", "json"
    ).rows
    assert same == found
    header, line = inside("message", "find", "-t", "orders", "--keys", "order-7").out.splitlines()
    assert header.split()[:3] == ["STORED", "QUEUE", "OFFSET"]
    assert line.endswith("b7")


def test_messages_are_found_by_the_sharding_key_that_sends_them(inside: Inside) -> None:
    """As `produce --key` sets it: oldest first, of many the newest, within a time; a word of KEYS is none."""

    def found(*arguments: str) -> list[str]:
        rows = inside("message", "find", "-t", "orders", "--key", "K1", "-o", "json", *arguments).rows
        assert {row["key"] for row in rows} <= {"K1"}
        return [row["body"] for row in rows]

    odd = [f"b{n}" for n in range(1, 25, 2)]
    assert found() == found("--begin", "10m ago", "--end", "now") == odd
    assert found("--max", "3") == odd[-3:]
    assert found("--end", "1h ago") == []
    assert "the newest 3 messages" in inside("message", "find", "-t", "orders", "-k", "K1", "--max", "3").err


def test_a_message_is_got_by_either_id_with_who_consumed_it(lockstep: Lockstep, inside: Inside) -> None:
    """Its own id takes the topic; groups say what RocketMQ's messageTrackDetail says of them."""
    (found,) = inside("message", "find", "-t", "orders", "--keys", "order-24", "-o", "json").rows
    lockstep("consume", "orders", "-g", "away", "-e")
    with lockstep.start("consume", "orders", "-g", "here", "-f", "%s\n", "-D", "pullInterval=0") as here:
        assert {here.line() for _ in LINES} == {f"b{n}\n" for n in range(25)}
        with lockstep.start("consume", "orders", "-g", "odd", "--tags", "odd", "-f", "%s\n") as odd:
            assert {odd.line() for _ in range(12)} == {f"b{n}\n" for n in range(1, 25, 2)}
            odd.stop(signal.SIGINT)
        got = inside("message", "get", found["msg_id"], "-t", "orders", "-o", "json")
        handed = inside("message", "hand", found["offset_message_id"], "-g", "here", "-o", "json")
        assert here.line() == "b24\n", "handed to the listener once more"
        here.stop(signal.SIGINT)
    assert [(row["result"], row["orderly"]) for row in handed.rows] == [("CR_SUCCESS", True)]
    nobody = inside("message", "hand", found["offset_message_id"], "-g", "here")
    assert (nobody.status, nobody.err) == (1, "lockstep: no member of group 'here' is online\n")
    (row,) = got.rows
    states = {entry["group"]: entry["state"] for entry in row.pop("consumed_by")}
    assert row == found
    assert states["away"] == states["odd"] == "NOT_ONLINE"
    assert states["here"] in ("CONSUMED", "NOT_CONSUME_YET")  # its offset is stored each 5 s
    by_offset = inside("message", "get", found["offset_message_id"])
    assert by_offset.status == 0
    assert ["store", "host"] in [line.split()[:2] for line in by_offset.out.splitlines()]
    assert ["body", "b24"] in [line.split() for line in by_offset.out.splitlines()]
    assert ["away", "NOT_ONLINE"] in [line.split() for line in by_offset.out.splitlines()]


def test_tail_shows_the_last_or_begins_where_it_is_told(inside: Inside) -> None:
    """The last ten or --count over all queues, in order of time; with --from, --count stops; tags choose."""
    assert len(inside("message", "tail", "-t", "orders").out.splitlines()) == 10
    assert len(inside("message", "tail", "-t", "orders", "-c", "24", "-o", "json").rows) == 24
    last = bodies(inside("message", "tail", "-t", "orders", "-c", "99", "-o", "json").out)
    assert len(last) == len(set(last)) == 25
    assert [body for body in last if int(body[1:]) % 2] == [f"b{n}" for n in range(1, 25, 2)], "a queue's own order"
    first = inside("message", "tail", "-t", "orders", "--from", "first", "-c", "5", "--format", "%p:%o\n").out
    assert len(first.splitlines()) == 5
    assert {"0:0", "1:0"} & set(first.splitlines())
    assert len(inside("message", "tail", "-t", "orders", "--from", "10m ago", "-o", "json").rows) == 25
    assert inside("message", "tail", "-t", "orders", "--from", "now").out == ""
    odd = inside("message", "tail", "-t", "orders", "--tag", "odd", "-c", "12", "-o", "json")
    assert bodies(odd.out) == [f"b{n}" for n in range(1, 25, 2)]
    queue = inside("message", "tail", "-t", "orders", "-q", "1", "--from", "first", "-o", "json")
    assert {row["queue_id"] for row in queue.rows} == {1}


def test_tail_goes_on_with_what_comes(lockstep: Lockstep, inside: Inside) -> None:
    """Until Ctrl-C, with status 130 and nothing said; or until --count."""
    assert inside("topic", "create", "live", "--queues", "2").status == 0
    with lockstep.start("message", "tail", "-t", "live", "-f", "--format", "%s\n") as running:
        lockstep("produce", "live", "-k", "k", "--text", stdin="one\n")
        assert running.line() == "one\n"
        lockstep("produce", "live", "-k", "k", "--text", stdin="two\nthree\n")
        assert [running.line(), running.line()] == ["two\n", "three\n"]
        counted = inside("message", "tail", "-t", "live", "-f", "--from", "first", "-c", "2", "--format", "%s\n")
        assert (counted.status, counted.out) == (0, "one\ntwo\n")
        result = running.stop(signal.SIGINT)
    assert (result.status, result.out, result.err) == (130, "", "")


@by_row(
    "arguments, status, complaint",
    [
        ("get nonsense -t orders", 1, "no message of topic 'orders' has the id nonsense"),
        ("get 7F000001000000010000000000000000", 1, "127.0.0.1:1 is the broker that the id names"),
        ("hand nonsense -g g", 2, "'nonsense' is no offset message id"),
        ("find -t orders", 2, "give one of --key (the sharding key), --keys (a word of KEYS), --queue with --offset"),
        ("find -t orders -k a --keys a", 2, "give one of --key (the sharding key), --keys"),
        ("find -t orders -q 0", 2, "--queue and --offset go together"),
        ("find -t orders -q 0 --offset 1 --begin now", 2, "--begin and --end are for --key and --keys"),
        ("find -t orders -q 0 --offset 1000", 1, "has no message at offset 1000; it has 0 to"),
        ("find -t orders -k all", 1, "has the sharding key 'all' in that time; --keys finds a word of KEYS"),
        ("find -t orders --keys K1", 1, "has 'K1' among its KEYS in that time; --key finds a sharding key"),
        ("find -t nosuch -k a", 1, "topic 'nosuch' does not exist"),
        ("tail -t nosuch", 1, "topic 'nosuch' does not exist"),
        ("tail -t orders -n 127.0.0.1:1", 1, "no name server answered: cannot connect to 127.0.0.1:1"),
    ],
)
def test_a_wrong_call_is_told_in_one_line(inside: Inside, arguments: str, status: int, complaint: str) -> None:
    """Nothing on stdout, no traceback."""
    result = inside("message", *arguments.split())
    assert (result.status, result.out) == (status, "")
    assert complaint in result.err
    said = without_progress(result.err)
    assert said.startswith("lockstep: ")
    assert said.count("\n") == 1
