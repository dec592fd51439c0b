"""Members that do not answer: each costs the 10 s for which a broker waits, so all are asked together."""

from types import SimpleNamespace
from typing import Any, cast

from lockstep.client.admin.budget import AnswerTooLargeError
from lockstep.client.diagnosis.gather import gather
from lockstep.protocol.bodies.client import Connection, ConsumerConnection, ConsumerRunningInfo
from lockstep.protocol.codes import LanguageCode
from lockstep.remoting.errors import RequestRefused
from lockstep.remoting.host.runtime import AsyncioRuntime
from tests.client.apache_cluster import ApacheCluster
from tests.client.gate import Gate


class Admin(ApacheCluster):
    """A cluster whose members answer when `count` of them were asked; member "b" is then refused."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.asked: list[tuple[str, str]] = []
        self.timeouts_ms: set[int] = set()
        self._gate = Gate(count)

    async def running_info(
        self, group: str, client_id: str, *, stacks: bool = False, timeout_ms: int = 0
    ) -> ConsumerRunningInfo:
        self.asked.append((group, client_id))
        self.timeouts_ms.add(timeout_ms)
        await self._gate()
        if client_id == "large":
            raise AnswerTooLargeError("too large")
        if client_id == "b":
            raise RequestRefused("broker-a", "GET_CONSUMER_RUNNING_INFO", 207, "no answer")
        return ConsumerRunningInfo({"id": client_id}, (), {}, {})


class Cluster(Admin):
    """With two groups of three members each, on a broker of RocketMQ's."""

    async def all_groups(self) -> Any:
        return {"one": (), "two": ()}

    async def topics(self, *_: object) -> Any:
        return []

    async def brokers(self) -> Any:
        return [SimpleNamespace(broker_name="broker-a", master_addr=None)]

    async def connections(self, group: str) -> Any:
        members = tuple(Connection(one, "127.0.0.1:1", LanguageCode.PYTHON, 409) for one in "abc")
        return {"broker-a:1": ConsumerConnection(members, {})}

    async def progress(self, group: str, topic: str | None = None) -> Any:
        return SimpleNamespace(offsets={})


async def test_running_infos_are_asked_for_together() -> None:
    """None is answered for before all were asked; for a member without one there is the reason."""
    infos = await Admin(3).running_infos("g", "abca")
    assert list(infos) == ["a", "b", "c"]
    assert isinstance(infos["b"], RequestRefused)
    assert cast("ConsumerRunningInfo", infos["c"]).properties["id"] == "c"


async def test_who_asks_may_wait_less_for_a_member() -> None:
    """Else it waits for the broker's 10 s. An answer that is too large is told like a refusal."""
    admin = Admin(2)
    infos = await admin.running_infos("g", ["a", "large"], timeout_ms=1500)
    assert isinstance(infos["large"], AnswerTooLargeError)
    assert isinstance(infos["a"], ConsumerRunningInfo)
    assert admin.timeouts_ms == {1500}
    await admin.running_infos("g", "a")
    assert admin.timeouts_ms == {1500, 12_000}


async def test_the_doctor_asks_the_members_of_all_groups_together() -> None:
    """Its facts have the groups and members in their order, and say who answered."""
    facts = await gather(Cluster(6), AsyncioRuntime(), None)
    assert [group.name for group in facts.groups] == ["one", "two"]
    for group in facts.groups:
        assert [(one.client_id, one.has_info) for one in group.members] == [("a", True), ("b", False), ("c", True)]
