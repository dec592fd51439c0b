"""What a PushConsumer in POP mode reads, as brokers assign it, and what it may not be asked for (docs/wire.md 18.1)."""

from typing import Any

import pytest

from lockstep.client import ConsumerConfig, ConsumerError, MessageModel, MessageQueue, PushConsumer, SerializeType
from lockstep.protocol.bodies.pop import POP, PULL, Assignment, AssignmentsBody
from lockstep.protocol.bodies.subscription_group import SubscriptionGroupConfig
from lockstep.protocol.codes import PopResponseCode, RequestCode, ResponseCode
from lockstep.protocol.headers.pop import PopRequestHeader
from lockstep.remoting.settings import SettingError
from tests.client.stage import TOPIC, FakeBroker, Stage, on_stage
from tests.rows import by_row

R = RequestCode


async def listen(messages: list[Any], context: Any) -> None:
    """Handle nothing."""


async def staged(stage: Stage, *assigned: tuple[int, str], **arguments: Any) -> FakeBroker:
    """A consumer in POP mode that was started at a broker with these assignments: (queue id, mode)."""
    broker = await stage.broker(queues=4)
    queues = [Assignment(MessageQueue(TOPIC, broker.name, queue_id), mode) for queue_id, mode in assigned]
    # That of another broker counts when that one gives it.
    others = Assignment(MessageQueue(TOPIC, "broker-z", 7), POP)
    broker.answers(R.QUERY_ASSIGNMENT, AssignmentsBody((*queues, others)))
    broker.answers(R.GET_SUBSCRIPTIONGROUP_CONFIG, SubscriptionGroupConfig("tower"))
    broker.answers(R.POP_MESSAGE, PopResponseCode.POLLING_TIMEOUT)
    await start(stage, broker, **arguments)
    return broker


async def start(stage: Stage, broker: FakeBroker, **arguments: Any) -> PushConsumer:
    consumer = PushConsumer(
        "tower",
        name_server=broker.name_server,
        listener=listen,
        pop=True,
        runtime=stage.client,
        log=stage.log,
        **arguments,
    )
    consumer.subscribe(TOPIC)
    await consumer.start()
    stage.on_close.append(consumer.shutdown)
    return consumer


def asked(broker: FakeBroker) -> list[tuple[int, bool | None]]:
    """Queue ids and whether in order, of the first pops."""
    headers = [command.decode_header(PopRequestHeader) for command in broker.requests(R.POP_MESSAGE)]
    return sorted({(header.queue_id, header.order) for header in headers})


@on_stage
async def test_the_queues_of_a_broker_that_shares_them(stage: Stage) -> None:
    broker = await staged(stage, (1, POP), (3, POP))
    await stage.world.until(lambda: len(asked(broker)) == 2)
    assert asked(broker) == [(1, True), (3, True)]


@on_stage
async def test_a_group_whose_mode_nobody_set(stage: Stage) -> None:
    """The broker shares queues out for pulls; all of them are popped, by each member."""
    broker = await staged(stage, (1, PULL), ordering="none")
    await stage.world.until(lambda: asked(broker))
    assert asked(broker) == [(-1, False)]


@on_stage
async def test_an_assignment_that_changes(stage: Stage) -> None:
    """At the next rebalance; without an answer all stays as it is."""
    broker = await staged(stage, (1, POP))
    await stage.world.until(lambda: asked(broker) == [(1, True)])
    for answer, expected in (
        (AssignmentsBody((Assignment(MessageQueue(TOPIC, broker.name, 2), POP),)), [(2, True)]),
        (ResponseCode.SYSTEM_ERROR, [(2, True)]),
    ):
        broker.answers(R.QUERY_ASSIGNMENT, answer)
        await stage.world.sleep_ms(25_000)
        broker.seen.clear()
        await stage.world.sleep_ms(100)
        assert asked(broker) == expected


@on_stage
async def test_a_broker_of_rocketmq_4(stage: Stage) -> None:
    broker = await stage.broker(queues=1)
    with pytest.raises(ConsumerError, match="broker-a knows no POP: it is older than RocketMQ 5"):
        await start(stage, broker)
    assert len(broker.requests(R.UNREGISTER_CLIENT)) == 1


@by_row(
    "arguments, error, text",
    [
        ({"fenced": True}, ConsumerError, "owns no queues"),
        ({"on_acquired": lambda queue, epoch: None, "fenced": True}, ConsumerError, "owns no queues"),
        ({"message_model": MessageModel.BROADCASTING}, ConsumerError, "clustering"),
        ({"config": ConsumerConfig(serialize_type=SerializeType.ROCKETMQ)}, SettingError, "binary headers"),
    ],
)
def test_what_does_not_fit(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        PushConsumer("tower", name_server="n:1", listener=listen, pop=True, **arguments)
