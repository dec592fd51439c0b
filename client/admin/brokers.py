"""BrokerAdmin: what one broker says of itself (wire.md 2.6)."""

from lockstep.client.admin.base import AdminBase
from lockstep.protocol.bodies.name_server import KvTable
from lockstep.protocol.codes import RequestCode

__all__ = ["BrokerAdmin"]


class BrokerAdmin(AdminBase):
    """Requests to one broker, by its address."""

    async def broker_runtime(self, address: str) -> dict[str, str]:
        """Return rates, totals and the state of the store, by RocketMQ's names; texts, as the broker writes them."""
        return dict((await self._ask_for(KvTable, address, RequestCode.GET_BROKER_RUNTIME_INFO)).table)

    async def broker_settings(self, address: str) -> dict[str, str]:
        """Return the settings of the broker by name."""
        reply = await self._ask(address, RequestCode.GET_BROKER_CONFIG)
        self._take(address, RequestCode.GET_BROKER_CONFIG, reply)
        lines = [line.partition("=") for line in reply.body.decode("utf-8", "replace").splitlines()]
        return {name.strip(): value.strip() for name, found, value in lines if found}
