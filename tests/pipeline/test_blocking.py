"""The blocking client against a broker: routes, offsets, pulls, sends, and what it does when nobody answers."""

import pickle
import socket
import struct
import subprocess
import sys
from functools import partial
from typing import cast

import pytest

from lockstep.client.blocking import Addresses, BlockingClient, Ticket
from lockstep.client.errors import NoRouteError, TopicNotFoundError
from lockstep.pipeline.errors import DataLossError
from lockstep.pipeline.source.fetch import Fetcher
from lockstep.pipeline.source.planning import first_offset_at
from lockstep.protocol.codes import RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import QueueRequestHeader
from lockstep.protocol.messages.batch import BatchRecord
from lockstep.protocol.messages.message import MessageExt, decode_messages
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.connections.blocking_endpoint import BlockingEndpoint
from lockstep.remoting.errors import ConnectFailed, ConnectionLost, RequestRefused
from tests.integration.harness.processes import Broker
from tests.pipeline.conftest import Brokers
from tests.pipeline.topics import BORN_MS, Topic, plain_record

ENCODINGS = pytest.mark.parametrize("serialize_type", list(SerializeType))


@ENCODINGS
def test_every_encoding_reads_and_sends(topic: Topic, serialize_type: SerializeType) -> None:
    """JSON, binary, and MSGPACK with a peer that agreed: the same answers."""
    with Addresses((topic.broker.name_server,), serialize_type=serialize_type).open() as client:
        queues = client.readable_queues(topic.name)
        assert queues == client.writable_queues(topic.name) == [topic.queue(0), topic.queue(1)]
        assert topic.name in client.topics()
        one = client.send(queues[1], plain_record(1, 0), BORN_MS)
        several = client.send_batch(queues[1], [plain_record(1, n) for n in range(1, 40)], BORN_MS)
        assert (one.queue_offset, several.queue_offset) == (0, 1)
        assert several.msg_id.count(",") == 38
        assert (client.min_offset(queues[1]), client.max_offset(queues[1])) == (0, 40)
        reply = client.pull(queues[1], 3, 10)
        assert (reply.code, reply.status, reply.next_begin_offset, reply.max_offset) == (0, "FOUND", 13, 40)
        assert [message.body for message in decode_messages(reply.body)] == [f"1:{n}".encode() for n in range(3, 13)]
        assert client.pull(queues[1], 40, 10).code == ResponseCode.PULL_NOT_FOUND
        assert client.pull(queues[1], 41, 10).code == ResponseCode.PULL_OFFSET_MOVED


def test_msgpack_is_spoken_only_where_it_is_agreed(topic: Topic) -> None:
    """Our broker agrees, and a client that is told JSON does not ask."""
    header = QueueRequestHeader(topic.name, 0)
    for asked, agreed in ((SerializeType.MSGPACK, True), (SerializeType.JSON, False)):
        endpoint = BlockingEndpoint(topic.broker.address, 60_000, asked)
        reply = endpoint.request(RemotingCommand(RequestCode.GET_MAX_OFFSET, header), 60_000)
        assert (reply.code, endpoint.agreed) == (0, agreed)
        reply = endpoint.request(RemotingCommand(RequestCode.GET_MAX_OFFSET, header), 60_000)
        assert reply.serialize_type == asked
        endpoint.close()


def _same(record: BatchRecord, _queue_id: int, _number: int) -> BatchRecord:
    return record


@pytest.mark.parametrize("sizes", [[1] * 3000, [1, 90_000] * 40, [*[1] * 100, 200_000, *[1] * 100]])
def test_pulls_ahead_bring_every_message_once(topic: Topic, sizes: list[int]) -> None:
    """However many messages each pull brings: guesses that were wrong cost pulls and nothing else."""
    for i, size in enumerate(sizes):
        large = plain_record(0, i)._replace(body=b"x" * size)
        if size > 1:
            topic.fill(1, record=partial(_same, large))
        elif i == 0 or sizes[i - 1] > 1:
            run = next((n for n, later in enumerate(sizes[i:]) if later > 1), len(sizes) - i)
            topic.fill(run, first=i)
    with topic.client() as client:
        fetcher = Fetcher(client, topic.queue(0), "*", 4096, fail=True)
        found = [m.queue_offset for _, body in fetcher.bodies(5, len(sizes) - 5) for m in decode_messages(body)]
    assert found[: len(sizes) - 10] == list(range(5, len(sizes) - 5))
    assert found == list(range(5, 5 + len(found)))


class Counting:
    """A client that counts its pulls."""

    def __init__(self, client: BlockingClient) -> None:
        self.addresses = client.addresses
        self.asked: list[int] = []
        self.finish_pull = client.finish_pull
        self.route = client.route
        self._start = client.start_pull

    def start_pull(self, queue: MessageQueue, offset: int, count: int, tags: str = "*") -> Ticket:
        self.asked.append(count)
        return self._start(queue, offset, count, tags)


def pulls_of(topic: Topic, total: int, agreed: SerializeType) -> list[int]:
    """How many messages each pull of a whole queue asked for; every message must come once."""
    with Addresses((topic.broker.name_server,), timeout_ms=30_000, serialize_type=agreed).open() as client:
        counting = Counting(client)
        fetcher = Fetcher(cast("BlockingClient", counting), topic.queue(0), "*", 4096, fail=True)
        found = [m.queue_offset for _, body in fetcher.bodies(0, total) for m in decode_messages(body)]
    assert found == list(range(total))
    return counting.asked


