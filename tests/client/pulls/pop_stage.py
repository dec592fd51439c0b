"""Clusters on virtual time whose consumers pop (docs/wire.md 18)."""

import functools
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from lockstep.client import ConsumeFromWhere, ConsumerConfig, Delivery, PullConsumerConfig, PushConsumer, SimpleConsumer
from lockstep.client.consumer.listener import AnyListener
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.pop import PopRequestHeader
from lockstep.protocol.names import dead_letter_topic
from lockstep.remoting.connections.endpoint import Endpoint, RequestHandler
from lockstep.remoting.logs import EventLog
from lockstep.simulation import SimRuntime, World, simulate
from lockstep.simulation.lab.cluster import TRACE, Cluster
from lockstep.simulation.lab.setup import LockMode, Setup

__all__ = ["INVISIBLE_MS", "WAIT_MS", "Pops", "Tap", "on_pops", "texts"]

R = RequestCode
T = TypeVar("T")
WAIT_MS = 5000
INVISIBLE_MS = 8000


class Tap:
    """Sees each pop before a broker handles it; the answers to the next `deaf` ones of a code are lost."""

    def __init__(self) -> None:
        self.pops: list[PopRequestHeader] = []
        self.seen = Counter[int]()
        self.deaf = Counter[int]()

    def intercept(self, on_request: RequestHandler) -> RequestHandler:
        def handle(endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand | None:
            self.seen[command.code] += 1
            if command.code == R.POP_MESSAGE:
                self.pops.append(command.decode_header(PopRequestHeader))
            reply = on_request(endpoint, command)
            if not self.deaf[command.code]:
                return reply
            self.deaf[command.code] -= 1
            return None

        return handle

    def delay(self, factory: Callable[[], Endpoint]) -> Callable[[], Any]:
        return factory


class Pops(Cluster):
    """A cluster, what its brokers saw, and its simple consumers."""

    def __init__(self, world: World, *, fenced: bool, tenant: str = "") -> None:
        self.tap = Tap()
        setup = Setup(lock_mode=LockMode.FENCED if fenced else LockMode.FAITHFUL)
        super().__init__(world, setup, topic=f"{tenant}orders", group=f"{tenant}shop", tap=lambda _: self.tap)

    async def simple(self, name: str = "c1", tags: str = "*", **arguments: Any) -> SimpleConsumer:
        """Started, on a host of its own."""
        config = PullConsumerConfig(pull_suspend_ms=WAIT_MS, **arguments.pop("config", {}))
        log, runtime = self.log_of(name), self.world.host(name)
        arguments.setdefault("consume_from_where", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        consumer = SimpleConsumer(
            self.consumer_group, name_server=self.name_server, config=config, runtime=runtime, log=log, **arguments
        )
        consumer.subscribe(self.topic, tags)
        await runtime.run(consumer.start())
        return consumer

    async def push(self, name: str, listener: AnyListener, **arguments: Any) -> PushConsumer:
        """A push consumer in POP mode, started on a host of its own."""
        config = ConsumerConfig(
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            pop_invisible_ms=arguments.pop("invisible_ms", INVISIBLE_MS),
            **arguments.pop("config", {}),
        )
        arguments.setdefault("ordering", "key")
        arguments.setdefault("trace", TRACE)

        def make(runtime: SimRuntime, log: EventLog) -> PushConsumer:
            consumer = PushConsumer(
                self.consumer_group,
                name_server=self.name_server,
                config=config,
                listener=listener,
                pop=True,
                runtime=runtime,
                log=log,
                **arguments,
            )
            consumer.subscribe(self.topic)
            return consumer

        return await self.start_client(name, make, traced=arguments["trace"] is not None)

    def committed(self, queue_id: int = 0) -> int:
        return self.core().catalog.offsets.query(self.consumer_group, self.topic, queue_id)

    def dead_letters(self) -> int:
        return self.store().max_offset(dead_letter_topic(self.consumer_group), 0)

    async def on(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        return await self.world.host(name).run(work)


def texts(deliveries: list[Delivery]) -> list[str]:
    return [delivery.message.body.decode() for delivery in deliveries]


def on_pops(
    *, fenced: bool = False, tenant: str = ""
) -> Callable[[Callable[[Pops], Awaitable[None]]], Callable[[], None]]:
    def decorate(story: Callable[[Pops], Awaitable[None]]) -> Callable[[], None]:
        @functools.wraps(story)
        def test() -> None:
            async def main(world: World) -> None:
                pops = Pops(world, fenced=fenced, tenant=tenant)
                await story(pops)
                await pops.shut_down()
                if pops.consumers:
                    pops.check()

            simulate(main)

        del test.__wrapped__  # pytest would look for a fixture named "pops"
        return test

    return decorate
