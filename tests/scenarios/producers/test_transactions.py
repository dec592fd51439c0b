"""Transactions: half messages, their ends, and brokers that ask about those that stay undecided."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from lockstep.broker.config import BrokerConfig
from lockstep.client import (
    HalfMessage,
    LocalTransactionState,
    Message,
    MessageExt,
    ProducerConfig,
    TransactionProducer,
    TransactionSendResult,
)
from lockstep.protocol.names import HALF_TOPIC, TRANSACTION_GIVEN_UP_TOPIC
from lockstep.remoting.logs import EventLog
from lockstep.simulation import HostCrashedError, SimRuntime
from tests.scenarios.cluster import BROKER, TOPIC, Cluster
from tests.scenarios.scenario import INSTANT, scenario

COMMIT, ROLLBACK, UNKNOWN = (
    LocalTransactionState.COMMIT_MESSAGE,
    LocalTransactionState.ROLLBACK_MESSAGE,
    LocalTransactionState.UNKNOWN,
)
ROUND_MS = BrokerConfig(host="h").transaction_check_interval_ms
TIMEOUT_MS = BrokerConfig(host="h").transaction_timeout_ms
_ORDER = Message(TOPIC, b"order")
Question = tuple[int, str, str, str]


class Shop:
    """A member of the group: does what `arg` says, and answers checks in turn, the last answer for ever."""

    def __init__(self, cluster: Cluster, *answers: LocalTransactionState) -> None:
        self._cluster = cluster
        self._answers = list(answers)
        self.executed: list[str] = []
        self.asked: list[Question] = []  # (at ms, transaction id, topic, body)

    async def execute_local_transaction(self, message: HalfMessage, arg: Any) -> LocalTransactionState | None:
        self.executed.append(message.transaction_id)
        if isinstance(arg, asyncio.Event):
            await arg.wait()
        if isinstance(arg, BaseException):
            raise arg
        return arg if isinstance(arg, LocalTransactionState) else None

    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        """Plain: on a thread."""
        now_ms = self._cluster.world.elapsed_ms
        self.asked.append((now_ms, message.transaction_id, message.topic, message.body.decode()))
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    @property
    def asked_at_ms(self) -> list[int]:
        return [question[0] for question in self.asked]


async def _member(cluster: Cluster, name: str, *answers: LocalTransactionState, namespace: str | None = None) -> Shop:
    shop = Shop(cluster, *answers)

    def make(runtime: SimRuntime, log: EventLog) -> TransactionProducer:
        config = ProducerConfig(serialize_type=cluster.serialize_type)
        return TransactionProducer(
            "shop",
            listener=shop,
            name_server=cluster.name_server,
            namespace=namespace,
            config=config,
            runtime=runtime,
            log=log,
        )

    await cluster.start_client(name, make)
    return shop


def _producer(cluster: Cluster, name: str) -> TransactionProducer:
    producer = cluster.client(name)
    assert isinstance(producer, TransactionProducer)
    return producer


async def _send(cluster: Cluster, name: str, arg: Any, body: bytes = b"order") -> TransactionSendResult:
    sending = _producer(cluster, name).send_in_transaction(Message(TOPIC, body), arg)
    return await cluster.world.host(name).run(sending)


def _texts(cluster: Cluster) -> list[str]:
    return sorted(call.text for call in cluster.seen.all)


def _stored(cluster: Cluster) -> list[bytes]:
    return [message.body for queue_id in range(4) for message in cluster.stored(queue_id)]


@scenario()
async def test_only_what_is_committed_is_consumed(cluster: Cluster) -> None:
    """Consumers get a committed message and never one that was rolled back; the result has the state and the
    transaction id."""
    await cluster.broker()
    await cluster.consumer("c1")
    shop = await _member(cluster, "shop-1", UNKNOWN)
    kept = await _send(cluster, "shop-1", COMMIT, b"kept")
    dropped = await _send(cluster, "shop-1", ROLLBACK, b"dropped")
    await cluster.world.until(lambda: cluster.seen.all)
    await cluster.at(10 * ROUND_MS)
    assert _texts(cluster) == ["kept"]
    assert (kept.local_transaction_state, dropped.local_transaction_state) == (COMMIT, ROLLBACK)
    assert shop.executed == [kept.transaction_id, dropped.transaction_id] == [kept.msg_id, dropped.msg_id]
    assert shop.asked == [], "both are decided"
    (call,) = cluster.seen.all
    (message,) = cluster.stored(call.queue.queue_id)
    assert message.transaction_id == kept.transaction_id
    assert message.prepared_transaction_offset == cluster.stored(topic=HALF_TOPIC)[0].commit_log_offset


@scenario(INSTANT)
async def test_another_member_answers_for_one_that_died(cluster: Cluster) -> None:
    """A producer dies before it decides: the broker asks another member of the group every 60 s, also while that one
    does not know, and commits when it says so."""
    await cluster.broker()
    await cluster.consumer("c1")
    await _member(cluster, "shop-1", UNKNOWN)
    heir = await _member(cluster, "shop-2", UNKNOWN, UNKNOWN, COMMIT)
    dying = _producer(cluster, "shop-1").send_in_transaction(_ORDER, asyncio.Event())
    sending = cluster.world.start(cluster.world.host("shop-1").run(dying), name="half")
    await cluster.world.until(lambda: cluster.stored(topic=HALF_TOPIC))
    cluster.crash("shop-1")
    with pytest.raises(HostCrashedError):
        await sending
    await cluster.world.until(lambda: cluster.seen.all, timeout_ms=5 * ROUND_MS)
    assert _texts(cluster) == ["order"]
    first_ms = heir.asked_at_ms[0]
    assert TIMEOUT_MS < first_ms <= ROUND_MS + 2000
    assert heir.asked_at_ms == [first_ms, first_ms + ROUND_MS, first_ms + 2 * ROUND_MS]
    (half, *_) = cluster.stored(topic=HALF_TOPIC)
    assert {question[1:] for question in heir.asked} == {(half.transaction_id, TOPIC, "order")}
    await cluster.at(10 * ROUND_MS)
    assert len(heir.asked) == 3, "a decided one is not asked for again"
    assert len(_stored(cluster)) == 1


@scenario(INSTANT)
async def test_how_long_a_lone_half_message_waits(cluster: Cluster) -> None:
    """The broker's rounds go on while no half message is undecided. One that is 50 s old at a round is asked about 10 s
    later, and one that is 5 s old with the round after that."""
    await cluster.broker()
    shop = await _member(cluster, "shop-1", COMMIT)
    for at_ms in (2 * ROUND_MS - 10_000, 5 * ROUND_MS - 5_000):
        await cluster.at(at_ms)
        await _send(cluster, "shop-1", UNKNOWN)
    await cluster.at(8 * ROUND_MS)
    first_ms, second_ms = shop.asked_at_ms
    assert 0 <= first_ms - 2 * ROUND_MS <= 2000
    assert 0 <= second_ms - 6 * ROUND_MS <= 2000


@scenario()
async def test_a_lost_end_is_asked_for(cluster: Cluster) -> None:
    """The end is a one-way request. When it is lost the broker asks, and the same producer answers from memory without
    executing the local transaction again."""
    await cluster.broker()
    await cluster.consumer("c1")
    shop = await _member(cluster, "shop-1", COMMIT)
    gate = asyncio.Event()
    sending = cluster.world.start(
        cluster.world.host("shop-1").run(_producer(cluster, "shop-1").send_in_transaction(_ORDER, gate)), name="half"
    )
    await cluster.world.until(lambda: shop.executed)
    cluster.world.partition("shop-1", BROKER)
    gate.set()
    await cluster.world.sleep_ms(100)
    cluster.world.cut("shop-1", BROKER)
    cluster.world.repair("shop-1", BROKER)
    result = await sending
    assert result.local_transaction_state is UNKNOWN, "its listener returned None"
    await cluster.world.until(lambda: cluster.seen.all, timeout_ms=3 * ROUND_MS)
    assert (len(shop.executed), len(shop.asked)) == (1, 1)
    assert shop.asked[0][1] == result.transaction_id


@scenario()
async def test_a_cancelled_future_in_a_local_transaction(cluster: Cluster) -> None:
    """The listener awaited it. The sender is not cancelled: it gets UNKNOWN, as after any error."""
    await cluster.broker()
    await _member(cluster, "shop-1", UNKNOWN)
    result = await _send(cluster, "shop-1", asyncio.CancelledError())
    assert result.local_transaction_state is UNKNOWN
    assert cluster.events("transaction_listener_failed")


@scenario()
async def test_a_failing_local_transaction_is_unknown(cluster: Cluster) -> None:
    """So is one that returns nothing. The broker gives up after 15 checks and keeps the message for an operator."""
    round_ms = 10_000
    await cluster.broker(transaction_check_interval_ms=round_ms)
    shop = await _member(cluster, "shop-1", UNKNOWN)
    result = await _send(cluster, "shop-1", ValueError("no stock"))
    assert result.local_transaction_state is UNKNOWN
    assert cluster.events("transaction_listener_failed")
    await cluster.world.until(lambda: cluster.stored(topic=TRANSACTION_GIVEN_UP_TOPIC), timeout_ms=20 * round_ms)
    await cluster.world.sleep_ms(3 * round_ms)
    assert len(shop.asked) == 15
    gaps_ms = {later - earlier for earlier, later in pairwise(shop.asked_at_ms)}
    assert all(round_ms - 50 <= gap_ms <= round_ms + 50 for gap_ms in gaps_ms), gaps_ms
    assert _stored(cluster) == []
    (given_up,) = cluster.stored(topic=TRANSACTION_GIVEN_UP_TOPIC)
    assert (given_up.body, given_up.transaction_id) == (b"order", result.transaction_id)


@scenario(INSTANT)
async def test_a_message_may_have_a_time_of_its_own(cluster: Cluster) -> None:
    """During its immunity time no broker asks about it: with 70 s the round at 60 s skips it and the round at 120 s
    asks."""
    await cluster.broker()
    shop = await _member(cluster, "shop-1", ROLLBACK)
    producer = _producer(cluster, "shop-1")
    sending = producer.send_in_transaction(_ORDER, UNKNOWN, check_immunity_seconds=70)
    await cluster.world.host("shop-1").run(sending)
    await cluster.at(4 * ROUND_MS)
    assert len(shop.asked) == 1
    assert 70_000 < shop.asked_at_ms[0] <= 2 * ROUND_MS + 2000


@scenario()
async def test_a_transaction_in_a_namespace(cluster: Cluster) -> None:
    """Brokers know topic and group with their prefix; the listener's messages and the result have bare names."""
    await cluster.broker()
    shop = await _member(cluster, "shop-1", COMMIT, namespace="tenant")
    assert _producer(cluster, "shop-1").group == "tenant%shop"
    result = await _send(cluster, "shop-1", None)
    assert result.queue.topic == TOPIC
    stored = f"tenant%{TOPIC}"
    await cluster.world.until(
        lambda: any(cluster.stored(queue_id, topic=stored) for queue_id in range(4)), timeout_ms=3 * ROUND_MS
    )
    assert [question[2] for question in shop.asked] == [TOPIC]
    (half, *_) = cluster.stored(topic=HALF_TOPIC)
    assert (half.properties["PGROUP"], half.properties["INSTANCE_ID"]) == ("tenant%shop", "tenant")
