"""Chunks of a queue leave one after the other, whatever becomes of each."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from lockstep.pipeline.client.blocking import Addresses, BlockingClient, Ticket
from lockstep.pipeline.errors import SendFailed
from lockstep.pipeline.sink.sequencer import Sender
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import SendMessageRequestHeaderV2
from lockstep.protocol.messages.batch import BatchRecord, decode_batch, encode_batch
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.errors import ConnectionLost, RequestTimeout

QUEUES = [MessageQueue("t", "broker-a", n) for n in range(3)]
OK = int(ResponseCode.SUCCESS)
LOST = ConnectionLost("a:1", "it went")
Fate = Callable[[list[str]], int | Exception]


class Broker:
    """Stands in for a client and what is behind it: stores what `fate` has a good code for, when it is finished."""

    def __init__(self, fate: Fate, *, agrees: bool = True) -> None:
        self.addresses = Addresses(("a:1",), retries=3, retry_interval_ms=0)
        self.stored: dict[MessageQueue, list[str]] = {}
        self.headers: list[SendMessageRequestHeaderV2] = []
        self.under_way: dict[MessageQueue, int] = {}
        self.most_under_way = 0
        self._fate = fate
        self._agrees = agrees

    def agrees(self, _queue: MessageQueue) -> bool:
        return self._agrees

    def route(self, _topic: str, *, fresh: bool) -> None:
        assert fresh

    def start(self, queue: MessageQueue, command: RemotingCommand) -> Ticket:
        header = cast("SendMessageRequestHeaderV2", command.header)
        self.headers.append(header)
        self.under_way[queue] = self.under_way.get(queue, 0) + 1
        assert self.under_way[queue] == 1, "one chunk of a queue at a time"
        self.most_under_way = max(self.most_under_way, sum(self.under_way.values()))
        assert header.batch == (command.code == RequestCode.SEND_BATCH_MESSAGE)
        bodies = [r.body for r in decode_batch(command.body)] if header.batch else [command.body]
        return Ticket(
            cast("Any", type("Wire", (), {"address": "a:1", "sent": (queue, [b.decode() for b in bodies])})), 1, 0
        )

    def finish(self, ticket: Ticket) -> RemotingCommand:
        queue, bodies = cast("Any", ticket.wire).sent
        self.under_way[queue] -= 1
        result = self._fate(bodies)
        if isinstance(result, Exception):
            raise result
        if result in (OK, ResponseCode.FLUSH_SLAVE_TIMEOUT):
            self.stored.setdefault(queue, []).extend(bodies)
        return RemotingCommand(result, remark="so it is")


def send(broker: Broker, chunks: list[tuple[int, list[str]]]) -> None:
    sender = Sender(cast("BlockingClient", broker), "SPARK_TASK\x01q/0/1", "sends", 7)
    for number, bodies in chunks:
        sends = sender.sends_to(QUEUES[number])
        sends.records += [encode_batch([BatchRecord(0, body.encode(), f"SPARK_ROW\x01{body}\x02")]) for body in bodies]
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
