"""What fenced locks cost: processor time of the broker a request, fenced beside faithful, in turns, median of five.

    python -m scripts.bench.fence_cost [--rounds 5] [--requests 20000]

Two brokers run as processes, and one client sends to each in turn. Time comes from /proc/PID/schedstat, so other work
on the machine counts little. Exit status 1 when a request costs more than 5 % more.
"""

import argparse
import asyncio
import statistics
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple, Self

import uvloop
from rich.console import Console
from rich.table import Table

from lockstep.client import ConsumerConfig, Message, Producer, ProducerConfig, SerializeType
from lockstep.client.instance.client import MQClientInstance
from lockstep.protocol.bodies.locks import LockBatchBody, LockOkBody
from lockstep.protocol.codes import PullSysFlag, RequestCode, ResponseCode
from lockstep.protocol.headers.messaging import PullMessageRequestHeader, UpdateConsumerOffsetRequestHeader
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.host.runtime import AsyncioRuntime
from lockstep.remoting.logs import StdlibLog
from lockstep.remoting.settings import parse_addresses
from lockstep.testing.process import BrokerProcess

TOPIC, GROUP, QUEUES, MESSAGES = "BenchFence", "BenchFenced", 8, 3200
IN_FLIGHT: Final = 16
MORE_MAX: Final = 1.05

Call = Callable[[], Awaitable[None]]


class Load(NamedTuple):
    """A client of one broker, and its four kinds of requests."""

    producer: Producer
    instance: MQClientInstance
    calls: Mapping[str, Call]

    @classmethod
    async def open(cls, name_server: str, *, fenced: bool) -> Self:
        """Connect, fill the first queue with messages, and lock all queues."""
        config = ProducerConfig(serialize_type=SerializeType.MSGPACK)
        producer = Producer("BenchProducer", name_server=name_server, config=config)
        await producer.start()
        settings = ConsumerConfig(serialize_type=SerializeType.MSGPACK)
        instance = MQClientInstance(
            AsyncioRuntime(), parse_addresses(name_server), settings, StdlibLog("lockstep.bench")
        )
        route = await instance.routes.fetch(TOPIC)
        assert route is not None
        broker = route.broker_datas[0].broker_name
        queues = tuple(MessageQueue(TOPIC, broker, queue_id) for queue_id in range(QUEUES))
        batch = [Message(TOPIC, bytes(128)) for _ in range(100)]
        for _ in range(MESSAGES // len(batch)):
            await producer.send_batch(batch, queue=queues[0])
        address, owner = instance.address_of(broker), instance.client_id
        lock = LockBatchBody(GROUP, owner, queues, (0,) * QUEUES if fenced else None)
        granted = await instance.call_for(LockOkBody, broker, RequestCode.LOCK_BATCH_MQ, body=lock)
        assert len(granted.lock_ok_mq_set) == QUEUES
        epochs = tuple(grant.epoch for grant in granted.grants or ())
        assert bool(epochs) is fenced
        renewal = lock._replace(epochs=epochs or None)
        under = (epochs[0], owner) if fenced else (None, None)
        flags = int(PullSysFlag.SUBSCRIPTION)
        pull = PullMessageRequestHeader(GROUP, TOPIC, 0, 0, 32, flags, 0, 0, 0, "*", "TAG", *under)
        commit = UpdateConsumerOffsetRequestHeader(GROUP, TOPIC, 0, 32, *under)

        async def send() -> None:
            await producer.send(Message(TOPIC, bytes(128)), queue=queues[1])

        async def ask(code: int, header: PullMessageRequestHeader | UpdateConsumerOffsetRequestHeader) -> None:
            reply = await instance.call_address(address, code, header)
            assert reply.code == ResponseCode.SUCCESS, reply

        async def renew() -> None:
            renewed = await instance.call_for(LockOkBody, broker, RequestCode.LOCK_BATCH_MQ, body=renewal)
            assert len(renewed.lock_ok_mq_set) == QUEUES

        calls: dict[str, Call] = {
            "send": send,
            "pull of 32": lambda: ask(RequestCode.PULL_MESSAGE, pull),
            f"renewal of {QUEUES}": renew,
            "commit": lambda: ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit),
        }
        return cls(producer, instance, calls)

    async def close(self) -> None:
        self.instance.dialer.close()
        await self.producer.shutdown()


async def run(call: Call, requests: int) -> None:
    """Make so many requests, a few in flight."""

    async def work() -> None:
        for _ in range(requests // IN_FLIGHT):
            await call()

    await asyncio.gather(*[work() for _ in range(IN_FLIGHT)])


def processor_ns(pid: int) -> int:
    """Processor time of a process's main thread, where the event loop runs."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


async def measure(rounds: int, requests: int, brokers: Mapping[str, BrokerProcess]) -> dict[str, dict[str, float]]:
    """Microseconds a request by kind and mode: medians."""
    loads = {mode: await Load.open(broker.name_server, fenced=mode == "fenced") for mode, broker in brokers.items()}
    found: dict[str, dict[str, float]] = {}
    for kind in loads["faithful"].calls:
        times: dict[str, list[float]] = {mode: [] for mode in brokers}
        for number in range(rounds + 1):
            for mode, broker in brokers.items():
                begin = processor_ns(broker.pid)
                await run(loads[mode].calls[kind], requests)
                if number:  # the first round is for warming up
                    times[mode].append((processor_ns(broker.pid) - begin) / requests / 1000)
        found[kind] = {mode: statistics.median(values) for mode, values in times.items()}
    for load in loads.values():
        await load.close()
    return found


def main() -> int:
    """Print the table; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=20_000, help="of each kind, mode and round")
    given = parser.parse_args()
    topic = f"--topic={TOPIC}:{QUEUES}"
    with (
        BrokerProcess(topic, "--log-level", "error") as faithful,
        BrokerProcess(topic, "--log-level", "error", "--lock-mode", "fenced") as fenced,
    ):
        found = uvloop.run(measure(given.rounds, given.requests, {"faithful": faithful, "fenced": fenced}))
    table = Table("request", "faithful us", "fenced us", "fenced of faithful")
    for kind, times in found.items():
        table.add_row(kind, *(f"{value:.1f}" for value in times.values()), f"{times['fenced'] / times['faithful']:.3f}")
    Console().print(table)
    return int(any(times["fenced"] > MORE_MAX * times["faithful"] for times in found.values()))


if __name__ == "__main__":
    sys.exit(main())
