"""Which brokers the console watches while the name server names others, and what it asks all of them for."""

import asyncio
from typing import Self

import pytest

from lockstep.client.admin.budget import AnswerTooLargeError
from lockstep.client.admin.client import AdminClient
from lockstep.client.admin.groups import GroupProgress
from lockstep.client.errors import ClientError
from lockstep.console import gather as gathering
from lockstep.console.bounds import TEXT_MAX, Limits
from lockstep.console.collector import Collector
from lockstep.console.console import Cluster, Console
from lockstep.console.group_names import GroupNames
from lockstep.protocol.bodies.admin import OffsetWrapper
from lockstep.protocol.bodies.broker import BrokerData, TopicList
from lockstep.protocol.bodies.client import ConsumerConnection
from lockstep.protocol.bodies.codec import encode_body
from lockstep.protocol.bodies.config import ConsumerOffsetTable
from lockstep.protocol.codes import RequestCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.model import MessageQueue
from tests.console.pages_inside import NOWHERE, Clock, ask
from tests.console.readings import GROUP, NOW_MS, TOPIC, lock_row
from tests.remoting.helpers import RecordingLog

MINUTE_MS = 60_000


class Named(AdminClient):
    """A name server that names these brokers of Apache's; `fails`: it does not answer."""

    datas: tuple[BrokerData, ...] = ()
    only: BrokerData | None = None
    fails = False
    large: tuple[str, ...] = ()

    def bounded(self, bytes_max: int) -> Self:
        return self

    def at(self, broker: BrokerData) -> Self:
        view = type(self)(name_server=NOWHERE)
        vars(view).update(vars(self), only=broker)
        return view

    async def brokers(self) -> list[BrokerData]:
        if self.fails:
            raise ClientError("no answer")
        return list(self.datas)

    async def is_lockstep(self, address: str) -> bool:
        return False

    async def broker_runtime(self, address: str) -> dict[str, str]:
        return {}

    async def groups_with_offsets(self) -> dict[str, list[str]]:
        return {GROUP: [TOPIC]}

    async def groups_with_retry_topic(self) -> dict[str, list[str]]:
        return {}

    async def members(self, group: str) -> ConsumerConnection | None:
        return None

    async def progress(self, group: str, topic: str | None = None) -> GroupProgress:
        assert self.only is not None
        name = self.only.broker_name
        if name in self.large:
            raise AnswerTooLargeError(f"{name} is too large")
        return GroupProgress({MessageQueue(TOPIC, name, 0): OffsetWrapper(10, 3, NOW_MS)}, 0.0)


def broker(name: str, address: str = NOWHERE) -> BrokerData:
    return BrokerData(name, "c", {0: address})


def watch(admin: AdminClient) -> tuple[gathering._Gather, Console, Clock]:
    clock = Clock(NOW_MS)
    console = Console(Cluster(NOWHERE), Collector(limits=Limits(RecordingLog())), admin, clock, "token")
    return gathering._Gather(console), console, clock


def met(console: Console) -> list[str]:
    return [one.name for one in console.collector.limits.recent(console.runtime.now_ms())]


def lags(console: Console) -> list[tuple[int, int | None]]:
    return [(point.at_ms, point.lag) for point in console.collector.flows.groups[GROUP].history.points()]


async def wait_for_ever() -> None:
    await asyncio.Event().wait()


# Who is watched ----------------------------------------------------------------------------------------------


async def test_a_broker_behind_one_too_many_is_found_at_its_new_address() -> None:
    """The new name comes first in the list."""
    admin = Named(name_server=NOWHERE)
    admin.datas = tuple(broker(f"b{number}") for number in range(256))
    gather, console, _ = watch(admin)
    await gather._find_brokers()
    admin.datas = (broker("a-new-one"), *(broker(f"b{number}", "127.0.0.1:2") for number in range(256)))
    await gather._find_brokers()
    assert len(gather._watched) == 256
    assert {watched.data.master_addr for watched in gather._watched.values()} == {"127.0.0.1:2"}
    assert met(console) == ["brokers"]


