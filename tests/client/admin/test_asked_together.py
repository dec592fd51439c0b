"""What the doctor and the track of a message ask about many things, they ask about several at once."""

from typing import Any

from lockstep.client.admin.client import AdminClient
from lockstep.client.admin.groups import GroupProgress
from lockstep.client.admin.message_track import TrackType, track_message
from lockstep.client.admin.messages import QueueSlice
from lockstep.client.diagnosis.gather import gather
from lockstep.protocol.bodies.admin import OffsetWrapper
from lockstep.protocol.bodies.broker import BrokerData, QueueData, TopicRouteData
from lockstep.protocol.bodies.client import Connection, ConsumerConnection, ConsumerRunningInfo
from lockstep.protocol.bodies.heartbeat import ConsumeFromWhere
from lockstep.protocol.codes import LanguageCode
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.errors import RequestRefused
from lockstep.remoting.host.runtime import AsyncioRuntime
from tests.client.apache_cluster import ApacheCluster
from tests.client.gate import Gate
from tests.client.messages import message_at

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(4)]
BROKERS = ("broker-a", "broker-b", "broker-c")
MEMBERS = ConsumerConnection(
    (Connection("c", "127.0.0.1:1", LanguageCode.PYTHON, 409),), {},
    consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
)  # fmt: skip


class Cluster(ApacheCluster):
    """Three of Apache's brokers and an ordered group; no question is answered before all of its kind were asked."""

    def __init__(self) -> None:
        super().__init__()
        self.routes = Gate(3, TopicRouteData((QueueData("broker-a", 4, 4, 6),), ()))
        self.offsets, self.ends = Gate(4, None), Gate(4, 7)
        self.read = Gate(4, QueueSlice([], 7, 0, 7))
        self.runtimes = Gate(3, {"limits.locksMax": "2"})
        info = ConsumerRunningInfo({"PROP_CONSUMEORDERLY": "true"}, (), {}, {})
        self.infos = Gate(1, {"c": info})

    async def brokers(self) -> list[BrokerData]:
        return [BrokerData(name, "c", {0: f"{name}:1"}) for name in BROKERS]

    async def all_groups(self) -> dict[str, list[str]]:
        return {"g": ["orders"]}

    async def topics(self) -> list[str]:
        return ["b", "a", "orders"]

    async def message_types(self) -> dict[str, str]:
        return {}

    async def route(self, topic: str) -> Any:
        return await self.routes()

    async def connections(self, group: str) -> Any:
        return {"broker-a:1": MEMBERS}

    async def running_infos(self, *_: object, **__: object) -> Any:
        return await self.infos()

    async def progress(self, group: str, topic: str | None = None) -> GroupProgress:
        return GroupProgress({queue: OffsetWrapper(7, 0, 0) for queue in QUEUES}, 0.0)

    async def consumer_offset(self, group: str, queue: MessageQueue) -> Any:
        return await self.offsets()

    async def max_offset(self, queue: MessageQueue) -> Any:
        return await self.ends()

    async def read_queue(self, queue: MessageQueue, offset: int, **_: Any) -> Any:
        return await self.read()

    async def broker_runtime(self, address: str) -> Any:
        return await self.runtimes()


async def test_the_doctor_asks_together() -> None:
    """For routes, limits of brokers, and offsets and messages of queues. Its facts have the order of the lists."""
    admin = Cluster()
    facts = await gather(admin, AsyncioRuntime(), None)
    assert list(facts.topics) == ["b", "a", "orders"]
    assert list(facts.limits) == [f"broker {name}" for name in BROKERS]
    (group,) = facts.groups
    assert [(queue, of.committed) for queue, of in group.queues.items()] == [(queue, -1) for queue in QUEUES]
    gates = (admin.routes, admin.offsets, admin.ends, admin.read, admin.runtimes)
    assert [gate.passed for gate in gates] == [3, 4, 4, 4, 3]


class Groups(AdminClient):
    """Three groups of a topic: the second one is refused, the others are offline."""

    def __init__(self) -> None:
        super().__init__(name_server="127.0.0.1:1")
        self.gate = Gate(3)

    async def groups_of(self, topic: str) -> list[str]:
        return ["a", "b", "c"]

    async def members(self, group: str) -> None:
        await self.gate()
        if group == "b":
            raise RequestRefused("broker-a", "GET_CONSUMER_CONNECTION_LIST", 1, "not you")


async def test_the_groups_of_a_message_are_asked_about_together() -> None:
    """A refusal is the state of its group alone."""
    tracks = await track_message(Groups(), message_at(0))
    assert [(one.consumer_group, one.track_type) for one in tracks] == [
        ("a", TrackType.NOT_ONLINE), ("b", TrackType.UNKNOWN), ("c", TrackType.NOT_ONLINE),
    ]  # fmt: skip
