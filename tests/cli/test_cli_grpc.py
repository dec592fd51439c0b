"""What commands show of a group whose members speak gRPC."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lockstep.remoting.host.runtime import AsyncioRuntime
from tests.cli.cli_inside import Inside
from tests.commands import END_S, ForkedBroker, Lockstep

pb = pytest.importorskip("lockstep.protocol.grpc.messages")

from tests.broker.fronts.grpc.grpc_client import GrpcClient  # noqa: E402, after the extra was found


@contextmanager
def member(address: str, group: str, topic: str) -> Iterator[None]:
    """A simple consumer, on a thread of its own, that holds what it received."""
    holds, ends = threading.Event(), threading.Event()

    async def consume() -> None:
        client = await GrpcClient.connect(AsyncioRuntime(), address, "grpc-1")
        await client.consume(group, topic)
        while not await client.receive(group, topic, 1, invisible_duration=pb.Duration(seconds=600)):
            continue
        holds.set()
        await asyncio.to_thread(ends.wait)
        client.close()

    thread = threading.Thread(target=lambda: asyncio.run(consume()), daemon=True)
    thread.start()
    assert holds.wait(END_S)
    try:
        yield
    finally:
        ends.set()
        thread.join(END_S)


def test_a_group_of_grpc_is_shown(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Its members with what they speak, their deliveries and lag, until a reset; the doctor finds nothing."""
    with ForkedBroker("--grpc-port", "0") as broker:
        lockstep, inside = Lockstep(broker.name_server), Inside(broker.name_server, monkeypatch, capfd)
        assert inside("topic", "create", "T", "--queues", "1", "--type", "fifo").status == 0
        assert inside("group", "create", "G", "--fifo").status == 0
        assert lockstep("produce", "T", "-k", "k", "--text", stdin="a\nb\n").status == 0
        with member(broker.addresses.grpc, "G", "T"):
            (described,) = inside("group", "describe", "G", "--why", "-o", "json").rows
            table = inside("group", "describe", "G").out
            (listed,) = inside("group", "list", "-o", "json").rows
            found = inside("doctor", "-o", "json").rows
            reset = inside("offset", "reset", "G", "-t", "T", "--to-time", "latest", "--force", "--yes")
            (after,) = inside("group", "describe", "G", "-o", "json").rows
    (one,) = described["members"]
    assert (one["client_id"], one["grpc_client_type"]) == ("grpc-1", "SIMPLE_CONSUMER")
    assert (one["orderly"], one["pops"], one["consume_type"]) == (True, True, "CONSUME_ACTIVELY")
    assert (described["total_lag"], described["rebalance"]) == (2, [])
    assert [(row["client"], row["offset"]) for row in described["deliveries"]] == [("grpc-1", 0)]
    assert "pops orderly (gRPC simple consumer), clustering" in table
    assert (listed["members"], listed["in_order"]) == (1, True)
    assert (found, reset.status) == ([], 0)
    assert (after["total_lag"], after["deliveries"]) == (0, [])
