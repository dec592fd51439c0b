"""Chunks of a queue leave one after the other, whatever becomes of each."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from lockstep.client.blocking import Addresses, BlockingClient, Ticket
from lockstep.pipeline.errors import SendFailed
from lockstep.pipeline.sink.sequencer import Sender
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import FindSentRequestHeader, SendMessageRequestHeaderV2
from lockstep.protocol.messages.batch import BatchRecord, decode_batch, encode_batch
from lockstep.protocol.messages.message import decode_messages
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.errors import ConnectionLost, RequestTimeout
from lockstep.testing import LockstepBroker

QUEUES = [MessageQueue("t", "broker-a", n) for n in range(3)]
OK = int(ResponseCode.SUCCESS)
LOST = ConnectionLost("a:1", "it went")
ONLY_ANSWER_LOST = ConnectionLost("a:1", "it went behind a good send")
Fate = Callable[[list[str]], int | Exception]


class Broker:
    """Stands in for a client and what is behind it: stores what `fate` has a good code for, when it is finished."""

    def __init__(self, fate: Fate, *, agrees: bool = True) -> None:
        self.addresses = Addresses(("a:1",), retries=3, retry_interval_ms=0)
        self.stored: dict[MessageQueue, list[str]] = {}
        self.headers: list[SendMessageRequestHeaderV2] = []
        self.asked: list[FindSentRequestHeader] = []
        self.under_way: dict[MessageQueue, int] = {}
        self.most_under_way = 0
        self._fate = fate
        self._agrees = agrees

    def agrees(self, _queue: MessageQueue) -> bool:
        return self._agrees

    def route(self, _topic: str, *, fresh: bool) -> None:
        assert fresh

    def start(self, queue: MessageQueue, command: RemotingCommand) -> Ticket:
        if command.code == RequestCode.FIND_SENT:
            self.asked.append(cast("FindSentRequestHeader", command.header))
            return Ticket(cast("Any", type("Endpoint", (), {"address": "a:1", "sent": None})), 1, 0)
        header = cast("SendMessageRequestHeaderV2", command.header)
        self.headers.append(header)
        self.under_way[queue] = self.under_way.get(queue, 0) + 1
        assert self.under_way[queue] == 1, "one chunk of a queue at a time"
        self.most_under_way = max(self.most_under_way, sum(self.under_way.values()))
        assert header.batch == (command.code == RequestCode.SEND_BATCH_MESSAGE)
        bodies = [r.body for r in decode_batch(command.body)] if header.batch else [command.body]
        return Ticket(
            cast("Any", type("Endpoint", (), {"address": "a:1", "sent": (queue, [b.decode() for b in bodies])})), 1, 0
        )

    def finish(self, ticket: Ticket) -> RemotingCommand:
        if cast("Any", ticket.endpoint).sent is None:
            asked = self.asked[-1]
            is_there = asked.message_id.removeprefix("id-") in self.stored.get(QUEUES[asked.queue_id], ())
            return RemotingCommand(ResponseCode.SUCCESS if is_there else ResponseCode.QUERY_NOT_FOUND)
        queue, bodies = cast("Any", ticket.endpoint).sent
        self.under_way[queue] -= 1
        result = self._fate(bodies)
        if result is ONLY_ANSWER_LOST:
            self.stored.setdefault(queue, []).extend(bodies)
        if isinstance(result, Exception):
            raise result
        if result in (OK, ResponseCode.FLUSH_SLAVE_TIMEOUT):
            self.stored.setdefault(queue, []).extend(bodies)
        return RemotingCommand(result, remark="so it is")


def record(body: str) -> bytes:
    return encode_batch([BatchRecord(0, body.encode(), f"UNIQ_KEY\x01id-{body}\x02SPARK_ROW\x01{body}\x02")])


def send(broker: Broker, chunks: list[tuple[int, list[str]]]) -> None:
    sender = Sender(cast("BlockingClient", broker), "SPARK_TASK\x01q/0/1", "sends", 7)
    for number, bodies in chunks:
        sends = sender.sends_to(QUEUES[number])
        sends.records += [record(body) for body in bodies]
        sender.flush(sends)
    sender.finish()


def test_chunks_of_several_queues_are_under_way_together() -> None:
    """Each queue gets its chunks in order and one at a time, while those of others are under way."""
    broker = Broker(lambda _: OK)
    send(broker, [(0, ["0", "1"]), (1, ["2"]), (2, ["3"]), (0, ["4"]), (1, ["5", "6"])])
    assert broker.stored == {QUEUES[0]: ["0", "1", "4"], QUEUES[1]: ["2", "5", "6"], QUEUES[2]: ["3"]}
    assert broker.most_under_way == 3
    assert all("SPARK_TASK\x01q/0/1" in (header.properties or "") for header in broker.headers)


@pytest.mark.parametrize(
    "failure", [LOST, RequestTimeout("a:1", "a send", 3), ResponseCode.SYSTEM_BUSY, ResponseCode.FLUSH_DISK_TIMEOUT]
)
def test_a_chunk_that_failed_is_sent_again_before_the_next(failure: Any) -> None:
    """Nothing overtakes it, and to a broker that knows send sequences it has a new generation."""
    fates: list[Any] = [OK, failure, failure, OK, OK]
    broker = Broker(lambda _: fates.pop(0))
    send(broker, [(0, ["0"]), (0, ["1", "2"]), (0, ["3"])])
    assert broker.stored == {QUEUES[0]: ["0", "1", "2", "3"]}
    numbers = [(header.send_generation, header.send_sequence) for header in broker.headers]
    assert numbers == [(7, 0), (7, 1), (8, 0), (9, 0), (9, 1)]


def test_a_chunk_whose_answer_was_lost_is_stored_once() -> None:
    """The broker is asked with the numbers that the repeat would have; what follows has them."""
    fates: list[Any] = [OK, ONLY_ANSWER_LOST, OK, LOST, ONLY_ANSWER_LOST, OK]
    broker = Broker(lambda _: fates.pop(0))
    send(broker, [(0, ["0"]), (0, ["1", "2"]), (0, ["3"]), (0, ["4"]), (0, ["5"])])
    assert broker.stored == {QUEUES[0]: ["0", "1", "2", "3", "4", "5"]}
    numbers = [(header.send_generation, header.send_sequence) for header in broker.headers]
    assert numbers == [(7, 0), (7, 1), (8, 0), (8, 1), (9, 0), (10, 0)]
    asked = [(one.message_id, one.message_count, one.send_generation, one.send_sequence) for one in broker.asked]
    assert asked == [("id-1", 2, 8, 0), ("id-4", 1, 9, 0), ("id-4", 1, 10, 0)]
    assert {(one.topic, one.queue_id, one.begin_offset, one.sender_id) for one in broker.asked} == {
        ("t", 0, 0, "sends")
    }


def test_nobody_asks_a_broker_of_rocketmq() -> None:
    """It may store the chunk twice."""
    fates: list[Any] = [ONLY_ANSWER_LOST, OK]
    broker = Broker(lambda _: fates.pop(0), agrees=False)
    send(broker, [(0, ["0"])])
    assert broker.stored == {QUEUES[0]: ["0", "0"]}
    assert not broker.asked


def test_nobody_asks_after_a_refusal() -> None:
    fates: list[Any] = [ResponseCode.SYSTEM_BUSY, OK]
    broker = Broker(lambda _: fates.pop(0))
    send(broker, [(0, ["0"])])
    assert not broker.asked


def test_rocketmq_gets_no_numbers() -> None:
    """A broker that did not agree to our encoding gets nothing that RocketMQ does not have."""
    broker = Broker(lambda _: ResponseCode.FLUSH_SLAVE_TIMEOUT, agrees=False)
    send(broker, [(0, ["0"])])
    (header,) = broker.headers
    assert (header.send_generation, header.send_sequence, header.sender_id) == (None, None, None)
    assert broker.stored == {QUEUES[0]: ["0"]}


def test_a_chunk_over_a_limit_is_sent_in_parts() -> None:
    """Down to one message, in order; one that is too large by itself is named with its row."""
    broker = Broker(lambda bodies: OK if len(bodies) < 3 else int(ResponseCode.MESSAGE_ILLEGAL))
    send(broker, [(0, [str(n) for n in range(11)]), (0, ["11"])])
    assert broker.stored == {QUEUES[0]: [str(n) for n in range(12)]}
    broker = Broker(lambda bodies: int(ResponseCode.MESSAGE_ILLEGAL) if "5" in bodies else OK)
    with pytest.raises(SendFailed, match=r"a message of 1 bytes \(row 5\) for queue t@broker-a:0.*so it is"):
        send(broker, [(0, [str(n) for n in range(11)])])
    assert broker.stored == {QUEUES[0]: ["0", "1", "2", "3", "4"]}


@pytest.mark.parametrize(
    ("fate", "words", "tries"),
    [
        (LOST, r"2 messages \(rows 0 to 1\) .* may not be stored after 4 tries; the last: .*it went", 4),
        (int(ResponseCode.NO_PERMISSION), r"2 messages \(rows 0 to 1\) .*NO_PERMISSION.*: so it is", 1),
    ],
)
def test_tries_end(fate: Any, words: str, tries: int) -> None:
    """What fails for good is said after as many tries as were asked for; a plain no is not tried again."""
    broker = Broker(lambda _: fate)
    with pytest.raises(SendFailed, match=words):
        send(broker, [(0, ["0", "1"])])
    assert len(broker.headers) == tries


def test_a_real_broker_stores_a_chunk_once(lockstep_broker: LockstepBroker) -> None:
    """Its answers to a batch and to a single message are lost, with their connections."""
    queue = MessageQueue(lockstep_broker.topic, "broker-a", 0)
    for code in ("SEND_BATCH_MESSAGE", "SEND_MESSAGE_V2"):
        lockstep_broker.push_error(code, drop_connection=True, execute_first=True)
    with BlockingClient(Addresses((lockstep_broker.name_server,), retry_interval_ms=10)) as client:
        sender = Sender(client, "SPARK_TASK\x01q/0/1", "sends", 7)
        sends = sender.sends_to(queue)
        for bodies in (["0", "1", "2"], ["3"], ["4", "5"]):
            sends.records += [record(body) for body in bodies]
            sender.flush(sends)
        sender.finish()
        found = decode_messages(client.pull(queue, 0, 32).body)
    assert [message.body.decode() for message in found] == [str(number) for number in range(6)]
