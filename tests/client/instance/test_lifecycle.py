"""The four service states, and groups that one process claims once (wire.md 12.2)."""

from collections.abc import Callable
from typing import Any

import pytest

from lockstep.client import (
    AdminClient,
    ClientConfig,
    ClientError,
    ConsumerConfig,
    ConsumerError,
    DuplicateConsumerGroupError,
    DuplicateGroupError,
    NoRouteError,
    Producer,
    ProducerConfig,
    PushConsumer,
    ServiceState,
)
from lockstep.client.instance.registry import claim_group
from lockstep.client.lifecycle import Lifecycle
from lockstep.protocol.bodies.heartbeat import MessageModel
from lockstep.protocol.codes import RequestCode
from tests.client.stage import TOPIC, Stage, on_stage

CREATE_JUST, RUNNING, SHUTDOWN_ALREADY, START_FAILED = ServiceState


def listen(messages: list[Any], context: Any) -> None:
    pass


def consumer_on(stage: Stage, group: str = "tower", **kwargs: Any) -> PushConsumer:
    consumer = PushConsumer(
        group, name_server=stage.name_server, listener=listen, runtime=stage.client, log=stage.log, **kwargs
    )
    consumer.subscribe(TOPIC)
    return consumer


def producer_on(stage: Stage, group: str = "tower", **kwargs: Any) -> Producer:
    return Producer(group, name_server=stage.name_server, runtime=stage.client, log=stage.log, **kwargs)


def admin_on(stage: Stage) -> AdminClient:
    return AdminClient(name_server=stage.name_server, runtime=stage.client, log=stage.log)


async def with_a_broker(stage: Stage) -> None:
    await stage.broker(queues=2)


# States ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [consumer_on, producer_on, admin_on])
@on_stage
async def test_from_create_just_to_shutdown_already(stage: Stage, make: Callable[[Stage], Lifecycle]) -> None:
    """Each client is started once and shut down once; more of either is refused, or does nothing."""
    await with_a_broker(stage)
    client = make(stage)
    assert client.state is CREATE_JUST
    await client.shutdown()
    assert client.state is CREATE_JUST, "what never ran is not shut down"
    await client.start()
    assert client.state is RUNNING
    with pytest.raises(ClientError, match=r"is RUNNING: it was started before; make a new one"):
        await client.start()
    assert client.state is RUNNING
    await client.shutdown()
    await client.shutdown()
    assert client.state is SHUTDOWN_ALREADY
    with pytest.raises(ClientError, match=r"is SHUTDOWN_ALREADY: it was started before and is shut down"):
        await client.start()


@on_stage
async def test_a_start_that_failed(stage: Stage) -> None:
    """It is not tried again, and nothing is left to shut down."""
    server = await stage.broker()
    server.answers(RequestCode.GET_ROUTEINFO_BY_TOPIC, None)
    consumer = consumer_on(stage, config=ConsumerConfig(request_timeout_ms=500))
    with pytest.raises(NoRouteError):
        await consumer.start()
    assert consumer.state is START_FAILED
    with pytest.raises(ConsumerError, match=r"PushConsumer is START_FAILED: .* its start has not succeeded"):
        await consumer.start()
    await consumer.shutdown()
    assert consumer.state is START_FAILED


@on_stage
async def test_a_start_that_goes_on(stage: Stage) -> None:
    """A second one beside it is refused, and does not disturb it."""
    await with_a_broker(stage)
    consumer = consumer_on(stage)
    starting = stage.client.create_task(consumer.start(), name="start")
    await stage.world.sleep_ms(1)
    with pytest.raises(ConsumerError, match="its start has not succeeded"):
        await consumer.start()
    await starting
    assert consumer.state is RUNNING
    await consumer.shutdown()


@on_stage
async def test_what_was_missing_may_be_given(stage: Stage) -> None:
    """A start that was refused before anything was begun is no start."""
    await with_a_broker(stage)
    consumer = consumer_on(stage)
    consumer.unsubscribe(TOPIC)
    with pytest.raises(ConsumerError, match="subscribe"):
        await consumer.start()
    assert consumer.state is CREATE_JUST
    consumer.subscribe(TOPIC)
    async with consumer:
        assert consumer.state is RUNNING


