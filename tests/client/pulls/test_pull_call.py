"""One pull: which broker it goes to, its request, and the meaning of its answer (wire.md 6, 12.6)."""

from typing import Any

import pytest

from lockstep.client.consumer.pull_request import PullCalls, PullRequest, PullResult, PullStatus
from lockstep.client.errors import NoRouteError
from lockstep.client.instance.client import MQClientInstance
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.codes import PullSysFlag, RequestCode, ResponseCode
from lockstep.protocol.headers.messaging import PullMessageResponseHeader
from lockstep.remoting.errors import ConnectFailed, RequestRefused, RequestTimeout
from tests.client.pulls.slaves import BROKER, pulls_of, replicated, route_to_replicas, serves
from tests.client.stage import TOPIC, Stage, on_stage, queue_at

COMMITTING = PullSysFlag.COMMIT_OFFSET | PullSysFlag.SUSPEND
QUEUE = queue_at(0, BROKER)


class Puller:
    def __init__(self, stage: Stage, expression: str = "*") -> None:
        self.instance: MQClientInstance = stage.instance()
        self.calls = PullCalls(self.instance, "tower")
        self.subscription = SubscriptionData.parse(TOPIC, expression, 77)

    async def fetch_route(self) -> None:
        await self.instance.routes.fetch(TOPIC)

    async def pull(self, offset: int, **fields: Any) -> PullResult:
        request = PullRequest(QUEUE, self.subscription, offset, 32, **fields)
        source = self.calls.source(QUEUE)
        return await self.calls.call(request, source, await self.calls.endpoint(QUEUE, source))


async def puller(stage: Stage) -> Puller:
    it = Puller(stage)
    await it.fetch_route()
    return it


@on_stage
async def test_the_next_pull_goes_where_the_broker_says(stage: Stage) -> None:
    """To the slave when the master suggests it, and back when the slave suggests the master."""
    master, slave = await replicated(stage, "slave")
    serves(master, 2, suggests=1)
    serves(slave, 3, suggests=1)
    it = await puller(stage)
    assert [message.queue_offset for message in (await it.pull(0)).messages] == [0, 1]
    assert [message.queue_offset for message in (await it.pull(2)).messages] == [2, 3, 4]
    assert it.calls.source(QUEUE) == (slave.address, True)
    assert it.calls.source(queue_at(1, BROKER)) == (master.address, False), "each queue for itself"
    serves(slave, 3, suggests=0)
    await it.pull(5)
    await it.pull(8)
    assert [pull.queue_offset for pull in pulls_of(master)] == [0, 8]
    assert [pull.queue_offset for pull in pulls_of(slave)] == [2, 5]


@on_stage
async def test_a_slave_gets_no_offset_to_commit(stage: Stage) -> None:
    """The flag is cleared with the offset; every other flag stays."""
    master, slave = await replicated(stage, "slave")
    serves(master, 1, suggests=1)
    serves(slave, 1, suggests=1)
    it = await puller(stage)
    for offset in (7, 8):
        await it.pull(offset, sys_flag=COMMITTING, commit_offset=5)
    assert [(pull.sys_flag, pull.commit_offset) for pull in pulls_of(master)] == [(COMMITTING, 5)]
    assert [(pull.sys_flag, pull.commit_offset) for pull in pulls_of(slave)] == [(PullSysFlag.SUSPEND, 0)]


@on_stage
async def test_a_slave_that_cannot_be_reached(stage: Stage) -> None:
    """The pull fails, and the next one goes to the master."""
    master, slave = await replicated(stage, "slave")
    serves(master, 1, suggests=1)
    it = await puller(stage)
    await it.pull(0)
    slave.stop()
    with pytest.raises(ConnectFailed):
        await it.pull(1)
    await it.pull(1)
    assert [pull.queue_offset for pull in pulls_of(master)] == [0, 1]


@pytest.mark.parametrize(
    ("answer", "error"),
    [(ResponseCode.SYSTEM_ERROR, RequestRefused), (None, RequestTimeout)],
    ids=["refusal", "silence"],
)
@on_stage
async def test_a_slave_that_does_not_serve(stage: Stage, answer: int | None, error: type[Exception]) -> None:
    """One that refuses or says nothing is asked once, then the master again."""
    master, slave = await replicated(stage, "slave")
    serves(master, 1, suggests=1)
    slave.answers(RequestCode.PULL_MESSAGE, answer)
    it = await puller(stage)
    await it.pull(0)
    with pytest.raises(error):
        await it.pull(1, timeout_ms=500)
    await it.pull(1)
    assert (len(pulls_of(slave)), len(pulls_of(master))) == (1, 2)


@on_stage
async def test_brokers_that_leave_the_route(stage: Stage) -> None:
    """As in RocketMQ: a pull for a missing slave goes to the next id, else to the lowest id of the route."""
    master, first, second = await replicated(stage, "first", "second")
    it = await puller(stage)
    serves(master, 1, suggests=1)
    await it.pull(0)
    expected = [
        ({0: master, 2: second}, (second.address, True)),
        ({0: master, 3: second}, (master.address, False)),
        ({2: first, 3: second}, (first.address, True)),
        ({3: second}, (second.address, True)),
    ]
    for by_id, source in expected:
        route_to_replicas(stage, by_id)
        await it.fetch_route()
        assert it.calls.source(QUEUE) == source


@on_stage
async def test_without_a_master_its_slave_is_read(stage: Stage) -> None:
    """The name server dropped the master: the client pulls from the slave without a suggestion."""
    _master, slave = await replicated(stage, "slave")
    serves(slave, 1)
    route_to_replicas(stage, {1: slave})
    it = await puller(stage)
    for offset in (0, 1):
        await it.pull(offset, sys_flag=COMMITTING, commit_offset=5)
    assert [(pull.queue_offset, pull.sys_flag) for pull in pulls_of(slave)] == [(0, 2), (1, 2)]


@on_stage
async def test_no_route_at_all(stage: Stage) -> None:
    """The error names the broker."""
    await stage.broker()
    with pytest.raises(NoRouteError, match="broker-a"):
        Puller(stage).calls.source(QUEUE)


@on_stage
async def test_the_subscription_goes_along_when_asked(stage: Stage) -> None:
    """As in pulls of consumers that pull by themselves: its text, its kind, and no version."""
    (master,) = await replicated(stage)
    serves(master, 1)
    it = Puller(stage, "TagA || TagB")
    await it.fetch_route()
    await it.pull(0, sys_flag=int(PullSysFlag.SUBSCRIPTION))
    await it.pull(0, sub_version=77)
    with_text, without = pulls_of(master)
    assert (with_text.subscription, with_text.expression_type, with_text.sub_version) == ("TagA || TagB", "TAG", 0)
    assert (without.subscription, without.expression_type, without.sub_version) == (None, None, 77)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.PULL_NOT_FOUND, PullStatus.NO_NEW_MSG),
        (ResponseCode.PULL_RETRY_IMMEDIATELY, PullStatus.NO_MATCHED_MSG),
        (ResponseCode.PULL_OFFSET_MOVED, PullStatus.OFFSET_ILLEGAL),
    ],
)
@on_stage
async def test_answers_without_messages(stage: Stage, code: int, status: PullStatus) -> None:
    """Each has its status and the three offsets."""
    (master,) = await replicated(stage)
    header = PullMessageResponseHeader(0, 7, 3, 9)
    master.on[RequestCode.PULL_MESSAGE] = lambda command: command.reply(code, header)
    it = await puller(stage)
    assert await it.pull(5) == (status, 7, 3, 9, [])
