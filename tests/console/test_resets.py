"""A reset of offsets asks all brokers and queues at once, ends in time, and says what was done and what was not."""

import asyncio
from copy import copy
from typing import Self

import pytest

from lockstep.client.admin.client import AdminClient
from lockstep.console.acts import resets
from lockstep.protocol.bodies.broker import BrokerData, QueueData, TopicRouteData
from lockstep.protocol.bodies.client import ConsumerConnection
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.errors import RequestRefused
from tests.console.pages_inside import NOWHERE, Answer, ask, make_console

WHERE = "group=shop&topic=orders&to=earliest"
FORM = b"token=token&" + WHERE.encode()
OWN = {"origin": "http://127.0.0.1:8088"}


class Brokers(AdminClient):
    """Two brokers. Those of `silent` never answer, those of `refusing` refuse changes; the offsets are 50 and 7."""

    queues = 2
    silent: tuple[str, ...] = ()
    refusing: tuple[str, ...] = ()
    is_online = False
    together: asyncio.Barrier | None = None
    only = ""

    def __init__(self) -> None:
        super().__init__(name_server=NOWHERE)
        self.stored: dict[MessageQueue, int] = {}

    def bounded(self, bytes_max: int) -> Self:
        return self

    def at(self, broker: BrokerData) -> Self:
        view = copy(self)
        view.only = broker.broker_name
        return view

    async def route(self, topic: str) -> TopicRouteData:
        names = ("broker-a", "broker-b")
        return TopicRouteData(
            tuple(QueueData(name, self.queues, self.queues, 6, 0) for name in names),
            tuple(BrokerData(name, "c", {0: NOWHERE}) for name in names),
        )

    async def _answers(self, name: str) -> None:
        if name in self.silent:
            await asyncio.Event().wait()

    async def members(self, group: str) -> ConsumerConnection | None:
        await self._answers(self.only)
        return ConsumerConnection((), {}) if self.is_online else None

    async def consumer_offset(self, group: str, queue: MessageQueue) -> int | None:
        await self._answers(queue.broker_name)
        if self.together is not None:
            await self.together.wait()
        return 50

    async def min_offset(self, queue: MessageQueue) -> int:
        return 7

    async def update_consumer_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        self._refuse(queue.broker_name)
        self.stored[queue] = offset

    async def reset_offsets(
        self, group: str, topic: str, timestamp_ms: int = -1, *, force: bool = True
    ) -> dict[MessageQueue, int] | None:
        await self._answers(self.only)
        self._refuse(self.only)
        return {MessageQueue(topic, self.only, number): 7 for number in range(self.queues)} if self.is_online else None

    def _refuse(self, name: str) -> None:
        if name in self.refusing:
            raise RequestRefused(name, "UPDATE_CONSUMER_OFFSET", ResponseCode.NO_PERMISSION, "not you")


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silent brokers are waited for in vain: tests wait less."""
    monkeypatch.setattr(resets, "PATIENCE_S", 0.5)


async def preview(admin: AdminClient) -> Answer:
    return await ask(make_console(admin=admin), f"/reset?{WHERE}")


async def reset(admin: AdminClient) -> Answer:
    return await ask(make_console(admin=admin), "/reset", method="POST", headers=OWN, body=FORM)


async def test_queues_are_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 16 queues a broker none answers before all have been asked."""
    monkeypatch.setattr(resets, "PATIENCE_S", 30)
    admin = Brokers()
    admin.queues, admin.together = 16, asyncio.Barrier(32)
    assert "Reset 32 offsets of shop" in (await preview(admin)).text


async def test_a_silent_broker_is_named_before_a_reset() -> None:
    """The offsets of the other one can be reset meanwhile."""
    admin = Brokers()
    admin.silent = ("broker-b",)
    page = await preview(admin)
    assert page.status == 200
    assert "Reset 2 offsets of shop" in page.text
    assert "2 queues of broker-b are left out: no answer within 0.5 s" in page.text


async def test_only_silent_brokers() -> None:
    """There is nothing to reset, and the page says why."""
    admin = Brokers()
    admin.silent = ("broker-a", "broker-b")
    page = await preview(admin)
    assert page.status == 200
    assert "2 queues of broker-a are left out" in page.text
    assert "No offset would change" not in page.text
    assert '<button class="danger">' not in page.text


async def test_what_was_stored_and_what_was_not() -> None:
    """Of a group that is offline."""
    admin = Brokers()
    admin.silent = ("broker-b",)
    page = await reset(admin)
    assert page.status == 200
    assert admin.stored == {MessageQueue("orders", "broker-a", number): 7 for number in range(2)}
    assert "Done on broker-a. The offsets are stored." in page.text
    assert "2 queues of broker-b are left out: no answer within 0.5 s" in page.text


async def test_what_members_were_told_and_what_not() -> None:
    """Of a group that is online; the other broker refuses."""
    admin = Brokers()
    admin.is_online, admin.refusing = True, ("broker-b",)
    page = await reset(admin)
    assert "Done on broker-a. The brokers told the members" in page.text
    assert "Not done on broker-b:" in page.text
    assert "not you" in page.text
    assert not admin.stored


class StopsMeanwhile(Brokers):
    """broker-b says its offsets, and then answers no more."""

    async def reset_offsets(
        self, group: str, topic: str, timestamp_ms: int = -1, *, force: bool = True
    ) -> dict[MessageQueue, int] | None:
        if self.only == "broker-b":
            await asyncio.Event().wait()
        return await super().reset_offsets(group, topic, timestamp_ms, force=force)


async def test_a_broker_that_may_still_do_it() -> None:
    """A stopped process finds the request when it goes on."""
    page = await reset(StopsMeanwhile())
    assert "Done on broker-a. The offsets are stored." in page.text
    assert "broker-b did not answer within 0.5 s. It may still make the change when it goes on" in page.text


async def test_a_form_without_a_target_moves_nothing() -> None:
    """The reader has not said where the offsets go."""
    admin = Brokers()
    body = b"token=token&group=shop&topic=orders"
    answer = await ask(make_console(admin=admin), "/reset", method="POST", headers=OWN, body=body)
    assert (answer.status, admin.stored) == (400, {})
