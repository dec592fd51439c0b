"""The port of the front for RocketMQ 5: when it is taken, and its TLS."""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from lockstep.broker.cannot_listen import CannotListen
from lockstep.broker.config import BrokerConfig
from lockstep.broker.fronts.grpc.port import GrpcPort
from lockstep.broker.server import BrokerServer
from lockstep.protocol.grpc import messages as pb
from lockstep.remoting.host.runtime import AsyncioRuntime
from lockstep.remoting.tls.link import TlsLink
from lockstep.remoting.tls.options import TlsOptions, client_context
from lockstep.remoting.tls.session import TlsError
from lockstep.simulation import World, simulate
from tests.broker.cluster import Served, serve
from tests.broker.fronts.grpc.grpc_client import GrpcClient, topic_of
from tests.broker.helpers import RecordingLog

ROUTE = pb.QueryRouteRequest(topic=topic_of("T"))


def test_a_broker_starts_without_a_port_that_nobody_asked_for() -> None:
    """Another process has it: an event says so; a port that was asked for is an error."""

    async def scenario(world: World) -> None:
        runtime = world.host("broker")
        taken = await runtime.create_server(asyncio.Protocol, runtime.address, 8081)
        served = await serve(runtime, grpc_port=8081, grpc_optional=True)
        assert (served.server.grpc_address, served.log.names("info")) == ("", ["listen_skipped"])
        await served.server.shutdown()
        with pytest.raises(CannotListen, match="--grpc-port"):
            await serve(runtime, grpc_port=8081)
        taken.close()

    simulate(scenario)


async def served(**settings: Any) -> Served:
    """A broker on real sockets: a certificate is made of chance that no seed repeats."""
    log = RecordingLog()
    config = BrokerConfig(port=0, name_server_port=0, vip_channel=False, grpc_port=0, **settings)
    server = BrokerServer(config, AsyncioRuntime(), log)
    server.create_topic("T", 1)
    await server.start()
    return Served(server, log)


async def over_tls(address: str, client: GrpcClient) -> TlsLink:
    """A connection of a client that trusts any certificate. Raises TlsError when it is not served."""
    context = client_context(TlsOptions(verify=False))
    context.set_alpn_protocols(["h2"])
    link = TlsLink(AsyncioRuntime(), client, context, server=False)
    host, _, port = address.rpartition(":")
    await AsyncioRuntime().create_connection(lambda: link, host, int(port))
    await link.opened
    return link


async def test_tls_needs_no_certificate_of_ours() -> None:
    """One is made at the first handshake, for all that follow; plain clients are served beside."""
    broker = await served()
    plain = await GrpcClient.connect(AsyncioRuntime(), broker.server.grpc_address)
    assert "tls_certificate_made" not in broker.log.names("info")
    for _ in range(2):
        over = GrpcClient("c2")
        link = await over_tls(broker.server.grpc_address, over)
        for one in (over, plain):
            assert (await one.call("QueryRoute", ROUTE)).status.code == pb.OK
        link.abort()
    assert broker.log.names("info").count("tls_certificate_made") == 1
    plain.close()
    await broker.server.shutdown()


async def test_a_host_that_no_certificate_can_name_has_one() -> None:
    """As a container's name with an underscore: these clients trust any certificate."""
    broker = await served(advertise="my_broker")
    link = await over_tls(f"127.0.0.1:{broker.server.grpc_address.rpartition(':')[2]}", GrpcClient("c2"))
    link.abort()
    await broker.server.shutdown()


@pytest.mark.parametrize("cause", ["no maker", "no folder"])
async def test_without_a_certificate_plain_clients_are_served(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cause: str
) -> None:
    """What makes it is not installed, or no file can be written: one line says so, however often clients try."""
    if cause == "no maker":
        monkeypatch.setitem(sys.modules, "trustme", None)
    else:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    broker = await served()
    for _ in range(2):
        with pytest.raises(TlsError):
            await over_tls(broker.server.grpc_address, GrpcClient("c2"))
    assert broker.log.names("warning") == ["tls_not_served"]
    plain = await GrpcClient.connect(AsyncioRuntime(), broker.server.grpc_address)
    assert (await plain.call("QueryRoute", ROUTE)).status.code == pb.OK
    plain.close()
    await broker.server.shutdown()


async def test_a_connection_that_says_nothing_prepares_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """What serves calls is imported before the handshake that makes the certificate: both at once keep the loop."""
    prepared = asyncio.Event()
    monkeypatch.setattr(GrpcPort, "_new_front", lambda _: prepared.set())
    broker = await served()
    host, _, port = broker.server.grpc_address.rpartition(":")
    transport, _ = await AsyncioRuntime().create_connection(asyncio.Protocol, host, int(port))
    await asyncio.wait_for(prepared.wait(), 60)
    transport.abort()
    await broker.server.shutdown()
