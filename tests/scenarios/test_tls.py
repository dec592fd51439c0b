"""A takeover over TLS on virtual time. RSA keys and TLS have chance of their own, so such a run has no hash."""

from pathlib import Path

import pytest
import trustme

from lockstep.client import SerializeType
from lockstep.order import Cause
from lockstep.remoting.tls.options import TlsOptions
from lockstep.simulation import World, simulate
from tests.scenarios.cluster import Cluster


@pytest.mark.parametrize("fenced", [False, True], ids=["faithful", "fenced"])
def test_a_killed_owner_is_followed_over_tls(tmp_path: Path, fenced: bool) -> None:
    """The same locks, pulls and commits in frames that are encrypted; the judge finds order."""
    ca, names = trustme.CA(), {name: str(tmp_path / name) for name in ("ca.pem", "server.pem")}
    ca.cert_pem.write_to_path(names["ca.pem"])
    ca.issue_cert("10.0.0.1", "broker").private_key_and_cert_chain_pem.write_to_path(names["server.pem"])
    tls = TlsOptions(ca=names["ca.pem"])

    async def story(world: World) -> None:
        cluster = Cluster(world, SerializeType.MSGPACK, fenced=fenced)
        await cluster.broker(queues=2, tls_mode="enforcing", tls_cert=names["server.pem"])
        await cluster.producer(tls=tls)
        await cluster.consumer("c1", tls=tls)
        await cluster.consumer("c2", tls=tls)
        await cluster.at(45_000)
        await cluster.send(50, keys=10)
        cluster.crash("c1")
        await cluster.send(50, keys=10)
        await cluster.all_seen()
        assert {cluster.owner(0), cluster.owner(1)} == {cluster.world.host("c2").host.address}
        cluster.expected.possible = (Cause.TAKEOVER,)
        await cluster.end()

    simulate(story, seed=7)
