"""What the console reads of brokers: a broker that does not answer changes nothing of what is known."""

import asyncio
from copy import copy
from typing import Self

from lockstep.client.admin.client import AdminClient
from lockstep.client.admin.groups import GroupProgress
from lockstep.client.errors import ClientError
from lockstep.console.gather import gather_once
from lockstep.protocol.bodies.admin import OffsetWrapper
from lockstep.protocol.bodies.broker import BrokerData
from lockstep.protocol.bodies.client import Connection, ConsumerConnection, ConsumerRunningInfo
from lockstep.protocol.codes import LanguageCode
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.errors import RequestRefused
from tests.console.pages_inside import NOWHERE, make_console
from tests.console.readings import GROUP, NOW_MS, TOPIC, info, reading, watched

BROKERS = ("broker-a", "broker-b")


class EndsMeanwhile(AdminClient):
    """One broker of Apache's, which names its groups, and then answers no more."""

    async def brokers(self) -> list[BrokerData]:
        return [BrokerData("broker-a", "c", {0: NOWHERE})]

    def at(self, broker: BrokerData) -> Self:
        return self

    async def is_lockstep(self, address: str) -> bool:
        return False

    async def broker_runtime(self, address: str) -> dict[str, str]:
        return {}

    async def groups_with_offsets(self) -> dict[str, list[str]]:
        return {GROUP: [TOPIC]}

    async def groups_with_retry_topic(self) -> dict[str, list[str]]:
        return {}

    async def members(self, group: str) -> ConsumerConnection | None:
        raise ClientError("no answer")


async def test_a_broker_that_ends_while_groups_are_read() -> None:
    """Its groups keep their members and lag: they are not shown as offline with nothing to consume."""
    console = make_console(watched(reading()), EndsMeanwhile(name_server=NOWHERE))
    await gather_once(console)
    assert console.collector.groups[GROUP].reading == reading()


class OneIsSilent(EndsMeanwhile):
    """Two brokers. The second one answers, but for questions about groups."""

    silent = False

    async def brokers(self) -> list[BrokerData]:
        return [BrokerData(name, "c", {0: NOWHERE}) for name in BROKERS]

    def at(self, broker: BrokerData) -> Self:
        view = copy(self)
        view.silent = broker.broker_name == BROKERS[1]
        return view

    async def members(self, group: str) -> ConsumerConnection | None:
        if self.silent:
            raise TimeoutError
        return reading().members

    async def progress(self, group: str, topic: str | None = None) -> GroupProgress:
        return GroupProgress({MessageQueue(TOPIC, BROKERS[0], 0): OffsetWrapper(50, 50, 0)}, 1.5)

    async def running_info(
        self, group: str, client_id: str, *, stacks: bool = False, timeout_ms: int = 0
    ) -> ConsumerRunningInfo:
        return info([])


async def test_a_broker_that_is_silent_keeps_its_queues() -> None:
    """What the group had consumed there stays as it was, and no lag is noted that leaves it out."""
    offsets = {MessageQueue(TOPIC, name, 0): OffsetWrapper(50, 20, 0) for name in BROKERS}
    console = make_console(watched(reading(offsets=offsets)), OneIsSilent(name_server=NOWHERE))
    await gather_once(console)
    state = console.collector.groups[GROUP]
    assert {queue.broker_name: of.lag for queue, of in state.reading.offsets.items()} == {"broker-a": 0, "broker-b": 30}
    points = console.collector.flows.groups[GROUP].history.points(NOW_MS + 1)
    assert [point.lag for point in points] == [None]


class Many(EndsMeanwhile):
    """Two groups of 40 members each."""

    asked = 0
    most = 0

    async def groups_with_offsets(self) -> dict[str, list[str]]:
        return {f"g{number}": [TOPIC] for number in range(2)}

    async def members(self, group: str) -> ConsumerConnection | None:
        connections = [Connection(f"{group}-{n}", "10.0.0.1:1", LanguageCode.PYTHON, 435) for n in range(40)]
        return ConsumerConnection(tuple(connections), {})

    async def progress(self, group: str, topic: str | None = None) -> GroupProgress:
        return GroupProgress({}, 0.0)

    async def running_info(
        self, group: str, client_id: str, *, stacks: bool = False, timeout_ms: int = 0
    ) -> ConsumerRunningInfo:
        type(self).asked += 1
        type(self).most = max(self.asked, self.most)
        await asyncio.sleep(0)
        type(self).asked -= 1
        if client_id.endswith("-7"):
            raise RequestRefused("broker-a", "GET_CONSUMER_RUNNING_INFO", 1, "no answer")
        return ConsumerRunningInfo({}, (), {}, {})


async def test_members_are_asked_as_all_tools_ask_them() -> None:
    """32 of a group, at most 16 at once; one that does not answer is left out."""
    console = make_console(admin=Many(name_server=NOWHERE))
    await gather_once(console)
    assert [len(state.reading.infos) for state in console.collector.groups.values()] == [31, 31]
    assert Many.most == 16
