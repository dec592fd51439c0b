"""`lockstep status` against a real broker, and one that is gone."""

import signal

import pytest

from lockstep.client.blocking import Addresses
from lockstep.protocol.codes import SerializeType
from lockstep.protocol.messages.batch import BatchRecord
from lockstep.protocol.model import MessageQueue
from tests.cli.cli_inside import Inside
from tests.commands import ForkedBroker, Lockstep, running_broker


def test_a_cluster_is_looked_at(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Well at first, then a group with messages and no member; a table and JSON; exit status 0 and 3."""
    with running_broker("--topic", "orders:1") as lockstep:
        inside = Inside(lockstep.name_server, monkeypatch, capfd)
        empty = inside("status")
        assert empty.status == 0
        assert empty.out.splitlines()[-2:] == ["1 topic, 0 groups, 0 locks of 0 owners", "all is well"]
        lockstep("produce", "orders", "-k", "k", "--text", stdin="a\nb\n")
        with lockstep.start("consume", "orders", "-g", "shop", "-f", "%s\n") as consumer:
            assert [consumer.line(), consumer.line()] == ["a\n", "b\n"]
            (online,) = inside("status", "-o", "json", "--behind", "10m").rows
        (group,) = online["groups"]
        assert (online["well"], online["not_well"], online["topics"]) == (True, [], 1)
        assert (group["name"], group["members"], online["owners"]) == ("shop", 1, 1)
        assert group["locks"] == online["locks"] >= 1
        (broker,) = online["brokers"]
        assert (broker["name"], broker["is_lockstep"], broker["version"]) == ("broker-a", True, "V4_9_8")
        assert broker["error"] is None
        lockstep("offset", "seek", "shop", "-t", "orders", "-q", "0", "--offset", "0", "--force")
        lockstep("consume", "orders", "-g", "other", "-c", "1")
        result = inside("status")
        assert result.status == 3
        assert "not well  group other: 1 message to consume, and no member is online" in result.out
        assert result.err.endswith("not well\n")
        (row,) = [line.split() for line in result.out.splitlines() if line.startswith("other")]
        assert row[:3] == ["other", "0", "1"]
        assert "--behind 'soon': give a duration" in inside("status", "--behind", "soon").err


def test_plain_sends_are_counted(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Those that the broker took from their bytes, and those that it refused, in the table and in JSON."""
    with running_broker("--topic", "orders:1") as lockstep:
        inside = Inside(lockstep.name_server, monkeypatch, capfd)
        queue = MessageQueue("orders", "broker-a", 0)
        with Addresses((lockstep.name_server,), serialize_type=SerializeType.JSON).open() as client:
            # The first message makes the queue. After a refusal the kernel does not look at the next read.
            for _ in range(5):
                client.send(queue, BatchRecord(0, b"x", ""), 0)
        assert "  3 taken, 1 refused\n" in inside("status").out
        ((broker,),) = [row["brokers"] for row in inside("status", "-o", "json").rows]
    assert (broker["sends_taken"], broker["sends_refused"]) == (3, 1)


def test_a_broker_that_does_not_answer_is_named() -> None:
    """It is registered with a name server that lives: the look says so and does not end there."""
    with ForkedBroker("--role", "name-server") as names:
        gone = ForkedBroker("--name-server", names.name_server)
        try:
            lockstep = Lockstep(names.name_server)
            while lockstep("status").status:  # it listens before it has registered
                pass
            gone.send_signal(signal.SIGSTOP)
            result = lockstep("status")
        finally:
            gone.send_signal(signal.SIGCONT)
            gone.end()
    assert result.status == 3
    assert "not well  broker broker-a: does not answer: " in result.out
    assert "not well  groups: could not be read: " in result.out
