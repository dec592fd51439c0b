"""The cases of `scripts.bench.simulation`. Its parent runs this file as a program on the tree that PYTHONPATH names.

    python scripts/bench/simulation_cases.py CASE RUNS

Prints one JSON object with the processor time, the callbacks and the virtual time of all runs. It imports only what
every tree has, so that an older one can be measured beside this one.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final

from lockstep.broker.config import BrokerConfig
from lockstep.broker.server import BrokerServer
from lockstep.client import (
    ConsumeFromWhere,
    ConsumeOrderlyStatus,
    ConsumerConfig,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
)
from lockstep.order import check_traces
from lockstep.simulation import World, simulate

TOPIC, GROUP, TRACE = "BenchWorld", "bench", "trace.jsonl"
HOUR_MS, MINUTE_MS = 3_600_000, 60_000
STORY_MS: Final = 3 * MINUTE_MS
MESSAGES: Final = 100


class Log:
    """Keeps the events of a host, as the lab's clusters do."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def debug(self, event: str, **fields: Any) -> None:
        self.events.append((event, fields))

    info = warning = error = debug


class Cluster:
    """A broker, a producer and members with traces, on hosts of their own."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.clients: dict[str, PushConsumer | Producer] = {}
        self.traced: dict[str, None] = {}
        self.handled = 0

    async def start_broker(self, queues: int) -> None:
        host = self.world.host("broker")
        self.server = BrokerServer(BrokerConfig(host="broker", advertise=host.address), host, Log())
        self.server.create_topic(TOPIC, queues)
        await host.run(self.server.start())

    async def _start(self, name: str, client: PushConsumer | Producer) -> None:
        self.clients[name] = client
        self.traced[name] = None
        await self.world.host(name).run(client.start())

    async def start_producer(self) -> None:
        runtime = self.world.host("producer")
        producer = Producer("producers", name_server="broker:9876", trace=TRACE, runtime=runtime, log=Log())
        await self._start("producer", producer)

    async def start_member(self, name: str) -> None:
        runtime = self.world.host(name)
        config = ConsumerConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        consumer = PushConsumer(
            GROUP,
            name_server="broker:9876",
            config=config,
            listener=self._listen,
            trace=TRACE,
            runtime=runtime,
            log=Log(),
        )
        consumer.subscribe(TOPIC)
        await self._start(name, consumer)

    async def _listen(self, messages: list[MessageExt], _: object) -> ConsumeOrderlyStatus:
        self.handled += len(messages)
        return ConsumeOrderlyStatus.SUCCESS

    async def send(self, number: int) -> None:
        producer = self.clients["producer"]
        assert isinstance(producer, Producer)
        await producer.send(Message(TOPIC, str(number).encode()), sharding_key=f"key{number % 10}")

    async def shut_down(self) -> None:
        for name, client in reversed(self.clients.items()):
            await self.world.host(name).run(client.shutdown())
        await self.world.host("broker").run(self.server.shutdown())

    def judge(self) -> None:
        traces = [self.world.disk(name).read(TRACE).splitlines() for name in self.traced]
        check_traces([json.loads(b"[" + b",".join(lines) + b"]") for lines in traces])


async def quiet(world: World, *, members: int, queues: int, rate: int, life_ms: int) -> None:
    """Members of a group on virtual time, with `rate` messages a second."""
    cluster = Cluster(world)
    await cluster.start_broker(queues)
    if rate:
        await cluster.start_producer()
    for number in range(members):
        await cluster.start_member(f"c{number + 1}")
    sent, pause_ms = 0, 1000 // rate if rate else life_ms
    while world.elapsed_ms < life_ms:
        await world.sleep_ms(pause_ms)
        if rate:
            sent += 1
            await world.host("producer").run(cluster.send(sent))
    await world.until(lambda: cluster.handled >= sent)
    await cluster.shut_down()
    cluster.judge()


async def takeover(world: World, *, messages: int) -> None:
    """Two members, two queues, three faults in three minutes: a crash, a partition, a stopped process."""
    cluster = Cluster(world)
    await cluster.start_broker(2)
    await cluster.start_producer()
    for name in ("c1", "c2"):
        await cluster.start_member(name)
    faults = world.start(_play_faults(cluster), name="faults")
    for number in range(messages):
        await world.sleep_ms(STORY_MS // messages)
        await world.host("producer").run(cluster.send(number))
    await faults
    await asyncio.sleep(max(0, STORY_MS - world.elapsed_ms) / 1000)
    await cluster.shut_down()
    cluster.judge()
    world.power_off()


async def _play_faults(cluster: Cluster) -> None:
    world = cluster.world
    await world.sleep_ms(30_000)
    world.crash("c1")
    await world.sleep_ms(20_000)
    await cluster.start_member("c1")
    await world.sleep_ms(20_000)
    world.partition("c2", "broker")
    await world.sleep_ms(10_000)
    world.repair("c2", "broker")
    await world.sleep_ms(20_000)
    world.pause("c1")
    await world.sleep_ms(65_000)
    world.resume("c1")


async def _steps(world: World, *, count: int) -> None:
    """Nothing but the loop: tasks that sleep."""

    async def sleeper(period_ms: int) -> None:
        for _ in range(count):
            await world.sleep_ms(period_ms)

    for task in [world.start(sleeper(period_ms), name="sleeper") for period_ms in (3, 5, 7, 11)]:
        await task


Scenario = Callable[[World], Coroutine[Any, Any, None]]
CASES: Final[dict[str, Scenario]] = {
    "loop": partial(_steps, count=10_000),
    "idle": partial(quiet, members=3, queues=8, rate=0, life_ms=HOUR_MS),
    "rate 10/s": partial(quiet, members=3, queues=8, rate=10, life_ms=6 * MINUTE_MS),
    "takeover": partial(takeover, messages=MESSAGES),
    "no message": partial(takeover, messages=0),
}


def measure(scenario: Scenario, seeds: Iterable[int]) -> dict[str, float]:
    steps = virtual_ms = 0
    begin = time.process_time()

    async def play(world: World) -> None:  # `simulate` asks a scenario for its module
        await scenario(world)

    for seed in seeds:
        outcome = simulate(play, seed=seed, errors_allowed=True)
        steps += outcome.steps
        virtual_ms += outcome.elapsed_ms
    return {"cpu_s": time.process_time() - begin, "steps": steps, "virtual_ms": virtual_ms}


def main() -> None:
    case, runs = sys.argv[1], int(sys.argv[2])
    measure(partial(takeover, messages=5), [0])  # imports, and tables that are made once
    print(json.dumps(measure(CASES[case], range(1, runs + 1))))


if __name__ == "__main__":
    main()
