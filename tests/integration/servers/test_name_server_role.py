"""Name servers and brokers in separate processes, some of them killed."""

import signal
from functools import partial

import pytest

from lockstep.client import AdminClient, ConsumerConfig, Message, MessageSelector, Producer, PushConsumer
from tests.integration.harness.processes import PATIENT_CLIENT, PATIENT_PRODUCER, Broker, Processes, until

TOPIC, GROUP = "orders", "audit"


async def started(processes: Processes, *options: str) -> tuple[Broker, str]:
    """A process of the broker's program, and the one address it listens on."""
    process = await processes.broker(*options)
    (address,) = filter(None, process.addresses)
    return process, address


async def broker_names(name_server: str) -> list[str]:
    async with AdminClient(name_server=name_server, config=PATIENT_CLIENT) as admin:
        return sorted(data.broker_name for data in await admin.brokers())


@pytest.mark.long
async def test_name_servers_and_brokers_of_their_own(processes: Processes) -> None:
    """Two of each: both name servers know both brokers, and a client goes on after one of each was killed."""
    names = [await started(processes, "--role", "name-server") for _ in range(2)]
    both = ";".join(address for _, address in names)
    brokers = [
        await started(processes, "--name-server", both, "--broker-name", name, "--topic", f"{TOPIC}:2")
        for name in ("a", "b")
    ]
    for _, address in names:
        await until(partial(_knows, address, ["a", "b"]), "it knows both brokers")
    seen: set[bytes] = set()
    consumer = PushConsumer(GROUP, name_server=both, listener=lambda messages, _: seen.update(m.body for m in messages))
    consumer.subscribe(TOPIC)
    async with Producer("shop", name_server=both, config=PATIENT_PRODUCER) as producer, consumer:
        queues = {(await producer.send(Message(TOPIC, b"%d" % i))).queue.broker_name for i in range(8)}
        assert queues == {"a", "b"}
        await until(lambda: len(seen) == 8, "all are handled")
        await names[0][0].stop(signal.SIGKILL)
        for i in range(8, 16):
            await producer.send(Message(TOPIC, b"%d" % i))
        await until(lambda: len(seen) == 16, "all are handled with one name server")
        await brokers[1][0].stop(signal.SIGKILL)
        await until(partial(_knows, names[1][1], ["a"]), "the name server forgets it at once")
        assert (await producer.send(Message(TOPIC, b"16"))).queue.broker_name == "a"
        await until(lambda: len(seen) == 17, "the other broker serves on")
    assert await names[1][0].stop() == 0


async def _knows(name_server: str, expected: list[str]) -> bool:
    return await broker_names(name_server) == expected


@pytest.mark.long
async def test_a_broker_that_is_told_to_filters_by_properties(processes: Processes) -> None:
    """With -D enablePropertyFilter=true a consumer filters by SQL92 over real sockets."""
    broker = await processes.broker("--topic", f"{TOPIC}:1", "-D", "enablePropertyFilter=true")
    seen: list[bytes] = []
    consumer = PushConsumer(
        GROUP,
        name_server=broker.name_server,
        config=ConsumerConfig(),
        listener=lambda messages, _: seen.extend(message.body for message in messages),
    )
    consumer.subscribe(TOPIC, MessageSelector.by_sql("size BETWEEN 2 AND 3 OR color = 'it''s red'"))
    async with Producer("shop", name_server=broker.name_server, config=PATIENT_PRODUCER) as producer, consumer:
        for size, color in ((1, "red"), (2, "red"), (3, "blue"), (4, "it's red")):
            properties = {"size": str(size), "color": color}
            await producer.send(Message(TOPIC, b"%d" % size, properties=properties))
        await until(lambda: seen == [b"2", b"3", b"4"], "what matches is handled")
