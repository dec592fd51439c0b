"""The pages of groups: what they show of members, shares, lag and order."""

import re
from importlib.resources import files
from pathlib import Path

import pytest

from lockstep.console.console import Console
from lockstep.console.pages import groups
from lockstep.console.pages.groups import group_rows, member_rows, queue_rows
from lockstep.console.translations.choose import Texts
from lockstep.console.translations.reasons import PARTS, chinese_reason
from lockstep.protocol.bodies.admin import OffsetWrapper
from lockstep.protocol.bodies.client import POPS, ConsumerRunningInfo
from lockstep.protocol.bodies.heartbeat import ConsumeType
from lockstep.protocol.bodies.pop import DeliveryRow, DeliveryTableBody
from lockstep.protocol.bodies.subscription_group import SubscriptionGroupConfig
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import retry_topic
from tests.console.pages_inside import ask, make_console
from tests.console.readings import GROUP, NOW_MS, QUEUES, info, lock_row, reading, watched
from tests.rows import by_row

RETRY = MessageQueue(retry_topic(GROUP), "broker-a", 0)


def test_a_row_of_a_group() -> None:
    """Members, order, topics, and the lag of the retry topic beside that of the others."""
    offsets = {**reading().offsets, RETRY: OffsetWrapper(5, 2, 0)}
    (row,) = group_rows(watched(reading(offsets=offsets, topics=("orders", RETRY.topic))))
    assert row == (GROUP, 2, "orderly", ("orders",), 40, 3, 7.5)


def test_how_a_group_consumes() -> None:
    """Orderly and concurrent members in one group are mixed; a silent member is unknown; no member is offline."""
    mixed = reading("mixed", infos={"a": info([]), "b": info([], orderly="false")})
    silent = reading("silent", infos={"a": info([], orderly=None)})
    members = reading().members
    assert members is not None
    pulls = reading("pulls", members=members._replace(consume_type=ConsumeType.CONSUME_ACTIVELY))
    rows = group_rows(watched(mixed, silent, pulls, reading("off", members=None, infos={})))
    assert {row.name: row.order for row in rows} == {
        "mixed": "mixed", "off": "offline", "pulls": "pull", "silent": "unknown",
    }  # fmt: skip
    assert [row.name for row in group_rows(watched(mixed, silent), "MIX")] == ["mixed"]


def test_members_with_and_without_running_info() -> None:
    """What a member does not say stays open."""
    first, second = member_rows(reading(infos={"a": info(QUEUES[:2], failed_tps=0.5)}))
    assert (first.client_id, first.order, first.strategy, first.share, first.threads) == ("a", "orderly", "AVG", 2, 20)
    assert (first.ok_tps, first.failed_tps, first.started_ms) == (12.5, 0.5, NOW_MS - 60_000)
    assert (second.client_id, second.order, second.share, second.ok_tps) == ("b", "unknown", None, None)


def test_members_of_grpc() -> None:
    """They own no queues, so no share and no reason is theirs; a simple consumer does not pull by itself."""
    members = reading().members
    assert members is not None
    kinds = zip(members.connection_set, ("PUSH_CONSUMER", "SIMPLE_CONSUMER"), strict=True)
    connections = tuple(one._replace(client_type=kind) for one, kind in kinds)
    pops = ConsumerRunningInfo({"PROP_CONSUMEORDERLY": "true", POPS: "true"}, (), {}, {})
    actively = members._replace(connection_set=connections, consume_type=ConsumeType.CONSUME_ACTIVELY)
    found = reading(members=actively, infos={"a": pops, "b": pops})
    assert [(row.grpc, row.order, row.share) for row in member_rows(found)] == [
        ("push", "orderly", None),
        ("simple", "orderly", None),
    ]
    assert group_rows(watched(found))[0].order == "orderly"
    assert not any(row.why for row in queue_rows(watched(found), found))


