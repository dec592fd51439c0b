"""What the console reads of brokers: a broker that does not answer changes nothing of what is known."""

from typing import Self

from lockstep.client.admin.client import AdminClient
from lockstep.client.errors import ClientError
from lockstep.console.gather import gather_once
from lockstep.protocol.bodies.broker import BrokerData
from lockstep.protocol.bodies.client import ConsumerConnection
from tests.console.pages_inside import NOWHERE, make_console
from tests.console.readings import GROUP, TOPIC, reading, watched


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

    async def all_groups(self) -> dict[str, list[str]]:
        return {GROUP: [TOPIC]}

    async def members(self, group: str) -> ConsumerConnection | None:
        raise ClientError("no answer")


async def test_a_broker_that_ends_while_groups_are_read() -> None:
    """Its groups keep their members and lag: they are not shown as offline with nothing to consume."""
    console = make_console(watched(reading()), EndsMeanwhile(name_server=NOWHERE))
    await gather_once(console)
    assert console.collector.groups[GROUP].reading == reading()