async def test_brokers_that_are_not_named_for_a_quarter_of_an_hour_make_room() -> None:
    """Their task ends, and pages show them no more."""
    admin = Named(name_server=NOWHERE)
    admin.datas = tuple(broker(f"old-{number}") for number in range(256))
    gather, console, clock = watch(admin)
    await gather.once()
    task = gather._watched["old-0"].task = asyncio.create_task(wait_for_ever())
    admin.datas = (broker("old-7"), broker("new"))
    await gather._find_brokers()
    clock.ms += 15 * MINUTE_MS - 1
    await gather._find_brokers()
    assert (len(gather._watched), met(console)) == (256, ["brokers"])
    clock.ms += 1
    await gather.once()
    assert list(gather._watched) == ["old-7", "new"]
    assert [state.name for state in console.collector.brokers()] == ["new", "old-7"]
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_broker_that_is_named_again_stays() -> None:
    """Time counts from the first answer without it; a name server that is silent says nothing."""
    admin = Named(name_server=NOWHERE)
    admin.datas = named = (broker("a"), broker("b"))
    gather, _, clock = watch(admin)
    await gather._find_brokers()
    admin.fails = True
    for _ in range(2):
        clock.ms += 60 * MINUTE_MS
        await gather._find_brokers()
    admin.fails = False
    for admin.datas in (named[:1], named, named[:1]):
        await gather._find_brokers()
        clock.ms += 10 * MINUTE_MS
    await gather._find_brokers()
    assert list(gather._watched) == ["a", "b"]


def test_the_queues_of_a_forgotten_broker_go_with_it() -> None:
    """They would be shown as free; those of others stay."""
    collector = Collector()
    for name in ("broker-a", "broker-b"):
        collector.locked(name, [lock_row(MessageQueue(TOPIC, name, 0), "a")], NOW_MS)
    collector.forget_broker("broker-a")
    kept = (GROUP, MessageQueue(TOPIC, "broker-b", 0))
    assert list(collector.queues) == [kept]
    assert collector.row_of(kept) is not None


# Groups of many brokers --------------------------------------------------------------------------------------


async def test_no_lag_is_noted_while_an_answer_is_too_large() -> None:
    """That of the other brokers alone would look as if the group had caught up."""
    admin = Named(name_server=NOWHERE)
    admin.datas = (broker("a"), broker("b"))
    gather, console, clock = watch(admin)
    await gather.once()
    for admin.large in (("b",), ()):
        clock.ms += MINUTE_MS
        await gather.once()
    assert lags(console) == [(NOW_MS, 14), (NOW_MS + MINUTE_MS, None), (NOW_MS + 2 * MINUTE_MS, 14)]


class Half(Named):
    """The brokers of `silent` answer everything but which groups they have; those of `mute` nothing about a group."""

    silent: tuple[str, ...] = ()
    mute: tuple[str, ...] = ()
    names_fail = False

    async def groups_with_offsets(self) -> dict[str, list[str]]:
        assert self.only is not None
        name = self.only.broker_name
        if name in self.silent:
            raise ClientError("no answer")
        return {GROUP: [TOPIC], f"g-{name}": [TOPIC]}

    async def groups_with_retry_topic(self) -> dict[str, list[str]]:
        if self.names_fail:
            raise ClientError("")
        return {}

    async def progress(self, group: str, topic: str | None = None) -> GroupProgress:
        if self.only is not None and self.only.broker_name in self.mute:
            raise ClientError("no answer")
        return await super().progress(group, topic)


async def test_a_broker_that_names_no_groups_does_not_hide_those_of_others() -> None:
    """It is named on each page until it answers; no group is forgotten meanwhile."""
    admin = Half(name_server=NOWHERE)
    admin.datas = (broker("a"), broker("b"), broker("c"))
    admin.silent, admin.names_fail = ("a",), True
    gather, console, _ = watch(admin)
    await gather.once()
    assert set(console.collector.groups) == {GROUP, "g-b", "g-c"}
    assert console.collector.groups_unnamed == {"a": "no answer", NOWHERE: "no answer"}
    page = (await ask(console, "/groups")).text
    assert "a did not say which consumer groups it has: no answer" in page
    assert f"{NOWHERE} did not say which consumer groups it has: no answer" in page
    admin.silent, admin.names_fail = (), False
    await gather.once()
    assert "g-a" in console.collector.groups
    admin.silent = ("a",)
    await gather.once()
    assert "g-a" in console.collector.groups
    admin.silent = ()
    await gather.once()
    assert console.collector.groups_unnamed == {}


async def test_no_lag_is_noted_while_a_broker_does_not_answer_about_the_group() -> None:
    """That of the other brokers alone would look as if the group had caught up."""
    admin = Half(name_server=NOWHERE)
    admin.datas = (broker("a"), broker("b"))
    gather, console, clock = watch(admin)
    await gather.once()
    for admin.mute in (("b",), ()):
        clock.ms += MINUTE_MS
        await gather.once()
    assert lags(console) == [(NOW_MS, 14), (NOW_MS + MINUTE_MS, None), (NOW_MS + 2 * MINUTE_MS, 14)]


class Together(Named):
    """No broker answers about groups, or about itself, before all four have been asked."""

    waiting: dict[str, asyncio.Barrier]

    async def broker_runtime(self, address: str) -> dict[str, str]:
        await self.waiting["runtime"].wait()
        return {}

    async def groups_with_offsets(self) -> dict[str, list[str]]:
        await self.waiting["names"].wait()
        return await super().groups_with_offsets()

    async def progress(self, group: str, topic: str | None = None) -> GroupProgress:
        await self.waiting["progress"].wait()
        return await super().progress(group, topic)


