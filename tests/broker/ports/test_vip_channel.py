"""The broker listens at the VIP channel's port when it can, and nothing depends on it (wire.md 1.1)."""

import asyncio

from lockstep.protocol.codes import RequestCode
from lockstep.simulation import World, simulate
from tests.broker.cluster import Client, serve
from tests.broker.helpers import send_header


def test_a_broker_comes_up_again_without_its_vip_channel() -> None:
    """Another process may take that port while the broker is down; its own ports work, and a log event says so."""

    async def scenario(world: World) -> None:
        runtime = world.host("broker")
        served = await serve(runtime)
        vip_port = int(served.address.split(":")[1]) - 2
        assert vip_port in await served.server.close_ports()
        taken = await runtime.create_server(asyncio.Protocol, runtime.address, vip_port)
        await served.server.reopen_ports()
        client = Client(world.host("c1"))
        assert (await client.call(served.address, RequestCode.SEND_MESSAGE_V2, send_header("T"), b"x")).code == 0
        assert "listen_skipped" in served.log.names("info")
        client.close()
        taken.close()
        await served.server.shutdown()

    simulate(scenario)
