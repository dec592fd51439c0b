"""The broker's settings, statistics and runtime info: codes 25, 26, 28, 306, 315, 316, 329 (wire.md 2.4, 2.6)."""

from collections.abc import Sequence
from dataclasses import asdict

import pytest

from lockstep.broker.config import BrokerConfig
from lockstep.protocol.bodies.admin import BrokerStatsData
from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.bodies.name_server import KvTable
from lockstep.protocol.codes import RequestCode, ResponseCode, SerializeType
from lockstep.protocol.headers.admin import GetBrokerConfigResponseHeader, ViewBrokerStatsRequestHeader
from lockstep.protocol.headers.messaging import CreateTopicRequestHeader
from lockstep.remoting.settings import SettingError, with_properties
from tests.broker.helpers import NOW_MS, Peer

R, C = RequestCode, ResponseCode
POOLS = [f"{pool}ThreadPoolQueue" for pool in ("pull", "query", "send")]
RUNTIME_NAMES = {
    *(pool + fact for pool in POOLS for fact in ("Capacity", "HeadWaitTimeMills", "Size")),
    *[
        "EndTransactionQueueSize",
        "EndTransactionThreadPoolQueueCapacity",
        "bootTimestamp",
        "brokerVersion",
        "brokerVersionDesc",
        "commitLogDirCapacity",
        "commitLogDiskRatio",
        "commitLogMaxOffset",
        "commitLogMinOffset",
        "consumeQueueDiskRatio",
        "dispatchBehindBytes",
        "dispatchMaxBuffer",
        "earliestMessageTimeStamp",
        "getFoundTps",
        "getMessageEntireTimeMax",
        "getMissTps",
        "getTotalTps",
        "getTransferedTps",
        "msgGetTotalTodayMorning",
        "msgGetTotalTodayNow",
        "msgGetTotalYesterdayMorning",
        "msgPutTotalTodayMorning",
        "msgPutTotalTodayNow",
        "msgPutTotalYesterdayMorning",
        "pageCacheLockTimeMills",
        "putLatency99",
        "putLatency999",
        "putMessageAverageSize",
        "putMessageDistributeTime",
        "putMessageEntireTimeMax",
        "putMessageFailedTimes",
        "putMessageSizeTotal",
        "putMessageTimesTotal",
        "putTps",
        "remainHowManyDataToFlush",
        "remainTransientStoreBufferNumbs",
        "runtime",
        "startAcceptSendRequestTimeStamp",
    ],
}


@pytest.fixture
def peer(header_encoding: SerializeType) -> Peer:
    return Peer(header_encoding)


def settings(peer: Peer) -> dict[str, str]:
    lines = peer.answer(R.GET_BROKER_CONFIG).body.decode().splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_settings_are_lines_under_rocketmqs_names(peer: Peer) -> None:
    """Addresses and ports are those that clients are given."""
    peer.broker.messages.set_port(12345)
    shown = settings(peer)
    assert {name: shown[name] for name in ("brokerName", "brokerIP1", "listenPort", "maxMessageSize")} == {
        "brokerName": "broker-a",
        "brokerIP1": "127.0.0.1",
        "listenPort": "12345",
        "maxMessageSize": "4194304",
    }


def test_settings_hold_what_an_export_asks_for(peer: Peer) -> None:
    """mqadmin exportConfigs takes these without a look whether they are there."""
    wanted = "brokerClusterName brokerId brokerName brokerRole fileReservedTime filterServerNums flushDiskType"
    wanted += " maxMessageSize messageDelayLevel msgTraceTopicName slaveReadEnable traceOn traceTopicEnable useTLS"
    wanted += " autoCreateTopicEnable autoCreateSubscriptionGroup"
    assert set(wanted.split()) <= set(settings(peer))


def test_the_topic_of_traces(peer: Peer) -> None:
    """Off by default, as in RocketMQ; on, it has a route though sends make no topics."""
    assert (settings(peer)["traceTopicEnable"], settings(peer)["msgTraceTopicName"]) == ("false", "RMQ_SYS_TRACE_TOPIC")
    assert peer.broker.catalog.topics.get("RMQ_SYS_TRACE_TOPIC") is None
    properties = {"traceTopicEnable": "true", "msgTraceTopicName": "traces", "autoCreateTopicEnable": "false"}
    tracing = Peer(**asdict(with_properties(BrokerConfig(), properties)))
    assert {name: settings(tracing)[name] for name in properties} == properties
    assert tracing.send(topic="traces").code == 0
    assert tracing.send(topic="RMQ_SYS_TRACE_TOPIC").code == C.TOPIC_NOT_EXIST


@pytest.mark.parametrize("name", ["", "a b", "x" * 128])
def test_a_topic_of_traces_has_a_topics_name(name: str) -> None:
    """Refused at the start, by the name of the setting."""
    with pytest.raises(SettingError, match="trace_topic: "):
        BrokerConfig(trace_topic=name)