def test_a_lockstep_broker_gives_many_messages_a_pull(topic: Topic) -> None:
    """It is limited in bytes; a broker that agreed on nothing, as Apache's, is asked for as many as it gave before."""
    topic.fill(6000)
    assert len(pulls_of(topic, 6000, SerializeType.MSGPACK)) < 20
    assert set(pulls_of(topic, 6000, SerializeType.JSON)[1:-1]) <= {32, 6000 % 32}


def test_pulls_follow_the_size_of_messages(topic: Topic) -> None:
    """Few large messages fit a pull; behind them pulls have more and more small ones again."""
    topic.fill(40, record=lambda _, n: plain_record(0, n)._replace(body=b"x" * 30_000))
    topic.fill(5000, first=40)
    asked = pulls_of(topic, 5040, SerializeType.MSGPACK)
    assert min(asked) <= 8
    assert max(asked[len(asked) // 2 :]) > 200
    assert len(asked) < 100


def test_offsets_that_are_not_there_are_lost(topic: Topic) -> None:
    """Behind the end of the queue, as after a broker without a store began anew: an error, or the end."""
    topic.fill(10)
    with topic.client() as client:
        with pytest.raises(DataLossError, match="the messages 10 to 19 are lost: the broker has 0 to 9"):
            list(Fetcher(client, topic.queue(0), "*", 32, fail=True).bodies(8, 20))
        found = list(Fetcher(client, topic.queue(0), "*", 32, fail=False).bodies(8, 20))
        assert [m.queue_offset for _, body in found for m in decode_messages(body)] == [8, 9]


def test_a_read_outlives_a_broker_that_starts_again(brokers: Brokers, tmp_path: object) -> None:
    """What was under way is asked anew, from a fresh route, without a gap."""
    data = ("--data-dir", f"{tmp_path}/store", "--flush", "sync")
    broker = brokers.start(*data)
    topic = Topic.create(broker, "again", 1)
    topic.fill(2_000)
    with Addresses((broker.name_server,), retries=50, retry_interval_ms=100).open() as client:
        bodies = Fetcher(client, topic.queue(0), "*", 32, fail=True).bodies(0, 2_000)
        found = [next(bodies) for _ in range(10)]
        brokers.kill(broker)
        brokers.restart(broker, *data)
        found += bodies
    assert [m.queue_offset for _, body in found for m in decode_messages(body)] == list(range(2_000))


def test_times_are_found_exactly(topic: Topic) -> None:
    """The first message of that millisecond or later, and None behind the last."""
    topic.fill(30)
    with topic.client() as client:
        messages: list[MessageExt] = []
        while len({m.store_timestamp for m in messages}) < 3:
            topic.fill(1, first=30 + len(messages))
            messages = [
                m
                for _, body in Fetcher(client, topic.queue(0), "*", 32, fail=True).bodies(
                    0, client.max_offset(topic.queue(0))
                )
                for m in decode_messages(body)
            ]
        times = [m.store_timestamp for m in messages]
        for asked in {0, *times, *(t + 1 for t in times[:-1])}:
            assert first_offset_at(client, topic.queue(0), asked) == next(i for i, t in enumerate(times) if t >= asked)
        assert first_offset_at(client, topic.queue(0), times[-1] + 1) is None


def test_what_nobody_knows_is_told(broker: Broker) -> None:
    """A topic without a route, a broker that is none, a queue that the topic has not."""
    with Addresses((broker.name_server,)).open() as client:
        with pytest.raises(TopicNotFoundError, match=f"no topic 'none': the name servers {broker.name_server}"):
            client.route("none")
        topic = Topic.create(broker, "known")
        with pytest.raises(NoRouteError, match="no master of broker broker-z"):
            client.max_offset(MessageQueue("known", "broker-z", 0))
        with pytest.raises(RequestRefused, match="PULL_MESSAGE"):
            client.pull(topic.queue(7), 0, 1)


def test_a_broker_is_no_name_server(topic: Topic) -> None:
    """Its port instead of a name server's is an error that says so; beside a name server it is passed over."""
    place = topic.broker.address
    with Addresses((place,), retries=50).open() as client:
        with pytest.raises(RequestRefused, match=f"{place} is no name server; by default a name server listens on"):
            client.route(topic.name)
        with pytest.raises(RequestRefused, match=f"{place} is no name server"):
            client.topics()
    with Addresses((place, topic.broker.name_server)).open() as client:
        assert len(client.readable_queues(topic.name)) == 2


def test_nobody_waits_for_ever() -> None:
    """A port that refuses, and a peer that speaks another protocol or hangs up: an error of its own each."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        endpoint = BlockingEndpoint(address, 1000)
        peer, _ = server.accept()
        with peer:
            peer.sendall(struct.pack(">II", 2**31, 0))
            with pytest.raises(ConnectionLost, match="no frame"):
                endpoint.request(RemotingCommand(RequestCode.GET_MAX_OFFSET, QueueRequestHeader("t", 0)), 1000)
        endpoint = BlockingEndpoint(address, 1000)
        server.accept()[0].close()
        with pytest.raises(ConnectionLost):
            endpoint.request(RemotingCommand(RequestCode.GET_MAX_OFFSET, QueueRequestHeader("t", 0)), 1000)
        endpoint.close()
    with pytest.raises(ConnectFailed, match=address):
        BlockingEndpoint(address, 1000)


def test_an_executor_needs_little() -> None:
    """Addresses pickle, and a client costs no import of asyncio, Spark or Arrow."""
    addresses = Addresses(("h:1",), "g")
    assert pickle.loads(pickle.dumps(addresses)) == addresses
    text = "import sys, lockstep.client.blocking; print(sys.modules.keys() & {'asyncio', 'pyspark', 'pyarrow'})"
    shown = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert shown.stdout == "set()\n"
