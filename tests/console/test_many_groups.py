"""A large and healthy cluster meets no bound: its answers are counted, decoded and kept as a console does it."""

from functools import cache
from typing import Any

import pytest

from lockstep.client.admin.client import AdminClient
from lockstep.console.bounds import Limits
from lockstep.console.collector import Collector
from lockstep.console.gather import gather_once
from lockstep.protocol.bodies.admin import ConsumeStats, OffsetWrapper
from lockstep.protocol.bodies.broker import BrokerData, ConsumerGroupList, TopicList
from lockstep.protocol.bodies.client import Connection, ConsumerConnection, ConsumerRunningInfo, ProcessQueueInfo
from lockstep.protocol.bodies.codec import encode_body
from lockstep.protocol.bodies.config import ConsumerOffsetTable
from lockstep.protocol.bodies.lock_changes import LockChangesBody
from lockstep.protocol.bodies.locks import LockTableBody, LockTableRow
from lockstep.protocol.bodies.name_server import KvTable
from lockstep.protocol.codes import LanguageCode, RequestCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.model import MessageQueue
from tests.console.pages_inside import NOWHERE, make_console
from tests.console.readings import NOW_MS
from tests.remoting.helpers import RecordingLog

BROKERS, GROUPS, QUEUES_EACH = 8, 200, 50
TOPICS = tuple(f"{number:06}-{'x' * 100}" for number in range(20_000))


def queues_of(group: str, place: int) -> list[MessageQueue]:
    """Those of one broker. Each group has a topic of its own."""
    number = int(group.removeprefix("g"))
    return [MessageQueue(f"topic-{number}", f"b{place}", at) for at in range(place, QUEUES_EACH, BROKERS)]


def all_queues_of(group: str) -> list[MessageQueue]:
    return [queue for place in range(BROKERS) for queue in queues_of(group, place)]


@cache
def every_offset() -> bytes:
    """Each group has read each topic at some time, and a broker forgets no offset."""
    offsets = dict.fromkeys(range(7), 10**6)
    names = [f"topic-{topic}@g{group}" for topic in range(GROUPS) for group in range(GROUPS)]
    return encode_body(ConsumerOffsetTable(dict.fromkeys(names, offsets)), SerializeType.JSON)


class Cluster(AdminClient):
    """Eight brokers. Each answer goes through the bound of its task."""

    is_ours = False

    async def brokers(self) -> list[BrokerData]:
        named = [BrokerData(f"b{place}", "c", {0: f"10.0.0.{place}:1"}) for place in range(BROKERS)]
        return named if self._only is None else [self._only]

    async def is_lockstep(self, address: str) -> bool:
        return self.is_ours

    async def topics(self) -> list[str]:
        reply = RemotingCommand(0, body=encode_body(TopicList(TOPICS), SerializeType.JSON))
        self._take(NOWHERE, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, reply)
        return list(TOPICS)

    async def _ask_changes(self, address: str, header: Any) -> tuple[LockChangesBody, int]:
        return LockChangesBody(1, NOW_MS, 1, 1, ()), 0

    async def _ask(
        self, address: str, code: RequestCode, header: Any = None, *, timeout_ms: int | None = None
    ) -> RemotingCommand:
        if code == RequestCode.GET_ALL_CONSUMER_OFFSET:
            return RemotingCommand(0, body=every_offset())
        body = self._answer(int(address[7]), code, header)
        return RemotingCommand(0, body=encode_body(body, SerializeType.JSON))

    def _answer(self, place: int, code: RequestCode, header: Any) -> Any:
        names = [f"g{number}" for number in range(GROUPS)]
        if code == RequestCode.LIST_CONSUMER_GROUPS:
            return ConsumerGroupList({name: (name.replace("g", "topic-"),) for name in names})
        if code == RequestCode.LIST_LOCKS:
            held = [(name, queue) for name in names for queue in queues_of(name, place)]
            return LockTableBody(tuple(LockTableRow(name, queue, "a", 5000, 55_000, 9000) for name, queue in held))
        if code == RequestCode.GET_CONSUMER_CONNECTION_LIST:
            one, other = (Connection(name, "10.0.0.9:5", LanguageCode.JAVA, 435) for name in "ab")
            return ConsumerConnection((one, other), {})
        if code == RequestCode.GET_CONSUME_STATS:
            return ConsumeStats(dict.fromkeys(queues_of(header.consumer_group, place), OffsetWrapper(10**9, 1, NOW_MS)))
        if code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            locked = ProcessQueueInfo(locked=True, last_lock_timestamp=NOW_MS)
            return ConsumerRunningInfo({}, (), dict.fromkeys(all_queues_of(header.consumer_group), locked), {})
        assert code == RequestCode.GET_BROKER_RUNTIME_INFO
        return KvTable({})


@pytest.mark.long
@pytest.mark.parametrize("is_ours", [True, False], ids=["lockstep", "apache"])
async def test_ten_thousand_queues_of_two_hundred_groups_meet_no_bound(is_ours: bool) -> None:
    """Each group has two members that report all of its queues."""
    admin, log = Cluster(name_server=NOWHERE), RecordingLog()
    vars(admin)["is_ours"] = is_ours
    console = make_console(Collector(limits=Limits(log)), admin)
    await gather_once(console)
    collector = console.collector
    assert (len(collector.queues), len(collector.groups)) == (10_000, GROUPS)
    assert all(len(state.reading.infos) == 2 for state in collector.groups.values())
    assert sum(len(state.reading.offsets) for state in collector.groups.values()) == 10_000
    assert not log.events