@on_stage
async def test_calls_in_the_wrong_state(stage: Stage) -> None:
    """The error names the client, its state and what to do."""
    await with_a_broker(stage)
    producer, consumer = producer_on(stage), consumer_on(stage)
    with pytest.raises(ClientError, match=r"Producer is CREATE_JUST: it is not started; use `async with`"):
        await producer.queues(TOPIC)
    with pytest.raises(ConsumerError, match=r"PushConsumer is CREATE_JUST: it is not started; use `async with`"):
        _ = consumer.client_id
    async with producer, consumer:
        pass
    with pytest.raises(ClientError, match="Producer is SHUTDOWN_ALREADY"):
        await producer.queues(TOPIC)
    for call in (consumer.subscribe, consumer.unsubscribe):
        with pytest.raises(ConsumerError, match="PushConsumer is SHUTDOWN_ALREADY"):
            call(TOPIC)


# Groups ------------------------------------------------------------------------------------------------------


@on_stage
async def test_a_duplicate_group_is_refused(stage: Stage) -> None:
    """Under one client id a group is claimed once: the error names the group, and the second may try again."""
    await with_a_broker(stage)
    config = ConsumerConfig(instance_name="gate7")
    first, second = consumer_on(stage, config=config), consumer_on(stage, config=config)
    await first.start()
    assert first.client_id == f"{stage.client.address}@gate7"
    with pytest.raises(DuplicateConsumerGroupError, match=r"the consumer group 'tower' has been created before"):
        await second.start()
    assert second.state is CREATE_JUST
    async with consumer_on(stage, "other", config=config) as other:
        assert other.client_id == first.client_id
    await first.shutdown()
    await second.start()
    await second.shutdown()


@on_stage
async def test_a_duplicate_producer_group_is_refused(stage: Stage) -> None:
    """Likewise; a consumer of the same name is no producer."""
    await with_a_broker(stage)
    config = ProducerConfig(instance_name="gate7")
    async with producer_on(stage, config=config), consumer_on(stage, config=ConsumerConfig(instance_name="gate7")):
        second = producer_on(stage, config=config)
        with pytest.raises(DuplicateGroupError, match=r"the producer group 'tower' has been created before .*@gate7'"):
            await second.start()
    async with second:
        assert second.state is RUNNING


@on_stage
async def test_broadcasting_consumers_share_the_default_name(stage: Stage) -> None:
    """Their offset file has this name, so a second one of the group needs another name."""
    await with_a_broker(stage)
    broadcasting: dict[str, Any] = {"message_model": MessageModel.BROADCASTING}
    async with consumer_on(stage, **broadcasting) as first:
        assert first.client_id == f"{stage.client.address}@DEFAULT"
        with pytest.raises(ConsumerError, match="another instance_name"):
            await consumer_on(stage, **broadcasting).start()
        async with consumer_on(stage, config=ConsumerConfig(instance_name="two"), **broadcasting) as second:
            assert second.client_id == f"{stage.client.address}@two"


@on_stage
async def test_a_start_that_failed_gives_its_group_back(stage: Stage) -> None:
    """Whatever it failed of."""
    server = await stage.broker()
    server.answers(RequestCode.GET_ROUTEINFO_BY_TOPIC, None)
    config = ConsumerConfig(instance_name="gate7", request_timeout_ms=500)
    for _ in range(2):
        with pytest.raises(NoRouteError):
            await consumer_on(stage, config=config).start()


@on_stage
async def test_a_claim_that_was_released_frees_nobody_elses(stage: Stage) -> None:
    """Released twice, it does not take away the next one's."""
    await stage.broker()
    instance = stage.instance(ClientConfig(instance_name="gate7"))
    first = claim_group(instance, "consumer", "tower")
    first.release()
    claim_group(instance, "consumer", "tower")
    first.release()
    with pytest.raises(DuplicateGroupError):
        claim_group(instance, "consumer", "tower")
