"""A broker that listens on an IPv6 address, and commands that are given addresses in brackets."""

import socket
from pathlib import Path

import pytest

from tests.commands import ForkedBroker, Lockstep


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


pytestmark = [pytest.mark.long, pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6")]


def test_messages_are_kept_and_found_by_id(tmp_path: Path) -> None:
    """Sends, pulls, locks, ids with 16 address bytes, metrics and a restart on the files work as on IPv4."""
    options = ("--host", "::1", "--data-dir", str(tmp_path), "--metrics-port", "0", "--topic", "orders:2")
    with ForkedBroker(*options) as broker:
        assert broker.name_server.startswith("[::1]:")
        assert broker.address.startswith("[::1]:")
        assert broker.addresses.metrics.startswith("http://[::1]:")
        lockstep, port = Lockstep(broker.name_server), str(broker.port)
        sent = lockstep("produce", "orders", "--key-field", "k", stdin='{"k": 1}\n{"k": 2}\n')
        assert sent.status == 0, sent.err
        (status,) = lockstep("status", "-o", "json").rows
        assert status["brokers"][0]["address"] == broker.address
    with ForkedBroker(*options, "--port", port) as broker:
        lockstep = Lockstep(broker.name_server)
        consumed = lockstep("consume", "orders", "-g", "shop", "--exit-at-end")
        assert (consumed.status, len(consumed.rows)) == (0, 2)
        newest = lockstep("message", "tail", "-t", "orders", "-o", "json").rows[-1]
        place = (f"{newest['broker']}:{newest['queue_id']}", "--offset", str(newest["offset"]))
        (found,) = lockstep("message", "find", "-t", "orders", "-q", *place, "-o", "json").rows
        assert found["store_host"] == broker.address
        by_id = lockstep("message", "get", found["offset_message_id"], "-o", "json")
        assert by_id.status == 0, by_id.err


def test_several_brokers_register_at_an_ipv6_name_server() -> None:
    """The brokers of `--brokers 2` reach the name server of their command."""
    with ForkedBroker("--brokers", "2", "--host", "::1", "--topic", "orders:1") as broker:
        assert broker.addresses.broker.count("[::1]:") == 2
        topics = Lockstep(broker.name_server)("topic", "list", "-o", "json")
        assert topics.rows[0]["queues"] == 2


@pytest.mark.parametrize("brokers", [(), ("--brokers", "2")])
def test_every_address_of_the_machine_may_be_one_of_ipv6(brokers: tuple[str, ...]) -> None:
    """Messages go through; brokers of a command reach its name server over loopback, whatever they listen at."""
    with ForkedBroker(*brokers, "--host", "::", "--advertise", "::1", "--topic", "orders:1") as broker:
        count = 1 + bool(brokers)
        assert broker.address.count("[::1]:") == count
        lockstep = Lockstep(broker.name_server)
        sent = lockstep("produce", "orders", "--text", stdin="a\nb\nc\nd\n")
        assert sent.status == 0, sent.err
        consumed = lockstep("consume", "orders", "-g", "shop", "--exit-at-end")
        assert (consumed.status, len(consumed.rows)) == (0, 4)
        (topic,) = lockstep("topic", "list", "-o", "json").rows
        assert topic["queues"] == count
        registered = [line for line in broker.stderr().splitlines() if " registered " in line]
        assert len(registered) == (count if brokers else 0)
        assert all(f"name_server={broker.name_server}" in line for line in registered)
