"""What tools ask of one broker, and the release of a fenced lock."""

import pytest

from lockstep.client.diagnosis.gather import gather_health
from lockstep.client.errors import ClientError
from lockstep.protocol.bodies.broker import BrokerData, TopicList
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.bodies.locks import LockBatchBody, LockTableRow
from lockstep.protocol.bodies.name_server import KvTable
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.remoting.errors import RequestRefused
from tests.client.stage import Stage, on_stage, queue_at

UNLOCK = RequestCode.UNLOCK_BATCH_MQ


@on_stage
async def test_what_a_broker_says_of_itself(stage: Stage) -> None:
    """The table of its runtime info is returned as it came."""
    broker = await stage.broker("broker-a")
    broker.answers(RequestCode.GET_BROKER_RUNTIME_INFO, KvTable({"putTps": "1.0 2.0 3.0"}))
    async with stage.admin() as admin:
        assert await admin.broker_runtime(broker.address) == {"putTps": "1.0 2.0 3.0"}


@on_stage
async def test_the_rate_of_pulls_of_either_version_of_rocketmq(stage: Stage) -> None:
    """5 spells the name of the rate unlike 4."""
    broker = await stage.broker("broker-a")
    stage.route_to({"broker-a": 1})
    broker.answers(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, TopicList(("orders",)))
    for name in ("getTransferedTps", "getTransferredTps"):
        broker.answers(RequestCode.GET_BROKER_RUNTIME_INFO, KvTable({name: "1.5 2.0 3.0"}))
        async with stage.admin() as admin:
            facts = await gather_health(admin, stage.client, 0)
        assert [of.pulled_tps for of in facts.brokers] == [1.5]


@on_stage
async def test_a_busy_broker_is_an_error(stage: Stage) -> None:
    """It is no broker without the group: what it has not told must not look like no progress."""
    broker = await stage.broker("broker-a")
    broker.answers(RequestCode.GET_CONSUME_STATS, ResponseCode.SYSTEM_BUSY)
    async with stage.admin() as admin:
        with pytest.raises(RequestRefused, match="SYSTEM_BUSY"):
            await admin.at(BrokerData("broker-a", "c", {0: broker.address})).progress("g")


@on_stage
async def test_a_lock_is_released_under_its_epoch(stage: Stage) -> None:
    """As an unlock of its owner; without an epoch nothing is sent, and a refusal is an error."""
    broker = await stage.broker("broker-a")
    stage.route_to({"broker-a": 2})
    broker.answers(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ResponseCode.SYSTEM_ERROR)
    broker.answers(UNLOCK, ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR)
    row = LockTableRow("g", queue_at(1, "broker-a"), "owner", 1, 2, 3, epoch=7)
    async with stage.admin() as admin:
        await admin.release_lock(row)
        with pytest.raises(RequestRefused):
            await admin.release_lock(row)
        with pytest.raises(ClientError, match="no epoch"):
            await admin.release_lock(row._replace(epoch=None))
    sent = broker.requests(UNLOCK)
    assert len(sent) == 2
    body = decode_body(LockBatchBody, sent[0].body, sent[0].serialize_type)
    assert body == LockBatchBody("g", "owner", (queue_at(1, "broker-a"),), (7,))
