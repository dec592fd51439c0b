"""The blocking client against a broker: routes, offsets, pulls, sends, and what it does when nobody answers."""

import pickle
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator

import pytest

from lockstep.client.blocking import Addresses
from lockstep.client.errors import NoRouteError, TopicNotFoundError
from lockstep.protocol.codes import RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import QueueRequestHeader
from lockstep.protocol.messages.batch import BatchRecord
from lockstep.protocol.messages.message import decode_messages
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.connections.blocking_endpoint import BlockingEndpoint
from lockstep.remoting.errors import ConnectFailed, ConnectionLost, RequestRefused
from tests.commands import ForkedBroker
from tests.integration.harness.ports import free_port

QUEUES = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(2)]


@pytest.fixture
def broker() -> Iterator[ForkedBroker]:
    """A broker with an empty topic T of two queues."""
    with ForkedBroker("--topic", "T:2") as started:
        yield started


def record(number: int) -> BatchRecord:
    return BatchRecord(0, b"1:%d" % number, "")


@pytest.mark.parametrize("serialize_type", list(SerializeType))
def test_every_encoding_reads_and_sends(broker: ForkedBroker, serialize_type: SerializeType) -> None:
    """JSON, binary, and MSGPACK with a peer that agreed: the same answers."""
    with Addresses((broker.name_server,), serialize_type=serialize_type).open() as client:
        queues = client.readable_queues("T")
        assert queues == client.writable_queues("T") == QUEUES
        assert "T" in client.topics()
        one = client.send(queues[1], record(0), 0)
        several = client.send_batch(queues[1], [record(n) for n in range(1, 40)], 0)
        assert (one.queue_offset, several.queue_offset) == (0, 1)
        assert several.msg_id.count(",") == 38
        assert (client.min_offset(queues[1]), client.max_offset(queues[1])) == (0, 40)
        reply = client.pull(queues[1], 3, 10)
        assert (reply.code, reply.status, reply.next_begin_offset, reply.max_offset) == (0, "FOUND", 13, 40)
        assert [message.body for message in decode_messages(reply.body)] == [f"1:{n}".encode() for n in range(3, 13)]
        assert client.pull(queues[1], 40, 10).code == ResponseCode.PULL_NOT_FOUND
        assert client.pull(queues[1], 41, 10).code == ResponseCode.PULL_OFFSET_MOVED


def test_msgpack_is_spoken_only_where_it_is_agreed(broker: ForkedBroker) -> None:
    """Our broker agrees, and a client that is told JSON does not ask."""
    header = QueueRequestHeader("T", 0)
    for asked, agreed in ((SerializeType.MSGPACK, True), (SerializeType.JSON, False)):
        endpoint = BlockingEndpoint(broker.address, 60_000, asked)
        reply = endpoint.request(RemotingCommand(RequestCode.GET_MAX_OFFSET, header), 60_000)
        assert (reply.code, endpoint.agreed) == (0, agreed)
        reply = endpoint.request(RemotingCommand(RequestCode.GET_MAX_OFFSET, header), 60_000)
        assert reply.serialize_type == asked
        endpoint.close()


def test_what_nobody_knows_is_told(broker: ForkedBroker) -> None:
    """A topic without a route, a broker that is none, a queue that the topic has not."""
    with Addresses((broker.name_server,)).open() as client:
        with pytest.raises(TopicNotFoundError, match=f"no topic 'none': the name servers {broker.name_server}"):
            client.route("none")
        with pytest.raises(NoRouteError, match="no master of broker broker-z"):
            client.max_offset(MessageQueue("T", "broker-z", 0))
        with pytest.raises(RequestRefused, match="PULL_MESSAGE"):
            client.pull(MessageQueue("T", "broker-a", 7), 0, 1)


def test_a_broker_is_no_name_server(broker: ForkedBroker) -> None:
    """Its port instead of a name server's is an error that says so; beside a name server it is passed over."""
    place = broker.address
    with Addresses((place,), retries=50).open() as client:
        with pytest.raises(RequestRefused, match=f"{place} is no name server; by default a name server listens on"):
            client.route("T")
        with pytest.raises(RequestRefused, match=f"{place} is no name server"):
            client.topics()
    with Addresses((place, broker.name_server)).open() as client:
        assert len(client.readable_queues("T")) == 2


def test_nobody_waits_for_ever() -> None:
    """A port that refuses, and a peer that speaks another protocol or hangs up: an error of its own each."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        endpoint = BlockingEndpoint(address, 60_000)
        peer, _ = server.accept()
        with peer:
            peer.sendall(struct.pack(">II", 2**31, 0))
            with pytest.raises(ConnectionLost, match="no frame"):
                endpoint.request(RemotingCommand(RequestCode.GET_MAX_OFFSET, QueueRequestHeader("t", 0)), 60_000)
        endpoint = BlockingEndpoint(address, 60_000)
        server.accept()[0].close()
        with pytest.raises(ConnectionLost):
            endpoint.request(RemotingCommand(RequestCode.GET_MAX_OFFSET, QueueRequestHeader("t", 0)), 60_000)
        endpoint.close()
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(ConnectFailed, match=address):
        BlockingEndpoint(address, 60_000)


def test_an_executor_needs_little() -> None:
    """Addresses pickle, and a client costs no import of asyncio, Spark or Arrow."""
    addresses = Addresses(("h:1",), "g")
    assert pickle.loads(pickle.dumps(addresses)) == addresses
    text = "import sys, lockstep.client.blocking; print(sys.modules.keys() & {'asyncio', 'pyspark', 'pyarrow'})"
    shown = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert shown.stdout == "set()\n"
