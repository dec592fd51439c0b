"""Commands over a queue with a body that cannot be unpacked, against a real broker: each shows it and goes on."""

import asyncio
from collections.abc import Iterator

import pytest

from lockstep.client import Message, Producer, ProducerConfig
from tests.cli.cli_inside import Inside
from tests.commands import Lockstep, running_broker

WHY = "a body flagged as compressed is not zstd"
ZSTD = 0x201


async def send_three(name_server: str) -> None:
    """Bodies b0, b1, b2; the sysFlag of b1 says zstd, which it is not."""
    config = ProducerConfig(compress_msg_body_over_howmuch=1)
    async with Producer("unreadable", name_server=name_server, config=config) as producer:
        assert producer._parts is not None

        def corrupt(body: bytes, flag: int) -> tuple[bytes, int]:
            return body, flag | ZSTD if body == b"b1" else flag

        producer._parts.requests._compress = corrupt  # type: ignore[method-assign, assignment]
        for number in range(3):
            await producer.send(Message("corrupted", b"b%d" % number, keys=f"order-{number}", sharding_key="K"))


@pytest.fixture(scope="module")
def lockstep() -> Iterator[Lockstep]:
    with running_broker() as command:
        assert command("topic", "create", "corrupted", "--queues", "1").status == 0
        asyncio.run(send_three(command.name_server))
        yield command


@pytest.fixture
def inside(lockstep: Lockstep, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Inside:
    return Inside(lockstep.name_server, monkeypatch, capfd)


def test_message_commands_show_what_is_wrong(inside: Inside) -> None:
    """`tail` has all three; `find` and `get` have the one, with its stored bytes and why they are not its body."""
    tail = inside("message", "tail", "-t", "corrupted", "-o", "json").rows
    assert [(row["body"], row.get("body_error", "")[: len(WHY)]) for row in tail] == [
        ("b0", ""),
        ("b1", WHY),
        ("b2", ""),
    ]
    found = inside("message", "find", "-t", "corrupted", "--keys", "order-1", "-o", "json")
    (row,) = found.rows
    assert (row["body"], row["body_error"][: len(WHY)]) == ("b1", WHY)
    assert "message_unreadable" in found.err
    got = inside("message", "get", row["offset_message_id"])
    assert got.status == 0, got.err
    assert WHY in got.out


def test_consume_goes_on_and_its_envelopes_are_refused(lockstep: Lockstep) -> None:
    """-e ends, with the offset behind all three; `produce --envelope` names the line and sends none of its bytes."""
    consumed = lockstep("consume", "corrupted", "-g", "readers", "-e")
    assert consumed.status == 0, consumed.err
    assert [row["body"] for row in consumed.rows] == ["b0", "b1", "b2"]
    assert consumed.err.count("message_unreadable") == 1
    described = lockstep("group", "describe", "readers", "-o", "json")
    assert described.status == 0, described.err
    (queue,) = [row for row in described.rows[0]["queues"] if row["topic"] == "corrupted"]
    assert (queue["committed_offset"], queue["lag"]) == (3, 0)
    refused = lockstep("produce", "corrupted2", "--envelope", stdin=consumed.out)
    assert refused.status == 1
    assert "line 2: has a body that could not be read" in refused.err
    others = lockstep("produce", "corrupted3", "--envelope", "--skip-bad-lines", stdin=consumed.out)
    assert others.status == 0, others.err
    assert "sent 2 messages" in others.err
