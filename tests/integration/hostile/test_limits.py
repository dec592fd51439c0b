"""Limits over sockets: what a peer above them is answered, who else is served, and how an operator gets in."""

from collections import Counter
from contextlib import AsyncExitStack
from functools import partial

import pytest

from lockstep.client.diagnosis.gather import gather
from lockstep.client.diagnosis.rules import limits_met as limits_of
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.testing.peer import ONE_WAY, json_request
from tests.integration.harness.attacked import BOTH_PORTS, CLIENT_HOSTS, Attack, Attacked, admin_of, limits_met

HEARTBEAT = b'{"clientID":"c","producerDataSet":[{"groupName":"g"}],"consumerDataSet":[]}'
LOCK = b'{"clientId":"c","consumerGroup":"g","mqSet":[{"topic":"T","brokerName":"broker-a","queueId":0}]}'
SPARED = {"broker": (RequestCode.HEART_BEAT, HEARTBEAT), "name server": (RequestCode.QUERY_DATA_VERSION, b"")}
OPERATORS = f"operator_addresses={CLIENT_HOSTS}"


@pytest.mark.parametrize("port", BOTH_PORTS)
def test_a_peer_that_asks_too_much_is_busy(attack: Attack, port: str) -> None:
    """One request a second: of 60 at once one is served, the others have RocketMQ's answer, one-way ones are dropped.
    What the limit spares is served. All are counted, one line is logged, and a peer at another address is served."""
    attack(partial(asks_too_much, port=port), "-D", "requests_per_second_max=1", "-D", OPERATORS)


async def asks_too_much(target: Attacked, port: str) -> None:
    async with target.peer(port, elsewhere=True) as peer, target.peer(port) as operator:
        for opaque in range(60):
            peer.write(json_request(9999, opaque=opaque))
            peer.write(json_request(9999, opaque=1000 + opaque, flag=ONE_WAY))
        replies = [await peer.read() for _ in range(60)]
        assert Counter(reply.code for reply in replies)[ResponseCode.SYSTEM_BUSY] >= 55
        assert [reply.opaque for reply in replies] == list(range(60))
        texts = {reply.remark for reply in replies if reply.code == ResponseCode.SYSTEM_BUSY}
        assert texts == {"[REJECTREQUEST]system busy, start flow control for a while: requests_per_second_max is 1"}
        spared, body = SPARED[port]
        assert (await peer.ask(json_request(spared, {}, body))).code != ResponseCode.SYSTEM_BUSY
        for _ in range(60):
            assert (await operator.ask(json_request(9999))).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert (await limits_met(target))["requests_per_second_max"] >= 110
    async with admin_of(target) as admin:
        facts = await gather(admin, target.runtime, None)
    (found,) = limits_of(facts)
    assert found[0] == "broker broker-a"
    assert found[1].startswith("requests_per_second_max was reached 1")
    (line,) = target.events("limit_met")
    assert (line["setting"], line["maximum"]) == ("requests_per_second_max", 1)
    assert line["peer"].startswith(f"{target.other_host}:")


@pytest.mark.parametrize("port", BOTH_PORTS)
def test_an_address_has_so_many_connections(attack: Attack, port: str) -> None:
    """The fourth is closed, another address is served; when one ends there is room again."""

    async def story(target: Attacked) -> None:
        async with AsyncExitStack() as stack:
            peers = [await stack.enter_async_context(target.peer(port, elsewhere=True)) for _ in range(4)]
            assert await peers[3].is_closed()
            assert (await peers[0].ask(json_request(9999))).opaque == 7
            another = await stack.enter_async_context(target.peer(port))
            assert (await another.ask(json_request(9999))).opaque == 7
            assert (await limits_met(target)) == {"connections_per_peer_max": 1}

    attack(story, "-D", "connections_per_peer_max=3")


def test_an_operator_gets_in_when_all_connections_are_taken(attack: Attack) -> None:
    """Strangers take 18 of 20 connections and no more; a command on the broker's machine is served."""

    async def story(target: Attacked) -> None:
        async with AsyncExitStack() as stack:
            peers = [await stack.enter_async_context(target.peer(elsewhere=True)) for _ in range(25)]
            open_ones = [not await peer.is_closed() for peer in peers[18:]]
            assert not any(open_ones)
            for peer in peers[:18]:
                assert (await peer.ask(json_request(9999))).opaque == 7
            assert await limits_met(target) == {"connections_max": 7}

    attack(story, "-D", "connections_max=20")


@pytest.mark.smoke
def test_requests_under_way_have_a_limit(attack: Attack) -> None:
    """Of five pulls that wait two find no room and are busy; the connection goes on, also with those that wait."""
    pull = {
        "consumerGroup": "g", "topic": "T", "queueId": 0, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 6,
        "commitOffset": 0, "suspendTimeoutMillis": 60_000, "subVersion": 0, "subscription": "*",
    }  # fmt: skip
    send = {
        "producerGroup": "p", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0,
        "sysFlag": 0, "bornTimestamp": 0, "flag": 0,
    }  # fmt: skip

    async def story(target: Attacked) -> None:
        async with target.peer() as peer, target.peer() as other:
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
        assert await limits_met(target) == {"requests_under_way_per_connection_max": 2}

    attack(story, "--topic", "T:1", "-D", "requests_under_way_per_connection_max=3")
