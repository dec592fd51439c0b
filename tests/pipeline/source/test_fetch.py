"""What a task of Spark fetches of a queue: each message once, whatever pulls bring, and where a time is."""

from functools import partial
from typing import cast

import pytest

from lockstep.client.blocking import Addresses, BlockingClient, Ticket
from lockstep.pipeline.errors import DataLossError
from lockstep.pipeline.source.fetch import Fetcher
from lockstep.pipeline.source.planning import first_offset_at
from lockstep.protocol.codes import SerializeType
from lockstep.protocol.messages.batch import BatchRecord
from lockstep.protocol.messages.message import MessageExt, decode_messages
from lockstep.protocol.model import MessageQueue
from tests.pipeline.conftest import Brokers
from tests.pipeline.topics import Topic, plain_record


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