def test_a_live_setting_takes_effect_and_the_version_moves(peer: Peer) -> None:
    """The next send is measured by it."""
    assert peer.answer(R.UPDATE_BROKER_CONFIG, None, b"maxMessageSize=3\n").code == 0
    assert peer.send(body=b"four").code == C.MESSAGE_ILLEGAL
    assert settings(peer)["maxMessageSize"] == "3"
    version = peer.answer(R.GET_BROKER_CONFIG).decode_header(GetBrokerConfigResponseHeader).version
    assert version == f'{{"counter":1,"timestamp":{NOW_MS}}}'


@pytest.mark.parametrize(
    "body",
    [b"brokerName=other", b"flushDiskType=SYNC_FLUSH", b"maxMessageSize=3\nlistenPort=1", b"x=\xff\nmaxMessageSize=3"],
)
def test_a_setting_that_cannot_change_now_is_taken_without_a_word_and_logged(peer: Peer, body: bytes) -> None:
    """RocketMQ accepts it too; live settings of the same request are changed."""
    before = settings(peer)
    assert peer.answer(R.UPDATE_BROKER_CONFIG, None, body).code == 0
    assert settings(peer) == before | ({"maxMessageSize": "3"} if b"maxMessageSize" in body else {})
    assert "settings_ignored" in peer.log.names()


@pytest.mark.parametrize("body", [b"nonsense", b"maxMessageSize=big", b"maxMessageSize=-1", b"\xff"])
def test_a_setting_that_cannot_be_changes_nothing(peer: Peer, body: bytes) -> None:
    """It is logged with the reason."""
    before = settings(peer)
    assert peer.answer(R.UPDATE_BROKER_CONFIG, None, body).code == 0
    assert settings(peer) == before
    assert "settings_ignored" in peer.log.names()


def registered(peer: Peer) -> Sequence[TopicConfig]:
    return peer.broker.as_registered(tuple(peer.broker.catalog.topics.topics))


def test_a_broker_that_is_closed_to_writers_says_so_of_every_topic(peer: Peer) -> None:
    """Name servers learn of it at once, and again when it opens."""
    peer.answer(R.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader("T", "TBW102", 2, 2, 6))
    peer.answer(R.UPDATE_BROKER_CONFIG, None, b"brokerPermission=4")
    assert {config.perm for config in registered(peer)} == {4}
    peer.answer(R.UPDATE_BROKER_CONFIG, None, b"brokerPermission=6")
    assert {
        config.topic_name: config.perm for config in peer.broker.as_registered(tuple(peer.broker.catalog.topics.topics))
    }["TBW102"] == 7
    assert (peer.topic_changes, peer.broker.catalog.topics.data_version.counter) == (3, 3)


def test_statistics_are_viewed_by_name_and_key(peer: Peer) -> None:
    """An unknown item is an error with RocketMQ's text."""
    peer.send_many(3)
    peer.now_ms += 10_000
    peer.broker.sample(peer.now_ms)
    reply = peer.answer(R.VIEW_BROKER_STATS_DATA, ViewBrokerStatsRequestHeader("TOPIC_PUT_NUMS", "T"))
    assert decode_body(BrokerStatsData, reply.body, peer.encoding).stats_minute.sum == 3
    unknown = peer.answer(R.VIEW_BROKER_STATS_DATA, ViewBrokerStatsRequestHeader("TOPIC_PUT_NUMS", "nowhere"))
    assert (unknown.code, unknown.remark) == (C.SYSTEM_ERROR, "The stats <TOPIC_PUT_NUMS> <nowhere> not exist")


def info(peer: Peer) -> dict[str, str]:
    return dict(decode_body(KvTable, peer.answer(R.GET_BROKER_RUNTIME_INFO).body, peer.encoding).table)


def test_the_runtime_info_has_rocketmqs_names(peer: Peer) -> None:
    """All that were seen, scheduleMessageOffset_N aside; values are text."""
    shown = info(peer)
    assert set(shown) == RUNTIME_NAMES
    assert (shown["brokerVersion"], shown["brokerVersionDesc"]) == ("409", "V4_9_8")


def test_the_runtime_info_tells_what_happened(peer: Peer) -> None:
    """Messages put and got, bytes, rates, the log's bounds and the oldest message."""
    peer.send_many(20)
    for offset in (0, 10, 20):
        peer.pull(offset, max_msg_nums=10)
    peer.now_ms += 90_061_000
    shown = info(peer)
    assert (shown["msgPutTotalTodayNow"], shown["msgGetTotalTodayNow"]) == ("20", "20")
    assert int(shown["putMessageSizeTotal"]) == int(shown["commitLogMaxOffset"]) > 0
    assert float(shown["commitLogDiskRatio"]) > 0
    assert shown["earliestMessageTimeStamp"] == str(NOW_MS)
    assert shown["runtime"] == "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"
    assert len(shown["putTps"].split()) == 3
    assert float(shown["getTotalTps"].split()[0]) == pytest.approx(3 / 90_061)


def test_clean_up_is_always_done(peer: Peer) -> None:
    """Memory is given back at once, so these find nothing to do."""
    for code in (R.CLEAN_EXPIRED_CONSUMEQUEUE, R.CLEAN_UNUSED_TOPIC, R.DELETE_EXPIRED_COMMITLOG):
        assert peer.answer(code).code == 0
