"""RocketMQ 5's own proxy before our broker, and through it its Java client of gRPC: order is kept as before its own.

The proxy forgets a client that is silent for CLIENT_LIFE_S, of 120 s, so that a killed one does not cost minutes.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from typing import Final

import pytest

from tests.interop.grpc import stories
from tests.interop.grpc.stories import SDKS, GrpcStory
from tests.interop.harness.drivers import Drivers
from tests.interop.harness.servers import Server, apache_proxy, lockstep_server
from tests.interop.harness.table import RowMaker

pytestmark = pytest.mark.timeout(540)
CLIENT_LIFE_S: Final = 25  # clients say each 10 s that they are there


@pytest.fixture(scope="module", params=["faithful", "fenced"])
def through(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    """Our broker in each of its modes, and where the proxy before it serves."""
    folders = [tmp_path_factory.mktemp(name) for name in ("lockstep", "proxy")]
    with ExitStack() as stack:
        server = stack.enter_context(lockstep_server(folders[0], "--lock-mode", request.param))
        life = {"channelExpiredTimeout": CLIENT_LIFE_S * 1000}
        yield server, stack.enter_context(apache_proxy(folders[1], server, life))


@pytest.fixture
async def proxied(through: tuple[Server, str], drivers: Drivers, interop_row: RowMaker) -> AsyncIterator[GrpcStory]:
    server, endpoints = through
    story = GrpcStory(SDKS["Java"], server, endpoints, drivers, interop_row, f"proxy -> {server.name}")
    yield story
    await story.leave()


async def test_keys_stay_in_order(proxied: GrpcStory) -> None:
    await stories.keeps_order(proxied, "push", "simple")


@pytest.mark.parametrize("part", ["push", "simple"])
async def test_order_outlives_a_killed_consumer(proxied: GrpcStory, part: str) -> None:
    """It takes as long as the proxy believes in it."""
    await stories.outlives_a_kill(proxied, part, "", lambda: None)


async def test_a_message_that_fails_goes_to_the_dead_letters(proxied: GrpcStory) -> None:
    await stories.fails_for_good(proxied)


async def test_a_group_without_order_gets_all(proxied: GrpcStory) -> None:
    await stories.shares_without_order(proxied, lambda: None)
