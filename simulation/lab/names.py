"""The names of hosts for the addresses and client ids that logs and traces have."""

import re

from lockstep.simulation.lab.cluster import Cluster
from lockstep.simulation.lab.said import Said, say
from lockstep.simulation.world import World

__all__ = ["Names"]

_ADDRESS = re.compile(r"\b10\.0\.\d+\.\d+\b(?:@[\w.#-]+)?(?:/\d+)?")


class Names:
    """`hosts` are those that logged so far, in the order of their first line."""

    def __init__(self, world: World, cluster: Cluster) -> None:
        self.world = world
        self._cluster = cluster
        self._by_address = world.addresses

    @property
    def hosts(self) -> list[str]:
        return list(dict.fromkeys(line.host for line in self._cluster.log))

    def of_address(self, address: str) -> str:
        if address not in self._by_address:  # a host may have started since
            self._by_address = self.world.addresses
        return self._by_address.get(address, address)

    def of_client(self, client_id: str) -> str:
        """The host of a client id, which begins with its address."""
        return self.of_address(client_id.partition("@")[0])

    def of_peer(self, peer: str) -> str:
        """The host of an address with a port."""
        return self.of_address(peer.rpartition(":")[0])

    def in_text(self, text: str) -> str:
        """A text with names for addresses and client ids."""
        if isinstance(text, Said):
            named = (
                (name, self.in_text(value) if isinstance(value, str) else value) for name, value in text.values.items()
            )
            return say(text.template, **dict(named))
        return _ADDRESS.sub(lambda found: self.of_client(found[0]), text)
