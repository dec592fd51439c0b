"""Pops look at busy queues alone: they give what they would give if they looked at each queue."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.broker.core.pop import Pop, forsake, pop
from lockstep.broker.core.revive import run_pops
from lockstep.broker.core.topics import delete_topic
from lockstep.broker.core.wanted import expressed
from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.bodies.locks import LockBatchBody
from lockstep.protocol.codes import RequestCode, ResponseCode, SerializeType
from lockstep.protocol.headers.admin import CloneGroupOffsetRequestHeader
from lockstep.protocol.headers.messaging import UpdateConsumerOffsetRequestHeader
from lockstep.protocol.headers.pop import (
    AckRequestHeader,
    ChangeInvisibleRequestHeader,
    PopRequestHeader,
    PopResponseHeader,
)
from lockstep.protocol.receipts import ORDERED, Receipt, TopicKind, parse_spans
from tests.broker.helpers import NOW_MS, Peer, queues_of
from tests.broker.persistence.kept_broker import kept

R = RequestCode
KEY = "__SHARDINGKEY\x01"
TAGS = "TAGS\x01"
DAY_MS = 24 * 60 * 60 * 1000
EXAMINED = 800  # messages, by a read of the store
MODES = ("faithful", "fenced")


def pop_header(**fields: Any) -> PopRequestHeader:
    return PopRequestHeader("G", "T", -1, 32, 10_000, 0, 0, 0, "TAG", "*", True)._replace(**fields)


class World:
    """A broker, two clients, and the receipts that they got. Each action is one of a random history."""

    def __init__(self, mode: str, *, looks_at_each: bool) -> None:
        self.peer = Peer(SerializeType.MSGPACK, lock_mode=mode)
        self.broker, self.fifo = self.peer.broker, self.peer.broker.messages.pops.fifo
        if looks_at_each:
            self.fifo.set_idle = lambda *_: None  # type: ignore[method-assign] # no queue is ever idle
        self.clients = [self.peer, self.peer.beside()]
        self.peer.make_topics("T", queue_nums=5)
        self.receipts: list[Receipt] = []
        self.answers: list[Any] = []

    def _ask(self, client: int, code: RequestCode, header: Any, body: Any = b"") -> None:
        peer = self.clients[client % 2]
        peer.now_ms = self.peer.now_ms
        reply = peer.call(code, header, body)
        if reply is not None:
            self.answers.append((reply.code, reply.remark, reply.body, reply.ext_fields))
            if code == R.POP_MESSAGE and reply.code == ResponseCode.SUCCESS:
                self._take(reply.decode_header(PopResponseHeader))

    def _take(self, found: PopResponseHeader) -> None:
        assert found.start_offset_info is not None
        assert found.msg_offset_info is not None
        for span in parse_spans(found.start_offset_info, found.msg_offset_info):
            made = Receipt(span.start_offset, found.pop_time, found.invisible_time, ORDERED, 0, "broker-a", 0, 0)
            of_queue = made._replace(topic_kind=TopicKind.TOPIC, queue_id=span.queue_id)
            self.receipts += [of_queue._replace(queue_offset=offset) for offset in span.offsets]

    def _run(self) -> None:
        run_pops(self.broker, self.peer.now_ms)
        for client in self.clients:
            for reply in client.connection.replies:
                self.answers.append((reply.code, reply.remark, reply.body, reply.ext_fields))
                if reply.code == ResponseCode.SUCCESS and (reply.ext_fields or {}).get("msgOffsetInfo"):
                    self._take(reply.decode_header(PopResponseHeader))
            client.connection.replies.clear()

    def send(self, a: int, b: int) -> None:
        self.peer.send(queue_id=a % 5, properties=f"{KEY}{'abc'[b % 3]}\x02{TAGS}{'AB'[b % 2]}")

    def pop(self, a: int, b: int) -> None:
        """Of all queues, also of one; with a filter; for no time; the repeat of another call."""
        some = {"queue_id": a % 5} if b % 7 == 0 else {}
        header = pop_header(max_msg_nums=a % 4, exp="A" if b % 5 == 0 else "*", **some)
        header = header._replace(invisible_time=(10_000, 2000, 0)[b % 3], attempt_id="x" if b % 4 == 0 else None)
        self._ask(a, R.POP_MESSAGE, header)

    def pop_all(self, a: int, b: int) -> None:
        self._ask(a, R.POP_MESSAGE, pop_header())

    def wait_for_some(self, a: int, b: int) -> None:
        self._ask(a, R.POP_MESSAGE, pop_header(poll_time=4000, born_time=self.peer.now_ms))

    def ack(self, a: int, b: int) -> None:
        if self.receipts:
            self._ack(a, self.receipts[-1 - a % len(self.receipts)])

    def ack_all(self, a: int, b: int) -> None:
        for one in self.receipts:
            self._ack(a, one)

    def ack_what_is_not_there(self, a: int, b: int) -> None:
        """RocketMQ takes the end of a queue for a message, if it knows of no delivery."""
        end = self.broker.messages.store.max_offset("T", a % 5)
        self._ack(b, Receipt(end, NOW_MS, 10_000, ORDERED, TopicKind.TOPIC, "broker-a", a % 5, end))

    def _ack(self, client: int, one: Receipt) -> None:
        self._ask(client, R.ACK_MESSAGE, AckRequestHeader("G", "T", one.queue_id, one.encode(), one.queue_offset))

    def change(self, a: int, b: int) -> None:
        if self.receipts:
            one = self.receipts[-1 - a % len(self.receipts)]
            header = ChangeInvisibleRequestHeader("G", "T", one.queue_id, one.encode(), one.queue_offset, b * 1000)
            self._ask(b, R.CHANGE_MESSAGE_INVISIBLETIME, header)

    def wait(self, a: int, b: int) -> None:
        self.peer.now_ms += a * 500

    def set_clock_back(self, a: int, b: int) -> None:
        self.peer.now_ms -= a * 500

    def wait_a_day(self, a: int, b: int) -> None:
        """What nobody used is forgotten. A pop is a use."""
        self.peer.now_ms += DAY_MS // 2 + 1
        if b % 2:
            self.pop(a, 1)
        self.fifo.expire(self.peer.now_ms)

    def commit(self, a: int, b: int) -> None:
        """Also back, and behind the end."""
        self._ask(a, R.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader("G", "T", a % 5, b % 4 - 1))

    def reset(self, a: int, b: int) -> None:
        header = UpdateConsumerOffsetRequestHeader("G", "T", a % 5, b % 3, reset=True)
        self._ask(a, R.UPDATE_CONSUMER_OFFSET, header)

    def clone(self, a: int, b: int) -> None:
        self._ask(a, R.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader("H", "T", a % 5, b % 3))
        self._ask(a, R.CLONE_GROUP_OFFSET, CloneGroupOffsetRequestHeader("H", "G", "T", True))

    def lock(self, a: int, b: int) -> None:
        """A queue that somebody owns is not popped."""
        self._ask(a, R.LOCK_BATCH_MQ, None, LockBatchBody("G", f"c{a % 2}", queues_of("T", 5)[b % 5 :][:2]))

    def unlock(self, a: int, b: int) -> None:
        self._ask(a, R.UNLOCK_BATCH_MQ, None, LockBatchBody("G", f"c{a % 2}", queues_of("T", 5)))

    def leave(self, a: int, b: int) -> None:
        forsake(self.broker, self.clients[a % 2].connection, self.peer.now_ms)

    def resize(self, a: int, b: int) -> None:
        self.broker.catalog.topics.put(TopicConfig("T", (5, 3, 8)[a % 3], (5, 8)[b % 2]), self.peer.now_ms)

    def make_again(self, a: int, b: int) -> None:
        delete_topic(self.broker, self.peer.connection, "T", self.peer.now_ms)
        self.peer.make_topics("T", queue_nums=5)

    def after(self, name: str, a: int, b: int) -> Any:
        """All that an action changed."""
        getattr(self, name)(a, b)
        self._run()
        answers, self.answers = self.answers, []
        offsets = {key: dict(row) for key, row in self.broker.catalog.offsets.table.items()}
        return answers, offsets, self.fifo.saved(), self.broker.messages.pops.next_due_ms


OFTEN = ("send", "pop", "pop_all", "pop_all", "wait_for_some", "ack", "ack_all", "wait")
SELDOM = (
    *("ack_what_is_not_there", "change", "set_clock_back", "wait_a_day", "commit", "reset", "clone"),
    *("lock", "unlock", "leave", "resize", "make_again"),
)
HISTORIES = st.lists(
    st.tuples(st.sampled_from((*OFTEN, *OFTEN, *SELDOM)), st.integers(0, 40), st.integers(0, 40)), max_size=60
)


@pytest.mark.parametrize("mode", MODES)
@given(history=HISTORIES)
def test_whatever_happens_the_answers_are_those_of_a_look_at_each_queue(
    mode: str, history: list[tuple[str, int, int]]
) -> None:
    """Answers, offsets, deliveries and the next time that something is due."""
    world, other = World(mode, looks_at_each=False), World(mode, looks_at_each=True)
    for action in history:
        assert world.after(*action) == other.after(*action)


@pytest.mark.parametrize("mode", MODES)
def test_a_pop_looks_at_the_queues_that_may_have_something(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At all of them once, then at those with a new message or one that is not acknowledged."""
    world = World(mode, looks_at_each=False)
    store, looked = world.broker.messages.store, list[int]()
    max_offset = store.max_offset

    def looked_at() -> list[int]:
        looked.clear()
        world.pop_all(0, 0)
        return sorted(looked)

    def counted(topic: str, queue_id: int) -> int:
        looked.append(queue_id)
        return max_offset(topic, queue_id)

    world.send(3, 0)
    monkeypatch.setattr(store, "max_offset", counted)
    assert [looked_at() for _ in range(3)] == [[0, 1, 2, 3, 4], [3], [3]]
    world.ack_all(0, 0)
    assert [looked_at() for _ in range(2)] == [[3], []]
    world.send(1, 0)
    assert [looked_at() for _ in range(2)] == [[1], [1]]
    world.ack_all(0, 0)
    world.resize(2, 1)
    assert [looked_at() for _ in range(2)] == [[0, 1, 2, 3, 4, 5, 6, 7], []]