def test_queues_with_owners_and_reasons() -> None:
    """The owner is the holder of the lock; an epoch is there only with fenced locks; each queue says why."""
    rows = queue_rows(watched(reading(), epoch=9), reading())
    assert [row.owners for row in rows] == [("a",), ("a",), ("b",), ("b",)]
    assert all(row.epoch is not None and row.lag == 10 for row in rows)
    assert all(row.why and "AVG of 2 members" in row.why[0]["why"] for row in rows)
    assert queue_rows(watched(reading()), reading())[0].epoch is None


def test_a_queue_that_has_no_offset_yet() -> None:
    """A broker tells no progress before the group commits there: the members' queues are shown all the same."""
    offsets = {queue: of for queue, of in reading().offsets.items() if queue != QUEUES[3]}
    infos = {"a": info([*QUEUES[:2], RETRY]), "b": info(QUEUES[2:])}
    rows = queue_rows(watched(found := reading(offsets=offsets, infos=infos)), found)
    assert [row.queue for row in rows] == QUEUES
    assert rows[3][1:7] == (("b",), None, None, None, None, 0)


def test_the_reason_of_the_owner_comes_first() -> None:
    """The page shows one word beside the owner: it must not be that of another member."""
    locks = [lock_row(QUEUES[0], "b")]
    collector = watched(reading())
    collector.locked("broker-a", locks, NOW_MS)
    row = queue_rows(collector, reading())[0]
    assert row.owners == ("b",)
    assert [(why["client_id"], why["did"]) for why in row.why] == [("b", "locked"), ("a", "refused")]


@by_row(
    "english, words",
    [
        ("allocated to a@1: a@1 joined, b left", ["a@1", "a@1", "b"]),
        ("its last period ended: not pulled for 120000 ms", ["120000", "ms"]),
        ("the route changed: the topic has 8 queues, had 4", ["8", "4"]),
        ("locked by another client, by c, which is no member now: its lease or its lock delay runs", ["c"]),
        ("locked by another client, which the broker does not name; c had it in the last allocation", ["Broker", "c"]),
        ("reckoned: AVG of 2 members gives it to no member; c holds the lock", ["2", "AVG", "c"]),
        ("a newer reason", ["a", "newer", "reason"]),
    ],
)
def test_a_reason_in_chinese(english: str, words: list[str]) -> None:
    """No English is left but names and units; what is not known stays."""
    assert re.findall(r"[\w@]+", chinese_reason(english), re.ASCII) == words
    assert Texts("en").reason(english) == english


def test_the_client_says_what_is_translated() -> None:
    """A reason that the client words anew would stay English on the Chinese page."""
    client = Path(str(files("lockstep.client")))
    said = "".join(path.read_text("utf-8") for path in client.rglob("*.py"))
    assert [part for part in PARTS if part not in said] == []


def test_an_empty_retry_topic_is_left_out() -> None:
    """It is shown as soon as it has a message."""
    empty = reading(offsets={RETRY: OffsetWrapper(0, 0, 0)}, infos={"a": info([RETRY])})
    assert queue_rows(watched(empty), empty) == []
    waiting = reading(offsets={RETRY: OffsetWrapper(1, 0, 0)}, infos={})
    assert [row.queue for row in queue_rows(watched(waiting), waiting)] == [RETRY]


async def test_the_pages_answer() -> None:
    """All groups, one group, no group yet, and one that is not known."""
    console = make_console(watched(reading(), epoch=3))
    everything = await ask(console, "/groups")
    assert everything.status == 200
    assert '<a href="/group?group=shop">shop</a>' in everything.text
    one = await ask(console, "/group?group=shop")
    assert one.status == 200
    assert "AVG of 2 members" in one.text
    chinese = await ask(console, "/group?group=shop", headers={"accept-language": "zh"})
    assert "<summary>已加锁</summary>" in chinese.text
    assert "2 个成员的 AVG 把它分配给 a" in chinese.text
    assert "/release?group=shop&amp;topic=orders&amp;broker=broker-a&amp;queue=3" in one.text
    assert "unknown" in one.text, "no broker answers how many dead letters there are"
    assert (await ask(console, "/group?group=nobody")).status == 404
    assert "No consumer group yet" in (await ask(make_console(), "/groups")).text
    assert "没有名称匹配的消费组" in (await ask(console, "/groups?q=zzz", headers={"accept-language": "zh"})).text
    assert (await ask(console, "/groups?page=x")).status == 400