async def test_all_brokers_are_asked_at_once() -> None:
    """Each may take its time until it counts as silent, and many silent ones take no longer than one."""
    admin = Together(name_server=NOWHERE)
    admin.waiting = {what: asyncio.Barrier(4) for what in ("runtime", "names", "progress")}
    admin.datas = tuple(broker(f"b{number}") for number in range(4))
    gather, console, _ = watch(admin)
    await gather.once()
    assert console.collector.groups_unnamed == {}
    assert sorted(queue.broker_name for queue in console.collector.groups[GROUP].reading.offsets) == [
        "b0", "b1", "b2", "b3",
    ]  # fmt: skip


async def test_a_broker_that_is_gone_keeps_its_offsets() -> None:
    """It is not asked about groups any more; without its queues the group would look as if it had caught up."""
    admin = Stopping(name_server=NOWHERE)
    admin.datas = (broker("a", "10.0.0.1:1"), broker("b", "10.0.0.2:1"))
    gather, console, clock = watch(admin)
    await gather.once()
    admin.stopped = ("10.0.0.2:1",)
    clock.ms += MINUTE_MS
    await gather.once()
    state = console.collector.groups[GROUP]
    assert sorted(queue.broker_name for queue in state.reading.offsets) == ["a", "b"]
    assert lags(console) == [(NOW_MS, 14), (NOW_MS + MINUTE_MS, None)]


class Stopping(Named):
    """Those of `stopped` say nothing about themselves."""

    stopped: tuple[str, ...] = ()

    async def is_lockstep(self, address: str) -> bool:
        if address in self.stopped:
            raise ClientError("no answer")
        return False

    async def broker_runtime(self, address: str) -> dict[str, str]:
        await self.is_lockstep(address)
        return {}


class Answering(AdminClient):
    """Four Apache brokers, each with the offsets of one group. What they answer is counted and decoded."""

    def __init__(self) -> None:
        super().__init__(name_server=NOWHERE)
        self.topic_lists: list[None] = []

    async def brokers(self) -> list[BrokerData]:
        only = self._only
        return [only] if only is not None else [broker(f"b{number}", f"10.0.0.{number}:1") for number in range(4)]

    async def is_lockstep(self, address: str) -> bool:
        return False

    async def broker_runtime(self, address: str) -> dict[str, str]:
        return {}

    async def topics(self) -> list[str]:
        self.topic_lists.append(None)
        reply = RemotingCommand(0, body=encode_body(TopicList(("x" * 600, "%RETRY%g-retry")), SerializeType.JSON))
        self._take(NOWHERE, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, reply)
        return ["%RETRY%g-retry"]

    async def _ask(
        self, address: str, code: RequestCode, header: object = None, *, timeout_ms: int | None = None
    ) -> RemotingCommand:
        assert code == RequestCode.GET_ALL_CONSUMER_OFFSET
        table = ConsumerOffsetTable({f"{TOPIC}@g{address}": dict.fromkeys(range(60), 1)})
        return RemotingCommand(0, body=encode_body(table, SerializeType.JSON))


async def test_each_broker_has_a_bound_for_the_names_of_its_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the groups of the last one are read too; the name server is asked once for all."""
    monkeypatch.setattr(gathering, "READ_BYTES_MAX", 1000)
    admin = Answering()
    gather, console, _ = watch(admin)
    await gather._find_brokers()
    for watched in gather._watched.values():
        await gather._look_or_fail(watched)
    assert list(await gather._group_names()) == ["g-retry", *(f"g10.0.0.{number}:1" for number in range(4))]
    assert len(admin.topic_lists) == 1
    assert met(console) == []


def test_topics_of_all_groups_take_bounded_memory() -> None:
    """Each answer has its bound, but there may be 256; groups stay, without more topics."""
    names = GroupNames(3, 20_000)
    for number in range(256):
        names.add({"a": [f"topic-{number}-{place}" for place in range(10)], "z": ["x" * (TEXT_MAX + 1), "orders"]})
    found = names.by_name()
    assert (names.groups_left_out, names.topics_left_out) == (False, True)
    assert 100 < len(found["a"]) < 200
    assert found["z"] == ["orders"]
    names.add({"b": [], "c": ["late"]})
    assert names.groups_left_out
    assert list(names.by_name()) == ["a", "b", "c"]


def test_groups_that_are_left_out_make_room_for_topics() -> None:
    """Only what is kept counts."""
    names = GroupNames(1, 1000)
    names.add({"z": ["t1", "t2", "t3", "t4", "t5"], "a": []})
    names.add({"a": ["t6", "t7"]})
    assert names.by_name() == {"a": ["t6", "t7"]}
