"""The page Order: its rows, what stands where something is not known, its ribbons, and how long 200 rows take."""

import asyncio
import re
import time

import pytest
from markupsafe import escape

from lockstep.console.collector import Collector
from lockstep.console.model import HISTORY_MS, BrokerState, GroupReading, Mark, MarkKind, Span
from lockstep.console.owners import owner_of
from lockstep.console.pages.order import Call, order_view
from lockstep.console.ribbon import WIDTH, ribbon
from lockstep.console.snapshot import snapshot_html
from lockstep.console.translations.choose import Texts
from lockstep.console.window import Window
from lockstep.protocol.bodies.admin import OffsetWrapper
from lockstep.protocol.bodies.client import ConsumerRunningInfo, ProcessQueueInfo
from tests.console.locks_made import GROUP, NOW_MS, change, queue_at, row
from tests.console.pages_inside import Clock, ask, make_console
from tests.rows import by_row
from tests.yardstick import yardstick_s

EVIL = "<script>alert(1)</script>"
BROKER = BrokerState("broker-a", "127.0.0.1:1", is_lockstep=True, refused_count=3, fenced_counts={"pull.fenced": 2})
TEXTS = Texts("en")


def collected() -> Collector:
    """Queue 0: owned, in a call, behind. Queue 1: draining. Queue 2: expired. Queue 3: no owner."""
    collector = Collector()
    collector.broker_answered(BROKER, NOW_MS)
    collector.changed([change(NOW_MS - 50_000, None, "a", "granted", epoch=7)], 0, NOW_MS)
    rows = [
        row("a", age_ms=15_000, held_ms=50_000, epoch=7),
        row("b", queue=queue_at(1), draining=True, epoch=2),
        row("c", queue=queue_at(2), age_ms=65_000),
    ]
    collector.locked("broker-a", rows, NOW_MS)
    told = ProcessQueueInfo(
        transaction_msg_count=2, transaction_msg_min_offset=40, last_consume_timestamp=NOW_MS - 4000
    )
    offsets = {
        queue_at(0): OffsetWrapper(50, 40, 0, NOW_MS - 9000),
        queue_at(1): OffsetWrapper(5, 5),
        queue_at(2): OffsetWrapper(8, 1),
        queue_at(3): OffsetWrapper(),
    }
    infos = {"a": ConsumerRunningInfo({}, (), {queue_at(0): told}, {})}
    collector.group(GroupReading(GROUP, ("orders",), None, infos, offsets), NOW_MS)
    return collector


def test_a_row_says_what_is_known_of_a_queue() -> None:
    """Owner, epoch, time left, the call in progress, lag and age."""
    first = order_view(collected(), NOW_MS + 1000, TEXTS)["rows"][0]
    assert first.lock is not None
    assert (first.lock.owner.client_id, first.lock.epoch, first.lock.held_ms) == ("a", "7", 51_000)
    assert (first.lock.left_ms, first.lock.life_ms, first.lock.share) == (44_000, 60_000, 73)
    assert first.call == Call(2, 40, 5000)
    assert (first.lag, first.oldest_ms, first.stale_ms) == (10, 10_000, None)


def test_what_is_not_known_is_not_made_up() -> None:
    """No info of an owner, no age from a broker that does not tell it, no owner."""
    _, draining, expired, free = order_view(collected(), NOW_MS, TEXTS)["rows"]
    assert draining.lock.is_draining
    assert draining.call is None
    assert (expired.lock.left_ms, expired.lag, expired.oldest_ms) == (-5000, 7, None)
    assert free.lock is None


def test_figures_count_what_the_rows_show() -> None:
    """Two owned, two not; refusals and fences as the broker counts them."""
    figures = order_view(collected(), NOW_MS, TEXTS)["figures"]
    assert figures["order.held"] == 2
    assert figures["order.free"] == 2
    assert (figures["order.draining"], figures["order.lag"]) == (1, 17)
    assert (figures["order.refused"], figures["order.fenced"]) == (3, 2)


def test_rows_of_a_broker_that_is_gone_are_as_they_were() -> None:
    """Time does not go on in them, and they say of when they are."""
    collector = collected()
    collector.broker_failed("broker-a", "127.0.0.1:1", "refused", NOW_MS + 1000)
    first = order_view(collector, NOW_MS + 90_000, TEXTS)["rows"][0]
    assert first.stale_ms == NOW_MS
    assert first.lock.left_ms == 45_000


