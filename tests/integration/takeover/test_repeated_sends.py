"""A broker is killed while many keyed sends are in flight: with `retry_keyed` each is stored once, in its place."""

import asyncio
from collections.abc import Callable

import pytest

from lockstep.client import Message, MessageQueue, Producer, ProducerConfig, PullConsumer, SendResult
from tests.integration.harness.processes import Broker, Processes, until

pytestmark = pytest.mark.long

TOPIC, QUEUES, KEYS = "Orders", 4, 16
IN_FLIGHT, KILLS, SENT_A_LIFE = 200, 4, 1500
PATIENT = ProducerConfig(retry_keyed=True, retry_times=1000, send_timeout_ms=120_000)


class Sending:
    """Sends one number after the other, many at once, until `stop`. `results`: what became of each."""

    def __init__(self, producer: Producer) -> None:
        self.results: dict[int, SendResult] = {}
        self._producer = producer
        self._free = asyncio.Semaphore(IN_FLIGHT)
        self._stopped = False

    async def run(self) -> None:
        number = 0
        async with asyncio.TaskGroup() as calls:
            while not self._stopped:
                await self._free.acquire()
                calls.create_task(self._send(number))
                number += 1

    def stop(self) -> None:
        self._stopped = True

    def more_than(self, count: int) -> Callable[[], bool]:
        return lambda: len(self.results) > count

    async def _send(self, number: int) -> None:
        message = Message(TOPIC, b"%d" % number)
        self.results[number] = await self._producer.send(message, sharding_key=f"key-{number % KEYS}")
        self._free.release()


@pytest.mark.parametrize("flush", ["async", "sync"])
async def test_killed_brokers_store_each_send_once(processes: Processes, flush: str) -> None:
    kept = ("--data-dir", str(processes.folder / "store"), "--flush", flush)
    broker = await processes.broker(*kept, "--topic", f"{TOPIC}:{QUEUES}")
    async with Producer("shop", name_server=broker.name_server, config=PATIENT) as producer:
        sending = Sending(producer)
        task = asyncio.create_task(sending.run())
        for _ in range(KILLS):
            more = sending.more_than(len(sending.results) + SENT_A_LIFE)
            await until(more, "sends are answered again", timeout_s=60)
            broker.kill()
            broker = await processes.broker(*kept, like=broker)
        sending.stop()
        await task
    stored = await _stored(broker)
    numbers = [number for queue in stored for number in queue]
    assert sorted(numbers) == sorted(sending.results)
    told = {(result.queue.queue_id, result.queue_offset): number for number, result in sending.results.items()}
    assert told == {
        (place, offset): number for place, queue in enumerate(stored) for offset, number in enumerate(queue)
    }
    for key in range(KEYS):
        of_key = [number for number in numbers if number % KEYS == key]
        assert of_key == sorted(of_key)
    assert await broker.stop() == 0


async def _stored(broker: Broker) -> list[list[int]]:
    """The numbers of each queue, in their order."""
    queues = []
    async with PullConsumer("readers", name_server=broker.name_server) as reader:
        for queue_id in range(QUEUES):
            numbers: list[int] = []
            while found := (
                await reader.pull(MessageQueue(TOPIC, "broker-a", queue_id), "*", len(numbers), 1000)
            ).messages:
                numbers += [int(message.body) for message in found]
            queues.append(numbers)
    return queues
