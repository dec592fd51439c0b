"""The parts of a run that measure rates: a raw client, our client, Java's client, and ordered drains."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import uvloop

from lockstep.protocol.codes import SerializeType
from scripts.bench import cases
from scripts.bench.apache import raw
from scripts.bench.apache.figures import ECHO, Case, Measure, Sample, Stopwatch, in_turns
from scripts.bench.apache.java import JavaClient
from scripts.bench.apache.servers import APACHE, Contender
from scripts.bench.echo import Sizes, echo_process, echo_rate, sizes_of

__all__ = ["BATCHES", "JAVA_THREADS", "TOPICS", "Bench", "measure_client"]

JAVA_THREADS: Final = (1, 16, 64)
BATCHES: Final = (1, 32)
TOPICS: Final = ((cases.SEND_TOPIC, 4), (cases.PULL_TOPIC, 4), (cases.DRAIN_TOPIC, 4))
WARM_UP_DRAIN: Final = 100_000
_MSGPACK: Final = SerializeType.MSGPACK  # for our brokers; others get JSON from our client


@dataclass(frozen=True)
class Bench:
    """What the parts need.

    Attributes:
        seconds: Of each measurement.
        warm_up_s: Of sends to Apache's broker before the first measurement: its rate grows for so long.
        drained: Messages that are stored, and handled by each drain.
        tell: Gets the name of what is done, and how many measurements were done.
    """

    contenders: Mapping[str, Contender]
    rounds: int
    seconds: float
    warm_up_s: float
    drained: int
    tell: Callable[[str, int], None]

    def prepare(self, drains: bool) -> None:
        """Fill the topics that are read."""
        for contender in self.contenders.values():
            self.tell(f"preparing {contender.title}", 0)
            asyncio.run(_prepare(contender, self.drained if drains else 0))

    def raw(self) -> dict[str, Case]:
        for contender in self.contenders.values():
            seconds = self.warm_up_s if contender.key == APACHE else self.seconds
            for name in raw.NAMES:
                self.tell(f"warming up: {name}", 0)
                raw.measure_raw(contender, name, seconds / len(raw.NAMES))
        return in_turns(
            {name: self._each(partial(_raw, name, self.seconds)) for name in raw.NAMES}, self.rounds, self.tell
        )

    def client(self) -> dict[str, Case]:
        """Our client; with 64 in flight also a bare echo of the frames of single sends."""
        measured = {
            f"client_{name}": dict(self._each(partial(measure_client, name, self.seconds)))
            for name in ("send_1", "send_64", "send_64_batched")
        }
        ours = next(one for one in self.contenders.values() if one.key != APACHE)
        sizes = uvloop.run(sizes_of(cases.CALLS["send_64"], ours.server.name_server, _MSGPACK))
        with echo_process() as port:
            measured["client_send_64"][ECHO] = partial(_echo, port, sizes, self.seconds)
            return in_turns(measured, self.rounds, self.tell)

    def java(self, client: JavaClient, keys: Sequence[str]) -> dict[str, Case]:
        for key in keys:
            self.tell("warming up: Java's client", 0)
            seconds = self.warm_up_s / 2 if key == APACHE else self.seconds
            for threads in JAVA_THREADS:
                client.send(self.contenders[key], cases.SEND_TOPIC, threads, seconds / len(JAVA_THREADS))

        def send(threads: int, contender: Contender) -> Sample:
            return client.send(contender, cases.SEND_TOPIC, threads, self.seconds)

        measured = {f"java_send_{threads}": self._each(partial(send, threads), keys) for threads in JAVA_THREADS}
        return in_turns(measured, self.rounds, self.tell)

    def drains(self, client: JavaClient | None, keys: Sequence[str]) -> dict[str, Case]:
        """All stored messages handled in order by one consumer: ours, and Java's."""
        measured: dict[str, Mapping[str, Measure]] = {}
        for batch in BATCHES:
            if client is not None:

                def drain(size: int, contender: Contender) -> Sample:
                    return client.drain(contender, cases.DRAIN_TOPIC, size, self.drained)

                measured[f"java_drain_{batch}"] = self._each(partial(drain, batch), keys)
                for key in keys:
                    self.tell("warming up: Java's client", 0)
                    client.drain(self.contenders[key], cases.DRAIN_TOPIC, batch, min(WARM_UP_DRAIN, self.drained))
            measured[f"client_drain_{batch}"] = self._each(partial(_drain, batch, self.drained), keys)
        return in_turns(measured, self.rounds, self.tell)

    def _each(self, measure: Callable[[Contender], Sample], keys: Sequence[str] | None = None) -> Mapping[str, Measure]:
        chosen = self.contenders if keys is None else keys
        return {key: partial(measure, self.contenders[key]) for key in chosen}


async def _prepare(contender: Contender, drained: int) -> None:
    await cases.preload(contender.server.name_server, cases.PULL_TOPIC, raw.PULL_MESSAGES, 1)
    if drained:
        await cases.preload(contender.server.name_server, cases.DRAIN_TOPIC, drained, 4)


def _raw(name: str, seconds: float, contender: Contender) -> Sample:
    return raw.measure_raw(contender, name, seconds)


def measure_client(name: str, seconds: float, contender: Contender) -> Sample:
    """Our client with one of the sends of scripts.bench.cases."""

    async def measure() -> Sample:
        case = cases.CALLS[name]
        client, operation = await case.open(contender.server.name_server, _MSGPACK, None)
        try:
            await cases.latencies(operation, seconds / 4, case.in_flight)
            watch = Stopwatch(contender.server.pids[0], os.getpid())
            found = await cases.latencies(operation, seconds, case.in_flight)
            return watch.sample(len(found.latencies_ns))
        finally:
            await client.shutdown()

    return uvloop.run(measure())


def _echo(port: int, sizes: Sizes, seconds: float) -> Sample:
    return Sample(uvloop.run(echo_rate(port, sizes, seconds, cases.CALLS["send_64"].in_flight)).rate)


def _drain(batch: int, messages: int, contender: Contender) -> Sample:
    watch = Stopwatch(contender.server.pids[0], os.getpid())
    found = uvloop.run(cases.drain(contender.server.name_server, _MSGPACK, batch, messages))
    return watch.sample(messages, messages / found.rate)