async def test_a_wide_share_is_cut() -> None:
    """Each of 1,000 queues would name all 500 of its owner: a page of two megabytes, asked for again and again."""
    queues = [MessageQueue("orders", "broker-a", number) for number in range(1000)]
    offsets = dict.fromkeys(queues, OffsetWrapper(100, 90, 0))
    wide = reading(offsets=offsets, infos={"a": info(queues[::2]), "b": info(queues[1::2])})
    page = (await ask(make_console(watched(wide)), "/group?group=shop")).text
    assert page.count(" …</span>") >= 200
    assert len(page) < 500_000


async def test_deliveries_that_hold_up_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has what until when, and which attempt it is. Without pops there is no table."""
    console = make_console(watched(reading()))
    now_ms = console.runtime.now_ms()
    held = DeliveryRow(QUEUES[0], 7, now_ms - 5000, now_ms + 60_000, 0, None, "popper")
    again = DeliveryRow(QUEUES[1], 8, now_ms - 50_000, now_ms - 1000, 2)
    told: list[DeliveryTableBody | None] = [DeliveryTableBody((held, again), late=3, stale=4, revived=5)]

    async def popped(_console: Console, _group: str) -> DeliveryTableBody | None:
        return told[-1]

    monkeypatch.setattr(groups, "deliveries", popped)
    page = (await ask(console, "/group?group=shop")).text.partition("Deliveries that are not acknowledged: 2")[2]
    first, second = page.split("<tr>")[2:4]
    assert "popper" in first
    assert "until " in first
    assert "it comes again" in second
    assert '<td data-label="Attempt" class="number bad">3</td>' in second
    assert "came too late: 3; that were refused: 4. Messages stored again: 5." in page
    for nothing in (None, DeliveryTableBody(())):
        told.append(nothing)
        assert 'id="deliveries"' not in (await ask(console, "/group?group=shop")).text


async def test_a_group_in_order_over_grpc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its members own no queue: the page says who holds deliveries of one, of which message, how often."""
    offsets = dict.fromkeys(QUEUES, OffsetWrapper(100, 90, 0))
    console = make_console(watched(), runtime=None)
    console.collector.queues.clear()
    console.collector.group(reading(infos={}, offsets=offsets), NOW_MS)
    now_ms = console.runtime.now_ms()
    rows = (DeliveryRow(QUEUES[0], 7, now_ms, now_ms + 60_000, 1, None, "a"),)

    async def popped(_console: Console, _group: str) -> DeliveryTableBody | None:
        return DeliveryTableBody(rows)

    async def config(_console: Console, group: str) -> SubscriptionGroupConfig:
        return SubscriptionGroupConfig(group, retry_max_times=3, consume_message_orderly=True)

    monkeypatch.setattr(groups, "deliveries", popped)
    monkeypatch.setattr(groups, "group_config", config)
    page = (await ask(console, "/group?group=shop")).text
    assert page.count("holds deliveries") == 1
    assert 'class="number bad">2 of 4</td>' in page
    assert "/message?topic=orders&amp;broker=broker-a&amp;queue=0&amp;offset=7" in page
    assert "<li><b>3</b><span>Retries, then a dead letter</span></li>" in page
    assert "<li><b>yes</b><span>In order over gRPC</span></li>" in page


async def test_names_are_escaped() -> None:
    """Clients choose their ids, and a group its name."""
    evil = "<script>alert(1)</script>"
    members = reading().members
    assert members is not None
    connections = (members.connection_set[0]._replace(client_id=evil),)
    read = reading(evil, members=members._replace(connection_set=connections), infos={evil: info(QUEUES)})
    console = make_console(watched(read))
    for path in ("/groups", "/group?group=%3Cscript%3Ealert(1)%3C/script%3E"):
        answer = await ask(console, path)
        assert answer.status == 200
        assert "<script>alert" not in answer.text
        assert "&lt;script&gt;alert(1)" in answer.text