def test_a_delivery_is_not_named_as_one_of_an_idle_queue() -> None:
    """Also within its millisecond, and after the clock was set back."""
    world = World("fenced", looks_at_each=False)
    for queue_id in range(3):
        world.send(queue_id, 0)
        world.pop_all(0, 0)
        world.ack_all(0, 0)
        world.pop_all(0, 0)
        world.set_clock_back(queue_id, 0)
    assert [one.pop_ms - NOW_MS for one in world.receipts] == [0, 1, 2]


def test_what_a_filter_hides_is_not_the_end_of_a_queue() -> None:
    """A read examines so many messages at most: the next pop goes on behind them."""
    world = World("faithful", looks_at_each=False)
    for _ in range(EXAMINED + 1):
        world.send(0, 1)
    world.send(0, 0)
    world.pop(3, 5)
    assert world.receipts == []
    world.pop(3, 5)
    assert [one.queue_offset for one in world.receipts] == [EXAMINED + 1]


async def test_a_message_is_given_after_its_sync_though_a_pop_came_before(tmp_path: Path) -> None:
    """With a sync before each answer a message is stored before it can be read."""
    async with kept(tmp_path) as opened:
        broker = opened.broker
        asked = Pop("c1", "G", "T", -1, 32, 10_000, True, False, None, expressed(broker, "T", None, "*"))
        opened.send(b"x")
        assert pop(broker, opened.connection, asked, NOW_MS).spans == []
        await opened.writers.flush()
        assert [span.offsets for span in pop(broker, opened.connection, asked, NOW_MS).spans] == [[0]]
