"""The names of hosts for the addresses and client ids that logs and traces have."""

import re

from lockstep.simulation.lab.cluster import Cluster
from lockstep.simulation.world import World

__all__ = ["Names"]

_ADDRESS = re.compile(r"\b10\.0\.\d+\.\d+\b(?:@[\w.#-]+)?(?:/\d+)?")


class Names:
    """`hosts` are those that logged, in the order of their first line."""

    def __init__(self, world: World, cluster: Cluster) -> None:
        self.world = world
        self.hosts = list(dict.fromkeys(line.host for line in cluster.log))
        self._by_address = {world.network.address_of(host): host for host in self.hosts}

    def of_address(self, address: str) -> str:
        return self._by_address.get(address, address)

    def of_client(self, client_id: str) -> str:
        """The host of a client id, which begins with its address."""
        return self.of_address(client_id.partition("@")[0])

    def of_peer(self, peer: str) -> str:
        """The host of an address with a port."""
        return self.of_address(peer.rpartition(":")[0])

    def in_text(self, text: str) -> str:
        """A text with names for addresses and client ids."""
        return _ADDRESS.sub(lambda found: self.of_client(found[0]), text)
