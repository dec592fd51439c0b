"""Cases on real brokers: topics and groups are made by remoting, all cases are played at once, and then compared."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from typing import Any, Final, NamedTuple

from lockstep.protocol.codes import RequestCode as R
from lockstep.remoting.host.runtime import AsyncioRuntime, Runtime
from tests.differential.case import NAME_SERVER, step
from tests.differential.case import Case as RemotingCase
from tests.differential.cases.world import object_body, topic_fields
from tests.differential.grpc.played import Played
from tests.differential.grpc.player import names_of, play
from tests.differential.grpc.steps import Case
from tests.differential.run import PLAYS_MAX
from tests.differential.side import Received, Side, address

__all__ = ["Address", "play_all"]

AT_ONCE: Final = 80  # cases: most of their time is waiting
TICK_S: Final = 0.02
_ROUTED_S: Final = 60.0
_POLL_S: Final = 0.2


class Address(NamedTuple):
    """Where a server is: host:port each."""

    grpc: str
    broker: str
    name_server: str


class LiveSite:
    """A server as a process. Make it inside the running loop."""

    def __init__(self, server: Address) -> None:
        self.runtime: Runtime = AsyncioRuntime()
        self.address = server.grpc
        self._server = server

    def _ask(self, request: RemotingCase) -> Received:
        """On a connection of its own: a broker closes those that are silent for two minutes."""
        side = Side(address(self._server.broker), address(self._server.name_server))
        with closing(side):
            reply = side.ask(request).reply
        assert reply is not None, f"no answer to {request.fields}"
        return reply

    async def prepare(self, cases: Sequence[Case], number: int) -> None:
        """Make topics and groups; returns when the name server knows the topics."""
        await asyncio.to_thread(self._prepare, cases, number)

    def _prepare(self, cases: Iterable[Case], number: int) -> None:
        wanted = set()
        for case in cases:
            topic, group = names_of(case, number)
            if case.queues:
                self._put_topic(topic, case.queues, case.message_type)
                wanted.add(topic)
            if case.in_order is not None:
                self._put_group(case, group)
        deadline = time.monotonic() + _ROUTED_S
        while True:
            reply = self._ask(step(R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, server=NAME_SERVER))
            if wanted <= set(json.loads(reply.body)["topicList"]):
                return
            assert time.monotonic() < deadline, "topics without a route"
            threading.Event().wait(_POLL_S)

    def _put_topic(self, topic: str, queues: int, message_type: str) -> None:
        fields = topic_fields(topic, queues, queues)
        if message_type:
            fields["attributes"] = f"+message.type={message_type}"
        reply = self._ask(step(R.UPDATE_AND_CREATE_TOPIC, fields))
        assert reply.code == 0, reply

    def _put_group(self, case: Case, group: str) -> None:
        body: dict[str, Any] = {"groupName": group, "consumeEnable": True, "consumeFromMinEnable": True}
        body |= {"consumeBroadcastEnable": True, "retryQueueNums": 1, "retryMaxTimes": case.retries}
        body |= {"consumeMessageOrderly": case.in_order}
        if case.retry_policy:
            body["groupRetryPolicy"] = case.retry_policy
        reply = self._ask(step(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body=object_body(body)))
        assert reply.code == 0, reply

    async def committed(self, topic: str, group: str) -> int | None:
        fields = {"consumerGroup": group, "topic": topic, "queueId": "0"}
        reply = await asyncio.to_thread(self._ask, step(R.QUERY_CONSUMER_OFFSET, fields))
        return int((reply.fields or {})["offset"]) if reply.code == 0 else None

    async def resize(self, topic: str, queues: int, message_type: str) -> None:
        await asyncio.to_thread(self._put_topic, topic, queues, message_type)


async def play_all(
    cases: Sequence[Case], apache: Address, lockstep: Address, is_fine: Callable[[Played], bool]
) -> list[Played]:
    """Each case on both; again, with another topic, where it is not fine: a pause of one process is no difference.

    RocketMQ gives nothing to a receive that finds the queue's lock taken, as right after another one.
    """
    sites = LiveSite(apache), LiveSite(lockstep)
    lateness = _Lateness()
    watching = asyncio.create_task(lateness.watch())
    found: dict[str, Played] = {}
    try:
        left = list(cases)
        for number in range(PLAYS_MAX):
            await asyncio.gather(*(site.prepare(left, number) for site in sites))
            room = asyncio.Semaphore(AT_ONCE)
            for played in await asyncio.gather(*(_play_on_both(case, sites, number, room, lateness) for case in left)):
                found[played.case.id] = played
            left = [case for case in left if not is_fine(found[case.id])]
            if not left:
                break
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
    return [found[case.id] for case in cases]


async def _play_on_both(
    case: Case, sites: tuple[LiveSite, LiveSite], number: int, room: asyncio.Semaphore, lateness: "_Lateness"
) -> Played:
    async with room:
        began_s = time.monotonic()
        theirs, ours = await asyncio.gather(*(play(case, site, number) for site in sites))
        return Played(case, theirs, ours, lateness.since(began_s))


class _Lateness:
    """By how much a task that sleeps wakes too late: what this machine adds to every time that is measured."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, float]] = []

    async def watch(self) -> None:
        while True:
            before_s = time.monotonic()
            await asyncio.sleep(TICK_S)
            self._samples.append((before_s, time.monotonic() - before_s - TICK_S))

    def since(self, began_s: float) -> float:
        return max((late_s for at_s, late_s in self._samples if at_s >= began_s), default=0.0)