async def test_the_page_escapes_what_clients_choose() -> None:
    """A client id, a group and a topic with markup."""
    console = make_console()
    now_ms = console.runtime.now_ms()
    queue = queue_at(0, EVIL)
    console.collector.changed([change(now_ms, None, EVIL, "granted", queue=queue, group=EVIL)], 0, now_ms)
    console.collector.changed([change(now_ms, EVIL, EVIL, EVIL, queue=queue, group=EVIL)], 0, now_ms)
    console.collector.locked("broker-a", [row(EVIL, queue=queue, group=EVIL)], now_ms)
    for text in ((await ask(console, "/")).text, snapshot_html(console)):
        assert EVIL not in text
        assert str(escape(EVIL)) in text


async def test_an_empty_page_says_why_and_a_filter_without_queues_too() -> None:
    """Before any lock was seen."""
    assert "No ordered consumer has asked" in (await ask(make_console(), "/")).text
    assert "No queue of this group and topic" in (await ask(make_console(collected()), "/?group=other")).text


async def test_apaches_brokers_are_told_apart() -> None:
    """The page says what such a broker cannot tell."""
    collector = Collector()
    collector.broker_answered(BROKER._replace(is_lockstep=False, refused_count=None, fenced_counts=None), NOW_MS)
    text = (await ask(make_console(collector), "/")).text
    assert "RocketMQ&#39;s broker: it has no list of locks" in text
    assert f"<b>{TEXTS('table.none')}" not in text
    assert order_view(collector, NOW_MS, TEXTS)["figures"]["order.refused"] is None


@by_row("address", ["/order/queue?group=x", "/order/queue", "/order/queue?queue=-1"])
async def test_a_queue_that_is_not_known_is_not_found(address: str) -> None:
    """Whatever the address has."""
    assert (await ask(make_console(collected()), address)).status == 404


async def test_details_of_a_queue_are_a_page_and_a_part() -> None:
    """The script asks for the part; a link opens the page."""
    console = make_console()
    now_ms = console.runtime.now_ms()
    console.collector.changed([change(now_ms - 5000, None, "a", "granted", epoch=7)], 0, now_ms)
    address = "/order/queue?group=billing&topic=orders&broker=broker-a&queue=0"
    page, part = await ask(console, address), await ask(console, address, headers={"x-live": "1"})
    assert "<html" in page.text
    assert "<html" not in part.text
    for text in (page.text, part.text):
        assert "it had no owner" in text


