"""A request that a broker passes on to a consumer that never answers, over connections on virtual time."""

from collections.abc import Awaitable, Callable

import pytest

from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.codes import RequestCode, ResponseCode, SerializeType
from lockstep.protocol.headers.admin import GetConsumerRunningInfoRequestHeader
from lockstep.simulation import World, simulate
from tests.broker.cluster import Client, serve
from tests.broker.helpers import ENCODINGS, consumer, heartbeat_of

R, C = RequestCode, ResponseCode
HEARTBEAT = heartbeat_of("a", consumer("G", SubscriptionData.parse("T", "*", 1)))
ASK_RUNNING = GetConsumerRunningInfoRequestHeader("G", "a")


def ask_a_silent_consumer(
    meanwhile: Callable[[World, Client, Client], Awaitable[None]], encoding: SerializeType
) -> int:
    """The code that the administrator gets."""

    async def scenario(world: World) -> int:
        served = await serve(world.host("broker"))
        silent, admin = Client(world.host("consumer"), encoding), Client(world.host("admin"), encoding)
        await silent.call(served.address, R.HEART_BEAT, None, HEARTBEAT)
        started_ms = world.host("admin").now_ms()
        question = world.host("admin").create_task(
            admin.call(served.address, R.GET_CONSUMER_RUNNING_INFO, ASK_RUNNING), name="question"
        )
        while not any(command.code == R.GET_CONSUMER_RUNNING_INFO for command in silent.pushed):
            await world.sleep_ms(10)
        await meanwhile(world, silent, admin)
        code = (await question).code
        assert world.host("admin").now_ms() - started_ms < 11_000
        silent.close()
        admin.close()
        await served.server.shutdown()
        assert served.log.names("error") == []
        return code

    return simulate(scenario, seed=5).value


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_after_ten_seconds_the_asker_is_told_that_nobody_answered(encoding: SerializeType) -> None:
    """CONSUME_MSG_TIMEOUT; everybody is still connected."""

    async def wait(world: World, silent: Client, admin: Client) -> None:
        await world.sleep_ms(9_000)

    assert ask_a_silent_consumer(wait, encoding) == C.CONSUME_MSG_TIMEOUT


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_consumer_that_goes_meanwhile_is_an_error_at_once(encoding: SerializeType) -> None:
    """SYSTEM_ERROR, long before the ten seconds."""

    async def go(world: World, silent: Client, admin: Client) -> None:
        silent.close()

    assert ask_a_silent_consumer(go, encoding) == C.SYSTEM_ERROR
