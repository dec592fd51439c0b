"""The pages of topics and of brokers: what they show, and what stays open."""

from lockstep.console.collector import Collector
from lockstep.console.model import BrokerState
from lockstep.console.pages.brokers import broker_row, grouped, visible_settings
from lockstep.console.pages.topics import consumer_rows, stored_rows, topic_row
from lockstep.protocol.bodies.admin import TopicOffset
from tests.console.pages_inside import ask, make_console
from tests.console.readings import GROUP, NOW_MS, QUEUES, TOPIC, reading, watched

STATE = BrokerState("broker-a", "127.0.0.1:10911", is_lockstep=True)


def test_a_topic_without_a_route() -> None:
    """Its groups are known all the same."""
    assert topic_row(TOPIC, None, watched(reading())) == (TOPIC, None, (), (GROUP,))


def test_queues_of_a_topic() -> None:
    """A queue without messages has -1 as its first offset on RocketMQ's brokers; the page counts none."""
    stats = {QUEUES[1]: TopicOffset(-1, 0, 0), QUEUES[0]: TopicOffset(5, 9, NOW_MS)}
    assert stored_rows(stats) == [(QUEUES[0], 5, 9, 4, NOW_MS), (QUEUES[1], 0, 0, 0, 0)]


def test_groups_of_a_topic() -> None:
    """With the lag in this topic; a group that only subscribes is there too."""
    new = reading("new", offsets={}, members=None, infos={})
    other = reading("other", topics=("other",), offsets={})
    assert consumer_rows(TOPIC, watched(reading(), new, other)) == [("new", 0, 0, 0), (GROUP, 2, 4, 40)]


def test_what_a_broker_says() -> None:
    """The first of three rates; what today brought; a text that is no number stays open."""
    runtime = {
        "putTps": "12.5 8.0 1.0", "getTransferedTps": "?", "msgPutTotalTodayNow": "150",
        "msgPutTotalTodayMorning": "100", "commitLogDiskRatio": "0.25", "brokerVersionDesc": "V4_9_8",
        "runtime": "[ 0 days, 1 hours ]",
    }  # fmt: skip
    row = broker_row(STATE, runtime)
    assert row == (STATE, "V4_9_8", 12.5, None, 50, 0.25, "0 days, 1 hours")
    assert broker_row(STATE, None) == (STATE, *(None,) * 6)


def test_runtime_info_by_subject() -> None:
    """Each name once; subjects without a name are left out."""
    found = grouped({"putTps": "1", "locks.granted": "2", "bootTimestamp": "3", "commitLogMaxOffset": "4"})
    assert list(found) == ["rates", "store", "order", "other"]
    assert found["order"] == [("locks.granted", "2")]


def test_secret_settings_are_not_shown() -> None:
    """Those of RocketMQ 5's brokers that have a password in them; an empty one is shown as empty."""
    given = {
        "brokerName": "b",
        "innerClientAuthenticationCredentials": '{"secretKey":"s"}',
        "initAuthenticationUser": "",
    }
    assert visible_settings(given) == [
        ("brokerName", "b"), ("initAuthenticationUser", ""), ("innerClientAuthenticationCredentials", "***"),
    ]  # fmt: skip


async def test_the_pages_without_a_broker() -> None:
    """No broker yet, a broker that is gone, a broker that was never named, and topics that nobody lists."""
    assert "No broker yet" in (await ask(make_console(), "/brokers")).text
    collector = Collector()
    collector.broker_answered(STATE, NOW_MS)
    console = make_console(collector)
    assert "answers" in (await ask(console, "/brokers")).text
    collector.broker_failed("broker-a", STATE.address, "refused", NOW_MS)
    listed = await ask(console, "/brokers")
    assert "gone since 22:13:20" in listed.text
    assert "This broker does not answer now." in (await ask(console, "/broker?broker=broker-a")).text
    assert (await ask(console, "/broker?broker=nobody")).status == 404
    assert (await ask(console, "/topics")).status == 502
    assert (await ask(console, "/topic?topic=a%20b")).status == 400