def test_a_ribbon_shows_spans_where_they_were() -> None:
    """15 minutes are 450 units; what began earlier is cut, what ended earlier is left out."""
    quarter_ms = 900_000
    spans = [
        Span(NOW_MS - 2 * quarter_ms, NOW_MS - quarter_ms - 1, "old", None),
        Span(NOW_MS - quarter_ms - 5000, NOW_MS - 600_000, "a", None),
        Span(NOW_MS - 300_000, None, "b", 5),
    ]
    marks = [Mark(NOW_MS - 300_000, MarkKind.TAKEN_OVER, "a", "b", 5, "lease ended", 9000)]
    text = drawn(spans, marks, Window(NOW_MS))
    assert places_in(text) == [("a", "0", "150"), ("b", str(WIDTH * 2 // 3), "150")]
    assert 'data-kind="taken_over"' in text
    assert "its lease ended" in text


def drawn(spans: list[Span], marks: list[Mark], window: Window) -> str:
    return ribbon(spans, marks, window, lambda name: owner_of(name, ord(name[0]) - ord("a")), lambda _: "#x", TEXTS)


def places_in(text: str) -> list[tuple[str, str, str]]:
    return re.findall(r'data-owner="(\w+)".*?<rect x="([\d.]+)" y="2" width="([\d.]+)"', text)


def test_a_short_run_fills_the_ribbon_of_a_minute() -> None:
    """40 s are two thirds of its width; its times have seconds, and those of spans and marks milliseconds."""
    spans = [Span(NOW_MS - 40_000, NOW_MS - 10_123, "a", None), Span(NOW_MS - 10_000, None, "b", None)]
    marks = [Mark(NOW_MS - 10_000, MarkKind.TAKEN_OVER, "a", "b", None, "expired", 123)]
    window = Window(NOW_MS, 1)
    text = drawn(spans, marks, window)
    assert places_in(text) == [("a", "150", "224.1"), ("b", "375", "75")]
    assert "<title>A: a, 22:12:40.000 \N{EN DASH} 22:13:09.877</title>" in text
    assert "<title>22:13:10.000 taken over: a → b" in text
    assert [tick for _, tick in window.ticks()] == ["22:12:30", "22:12:45", "22:13:00"]


@by_row(
    "minutes, shown, first_tick",
    [("1", 1, "22:12:30"), ("15", 15, "22:00"), ("60", 60, "21:30"), ("7", 15, "22:00"), ("x", 15, "22:00")],
)
async def test_the_range_is_in_the_address(minutes: str, shown: int, first_tick: str) -> None:
    """A link for each range, which keeps the filter; a filter keeps the range; what is no range is 15 minutes."""
    console = make_console(collected(), runtime=Clock(NOW_MS))
    text = (await ask(console, f"/?group={GROUP}&minutes={minutes}")).text
    assert f'?group={GROUP}&amp;minutes={shown}" aria-current="true">{shown} min</a>' in text
    assert re.findall(rf"\?group={GROUP}&amp;minutes=(\d+)", text)[-3:] == ["1", "15", "60"]
    assert f'name="minutes" value="{shown}"' in text
    assert re.findall(r'<text x="[\d.]+" y="11" text-anchor="middle">([\d:]+)', text)[0] == first_tick
    assert f"Last {shown} min" in text


def test_what_happened_within_an_hour_is_kept() -> None:
    """The longest ribbon shows an hour."""
    collector = Collector()
    for ago_ms, cause in ((HISTORY_MS + 1, "granted"), (HISTORY_MS - 1000, "unlocked"), (5000, "granted again")):
        old, new = ("a", None) if cause == "unlocked" else (None, "a")
        collector.changed([change(NOW_MS - ago_ms, old, new, cause)], 0, NOW_MS - ago_ms)
    collector.changed([change(NOW_MS, "a", "b", "refused")], 0, NOW_MS)
    (state,) = collector.queues.values()
    assert [mark.at_ms for mark in state.marks] == [NOW_MS - HISTORY_MS + 1000, NOW_MS - 5000, NOW_MS]
    row = order_view(collector, NOW_MS, TEXTS, minutes=60)["rows"][0]
    assert row.ribbon.count('class="mark ') == 3
    assert order_view(collector, NOW_MS, TEXTS)["rows"][0].ribbon.count('class="mark ') == 2


def many_queues() -> Collector:
    """200 queues of two groups with 60 events each, and 9,800 more."""
    collector = Collector()
    collector.broker_answered(BROKER, NOW_MS)
    for number in range(200):
        changes = []
        for step in range(30):
            at_ms = NOW_MS - 800_000 + step * 25_000
            owner = f"client-{step % 9}"
            changes.append(change(at_ms, None, owner, "taken over", queue=queue_at(number), epoch=step + 1))
            changes.append(change(at_ms + 20_000, owner, None, "lease ended", queue=queue_at(number), epoch=step + 1))
        collector.changed(changes, 0, NOW_MS)
    collector.locked("broker-a", [row("client-1", queue=queue_at(number)) for number in range(10_000)], NOW_MS)
    return collector


@pytest.mark.long
async def test_a_page_of_200_rows_is_no_long_work() -> None:
    """Of 10,000 queues, with 60 events in each ribbon: some 50 yardsticks of processor time."""
    console = make_console(many_queues())
    console.runtime.now_ms = lambda: NOW_MS  # type: ignore[method-assign]
    taken, yardsticks = [], []
    for _ in range(5):
        yardsticks.append(yardstick_s())
        began = time.process_time()
        answer = await ask(console, "/")
        taken.append(time.process_time() - began)
        await asyncio.sleep(0)
    assert answer.text.count("<tr data-queue=") == 200
    print(f"200 rows: {min(taken) * 1000:.0f} ms, {len(answer.text):,} bytes")
    assert min(taken) < 150 * min(yardsticks)


async def test_pages_of_rows_follow_each_other() -> None:
    """10,000 queues are 50 pages; a number beyond is the last one."""
    console = make_console(many_queues())
    last = (await ask(console, "/?page=99")).text
    assert "9,801 to 10,000 of 10,000" in last or "9801 to 10000 of 10000" in last
    assert "page=49" in last


async def test_a_snapshot_loads_nothing() -> None:
    """One file: its style inside, no script, no form, no address; marks lead to places in it."""
    text = snapshot_html(make_console(collected()), "zh")
    assert "<script" not in text
    assert "<form" not in text
    assert not re.findall(r'(?:src|href)="(?!#)', text)
    places = set(re.findall(r'href="#([^"]+)"', text))
    assert places
    assert places <= set(re.findall(r'id="([^"]+)"', text))
