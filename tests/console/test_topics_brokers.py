"""The pages of topics and of brokers: what they show, and what stays open."""

import pytest

from lockstep.client.admin.client import AdminClient
from lockstep.console.collector import Collector
from lockstep.console.model import BrokerState
from lockstep.console.pages.broker_values import value_text
from lockstep.console.pages.brokers import broker_row, grouped, visible_settings
from lockstep.console.pages.topics import consumer_rows, stored_rows, topic_row
from lockstep.console.translations.choose import Texts
from lockstep.protocol.bodies.admin import TopicOffset
from tests.console.pages_inside import ask, make_console
from tests.console.readings import GROUP, NOW_MS, QUEUES, TOPIC, reading, watched
from tests.rows import by_row

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
        "runtime": "[ 1 days, 1 hours, 0 minutes, 5 seconds ]",
    }  # fmt: skip
    row = broker_row(STATE, runtime)
    assert row == (STATE, "V4_9_8", 12.5, None, 50, 0.25, 90_005_000)
    of_5 = {**runtime, "getTransferredTps": "3.5 2.0 1.0"}
    assert broker_row(STATE, of_5).get_tps == 3.5, "RocketMQ 5 spells it so"
    assert broker_row(STATE, None) == (STATE, *(None,) * 6)


def test_runtime_info_by_subject() -> None:
    """Each name once; subjects without a name are left out."""
    found = grouped({"putTps": "1", "locks.granted": "2", "bootTimestamp": "3", "commitLogMaxOffset": "4"})
    assert list(found) == ["rates", "store", "order", "other"]
    assert found["order"] == [("locks.granted", "2")]


@by_row(
    "name, value, english",
    [
        ("putTps", "6.287111421585749 5.0 0.3333", "6.29, 5.00, 0.33 a second in the last 10 s, 1 min, 10 min"),
        ("getFoundTps", "2.5", "2.50 a second"),
        ("bootTimestamp", "1700000000042", "2023-11-14 22:13:20.042"),
        ("earliestMessageTimeStamp", "-1", "\N{EN DASH}"),
        ("limitsMs.queues_max", "1700000000000", "2023-11-14 22:13:20.000"),
        ("commitLogDiskRatio", "0.8061", "80.6 %"),
        ("commitLogDiskRatio_/data/commitlog", "0.26", "26.0 %"),
        ("putMessageAverageSize", "51.33333333333333", "51.33 B"),
        ("putMessageSizeTotal", "1048576", "1.0 MiB"),
        ("commitLogMaxOffset", "1234567", "1,234,567 B"),
        ("sendThreadPoolQueueHeadWaitTimeMills", "1500", "1.5 s"),
        ("putLatency99", "0.25", "0.25 ms"),
        ("msgPutTotalTodayNow", "12345", "12,345"),
        ("runtime", "[ 0 days, 1 hours, 2 minutes, 3 seconds ]", "1 h 2 min"),
        ("commitLogDirCapacity", "Total : 62.7 GiB, Free : 9.0 GiB.", "62.7 GiB in all, 9.0 GiB free"),
        ("scheduleMessageOffset_1", "3,4", "3,4"),
        ("brokerVersionDesc", "V4_9_8", "V4_9_8"),
        ("putTps", "NaN", "NaN"),
    ],
)
def test_a_value_of_a_broker_has_its_unit(name: str, value: str, english: str) -> None:
    """Rounded, and as a date where it is one; what is no number stays as it is."""
    assert value_text(name, value, Texts("en")) == english


async def test_the_page_of_a_broker_is_in_the_language_of_its_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """No English word of the broker stays on the Chinese page."""

    async def runtime(_admin: AdminClient, _address: str) -> dict[str, str]:
        return {
            "putTps": "1.5 1.0 0.5",
            "runtime": "[ 0 days, 1 hours, 2 minutes, 3 seconds ]",
            "commitLogDirCapacity": "Total : 62.7 GiB, Free : 9.0 GiB.",
        }

    monkeypatch.setattr(AdminClient, "broker_runtime", runtime)
    collector = Collector()
    collector.broker_answered(STATE, NOW_MS)
    page = (await ask(make_console(collector), "/broker?broker=broker-a", headers={"accept-language": "zh"})).text
    assert "已运行 1 h 2 min" in page
    assert "每秒 1.50, 1.00, 0.50" in page
    assert "可用 9.0 GiB" in page


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
