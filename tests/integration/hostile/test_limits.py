"""Limits over sockets: what a peer above them is answered, who else is served, and how an operator gets in."""

import sys
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from lockstep.client.doctor.cluster import limits_met
from lockstep.client.doctor.gather import gather
from lockstep.protocol.codes import RemotingFlag, RequestCode, ResponseCode
from lockstep.remoting.host.runtime import AsyncioRuntime
from tests.integration.harness.processes import Broker, Processes
from tests.integration.harness.raw import RawPeer, json_request

OTHER = "127.0.0.2"  # another address of this machine
HEARTBEAT = b'{"clientID":"c","producerDataSet":[{"groupName":"g"}],"consumerDataSet":[]}'
LOCK = b'{"clientId":"c","consumerGroup":"g","mqSet":[{"topic":"T","brokerName":"broker-a","queueId":0}]}'
needs_addresses = pytest.mark.skipif(sys.platform != "linux", reason="other systems have one address of loopback")


async def counts(broker: Broker) -> dict[str, int]:
    """How often the broker reached each limit."""
    async with broker.admin() as admin:
        said = await admin.broker_runtime(f"127.0.0.1:{broker.port}")
    return {name.removeprefix("limits."): int(value) for name, value in said.items() if name.startswith("limits.")}


@needs_addresses
@pytest.mark.parametrize("port", ["broker", "name server"])
async def test_a_peer_that_asks_too_much_is_busy(processes: Processes, port: str) -> None:
    """One request a second: of 60 at once one is served, the others have RocketMQ's answer, one-way ones are dropped.
    What the limit spares is served. All are counted, one line is logged, and a peer at another address is served."""
    broker = await processes.broker("-D", "requests_per_second_max=1", "-D", "operator_addresses=127.0.0.1")
    number = broker.port if port == "broker" else broker.name_server_port
    spared = (RequestCode.HEART_BEAT, HEARTBEAT) if port == "broker" else (RequestCode.QUERY_DATA_VERSION, b"")
    one_way = int(RemotingFlag.ONE_WAY)
    async with RawPeer(number, OTHER) as peer, RawPeer(number) as operator:
        for opaque in range(60):
            peer.write(json_request(9999, opaque=opaque))
            peer.write(json_request(9999, opaque=1000 + opaque, flag=one_way))
        replies = [await peer.read() for _ in range(60)]
        assert Counter(reply.code for reply in replies)[ResponseCode.SYSTEM_BUSY] >= 55
        assert [reply.opaque for reply in replies] == list(range(60))
        texts = {reply.remark for reply in replies if reply.code == ResponseCode.SYSTEM_BUSY}
        assert texts == {"[REJECTREQUEST]system busy, start flow control for a while: requests_per_second_max is 1"}
        assert (await peer.ask(json_request(spared[0], {}, spared[1]))).code != ResponseCode.SYSTEM_BUSY
        for _ in range(60):
            assert (await operator.ask(json_request(9999))).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert (await counts(broker))["requests_per_second_max"] >= 110
    async with broker.admin() as admin:
        facts = await gather(admin, AsyncioRuntime(), None)
    (found,) = limits_met(facts)
    assert found[0] == "broker broker-a"
    assert found[1].startswith("requests_per_second_max was reached 1")
    (line,) = broker.events("limit_met")
    assert (line["setting"], line["maximum"]) == ("requests_per_second_max", 1)
    assert line["peer"].startswith(OTHER)


@needs_addresses
@pytest.mark.parametrize("port", ["broker", "name server"])
async def test_an_address_has_so_many_connections(processes: Processes, port: str) -> None:
    """The fourth is closed, another address is served; when one ends there is room again."""
    broker = await processes.broker("-D", "connections_per_peer_max=3")
    number = broker.port if port == "broker" else broker.name_server_port
    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(RawPeer(number, OTHER)) for _ in range(4)]
        assert await peers[3].is_closed()
        assert (await peers[0].ask(json_request(9999))).opaque == 7
        another = await stack.enter_async_context(RawPeer(number))
        assert (await another.ask(json_request(9999))).opaque == 7
        assert (await counts(broker)) == {"connections_per_peer_max": 1}


@needs_addresses
async def test_an_operator_gets_in_when_all_connections_are_taken(processes: Processes) -> None:
    """Strangers take 18 of 20 connections and no more; a command on the broker's machine is served."""
    broker = await processes.broker("-D", "connections_max=20")
    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(RawPeer(broker.port, OTHER)) for _ in range(25)]
        open_ones = [not await peer.is_closed() for peer in peers[18:]]
        assert not any(open_ones)
        for peer in peers[:18]:
            assert (await peer.ask(json_request(9999))).opaque == 7
        assert await counts(broker) == {"connections_max": 7}


async def test_requests_under_way_have_a_limit(processes: Processes) -> None:
    """Of five pulls that wait two find no room and are busy; the connection goes on, also with those that wait."""
    broker = await processes.broker("--topic", "T:1", "-D", "requests_under_way_per_connection_max=3")
    pull = {
        "consumerGroup": "g", "topic": "T", "queueId": 0, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 6,
        "commitOffset": 0, "suspendTimeoutMillis": 60_000, "subVersion": 0, "subscription": "*",
    }  # fmt: skip
    send = {
        "producerGroup": "p", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0,
        "sysFlag": 0, "bornTimestamp": 0, "flag": 0,
    }  # fmt: skip
    async with RawPeer(broker.port) as peer, RawPeer(broker.port) as other:
        for opaque in range(5):
            peer.write(json_request(RequestCode.PULL_MESSAGE, pull, opaque=opaque))
        for opaque in (3, 4):
            reply = await peer.read()
            assert (reply.opaque, reply.code) == (opaque, ResponseCode.SYSTEM_BUSY)
            assert (reply.remark or "").startswith("[OVERLOAD]system busy")
        lock = await peer.ask(json_request(RequestCode.LOCK_BATCH_MQ, {}, LOCK, opaque=9))
        assert (lock.opaque, lock.code) == (9, ResponseCode.SUCCESS)
        await other.ask(json_request(RequestCode.SEND_MESSAGE, send, b"x"))
        assert sorted([(await peer.read()).opaque for _ in range(3)]) == [0, 1, 2]
        reply = await peer.ask(json_request(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": 0}))
        assert reply.code == ResponseCode.SUCCESS
    assert await counts(broker) == {"requests_under_way_per_connection_max": 2}
