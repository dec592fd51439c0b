"""Charts of throughput and lag: their lines, axes, gaps and legends, and the pages that show them."""

import re
from typing import Final

import pytest
from markupsafe import escape

from lockstep.client.admin.client import AdminClient
from lockstep.console.chart import flow_charts, lines, queue_charts, trace
from lockstep.console.flows import Flow
from lockstep.console.history import History
from lockstep.console.translations.choose import Texts
from lockstep.console.window import RANGES, Window
from lockstep.protocol.bodies.admin import OffsetWrapper, TopicOffset
from lockstep.protocol.model import MessageQueue
from tests.console.pages_inside import Clock, ask, make_console
from tests.console.readings import GROUP, NOW_MS, QUEUES, TOPIC, reading, watched

TEXTS: Final = Texts("en")
POINT: Final = re.compile(r"[ML](-?[\d.]+) ([\d.]+)")


def flow_of(seconds: int, *, silent: range = range(0), every: int = 2) -> Flow:
    """Five messages a second come for so long until now, four go, and what is left waits."""
    flow = Flow()
    for second in range(0, seconds + 1, every):
        at_ms = NOW_MS + (second - seconds) * 1000
        if second in silent:
            flow.gap(at_ms)
        else:
            flow.came, flow.gone, flow.lag = 5 * second, 4 * second, second
            flow.note(at_ms)
    return flow


def paths(drawn: str) -> dict[str, list[tuple[float, float]]]:
    """The points of each line, in 1000 by 100 units."""
    found = re.findall(r'<path class="line (\w+)" d="([^"]*)"', drawn)
    return {kind: [(float(x), float(y)) for x, y in POINT.findall(path)] for kind, path in found}


def test_a_chart_has_axes_units_and_a_legend() -> None:
    """A run of 40 s on the range of a minute: rates as they were, times with seconds, the newest values in words."""
    throughput, lag = flow_charts(flow_of(40), Window(NOW_MS, 1), TEXTS)
    drawn = paths(throughput)
    assert {y for _, y in drawn["in"]} == {0.0}, "5 a second is the end of the axis"
    assert {y for _, y in drawn["out"]} == {20.0}
    assert drawn["in"][-1][0] == 1000
    assert drawn["in"][0][0] == pytest.approx(1000 * 24 / 60, abs=0.1), "a rate needs a few seconds"
    assert re.findall(r"<text[^>]*>([^<]+)", throughput) == ["5", "2.5", "0", "22:12:30", "22:12:45", "22:13:00", "now"]
    assert "messages a second, mean of 10 s" in throughput
    assert 'aria-label="Throughput: in: 5.00 now, 5.00 at most, out: 4.00 now, 4.00 at most"' in throughput
    assert paths(lag)["lag"][0] == (333.3, 100.0)
    assert paths(lag)["lag"][-1] == (1000.0, 20.0), "40 of 50"
    assert "waiting <b>40</b>" in lag


def test_a_gap_is_a_gap() -> None:
    """No line crosses it; it is shaded and says from when to when; after it rates begin anew."""
    throughput, lag = flow_charts(flow_of(600, silent=range(200, 301)), Window(NOW_MS), TEXTS)
    for drawn in (throughput, lag):
        (gap,) = re.findall(r'<rect class="gap" x="([\d.]+)" y="0" width="([\d.]+)"', drawn)
        begin, end = float(gap[0]), float(gap[0]) + float(gap[1])
        assert "<title>no answer: 22:06:38.000 \N{EN DASH} 22:08:22.000</title>" in drawn
        for points in paths(drawn).values():
            assert not [x for x, _ in points if begin < x < end]
        assert drawn.count("M", drawn.index('class="line')) == 2 * len(paths(drawn))
    assert {y for _, y in paths(throughput)["in"]} == {0.0}


def test_a_broker_that_is_silent_now_has_no_value_now() -> None:
    """The last value is not shown as if it were of this moment; the gap goes on until now."""
    flow = flow_of(100)
    flow.gap(NOW_MS + 1000)
    throughput, _ = flow_charts(flow, Window(NOW_MS + 10_000, 1), TEXTS)
    assert "in <b>\N{EN DASH}</b>" in throughput
    (gap,) = re.findall(r'<rect class="gap" x="([\d.]+)" y="0" width="([\d.]+)"', throughput)
    assert float(gap[0]) + float(gap[1]) == pytest.approx(1000)
    later = trace(flow.history, Window(NOW_MS + 600_000, 1))
    assert (later.stretches, len(later.gaps)) == ([], 1)


def test_a_line_has_few_points_and_keeps_its_peak() -> None:
    """An hour of points each two seconds is drawn with some 180; the highest lag stays to be seen."""
    history = History()
    for second in range(0, 3600, 2):
        history.note(NOW_MS + second * 1000, second, second, 900 if second == 2000 else 1)
    for minutes in (15, 60):
        traced = trace(history, Window(NOW_MS + 3_598_000, minutes))
        (line,) = lines(traced, "lag")
        assert 170 <= len(line.stretches[0]) <= 186
    assert line.most == 900


def test_a_topic_that_nobody_reads_has_no_lag() -> None:
    """What came is all that there is; before the first point there is nothing."""
    (throughput,) = flow_charts(flow_of(40), Window(NOW_MS), TEXTS, is_read=False)
    assert list(paths(throughput)) == ["in"]
    assert flow_charts(None, Window(NOW_MS), TEXTS) == []
    assert flow_charts(Flow(), Window(NOW_MS), TEXTS) == []


def test_large_values_have_room() -> None:
    """The texts of the axis are short, whatever brokers answer."""
    flow = flow_of(40)
    flow.lag = 2**80
    flow.note(NOW_MS + 2000)
    _, lag = flow_charts(flow, Window(NOW_MS + 2000, 1), TEXTS)
    assert re.findall(r"<text[^>]*>([^<]+)", lag)[:3] == ["5e+06 T", "2.5e+06 T", "0"]
    for value, text in ((30_000, "50 k"), (900_000, "1 M")):
        flow = flow_of(40)
        flow.lag = value
        flow.note(NOW_MS + 2000)
        assert f">{text}</text>" in flow_charts(flow, Window(NOW_MS + 2000, 1), TEXTS)[1]


def test_queues_have_one_scale() -> None:
    """So that they can be compared; of many those that were behind most are shown, in the order of their names."""
    flow = Flow()
    for number in range(20):
        queue = MessageQueue(TOPIC, "broker-a", number)
        flow.queues[queue] = History()
        for at_ms in (NOW_MS - 4000, NOW_MS):
            flow.queues[queue].note(at_ms, 0, 0, number)
    name, charts = queue_charts(flow, Window(NOW_MS, 1), TEXTS)
    assert name == "Lag of the 12 queues that were behind most"
    assert [re.findall("<b>([^<]+)", one)[0] for one in charts] == [f"{TOPIC} broker-a:{n}" for n in range(8, 20)]
    assert {re.findall(r"<text[^>]*>([^<]+)", one)[0] for one in charts} == {"20"}
    assert queue_charts(None, Window(NOW_MS, 1), TEXTS)[1] == []


async def test_the_page_of_a_group_has_its_charts() -> None:
    """Throughput, lag, and the lag of each queue; the range is chosen by links, and the texts are the reader's."""
    collector = watched(reading())
    for step in range(1, 16):
        offsets = {queue: OffsetWrapper(100 + step * 8, 90 + step * 8, 0) for queue in QUEUES}
        collector.group(reading(offsets=offsets), NOW_MS + step * 2000)
    console = make_console(collector, runtime=Clock(NOW_MS + 30_000))
    text = (await ask(console, f"/group?group={GROUP}&minutes=1")).text
    assert [len(points) for points in paths(text).values()] == [14, 14, 16]
    assert "Throughput: in: 16.00 now, 16.00 at most" in text
    assert text.count('<figure class="plot small">') == 4
    assert f'href="?group={GROUP}&amp;minutes=60">60 min' in text
    chinese = (await ask(console, f"/group?group={GROUP}", headers={"accept-language": "zh"})).text
    assert Texts("zh")("chart.rate", seconds=10) in chinese
    figures = re.sub(r"<[^>]+>|orders|broker-a", " ", "".join(re.findall("<figure.*?</figure>", chinese, re.DOTALL)))
    assert re.findall(r"[A-Za-z]{2,}", figures) == []
    waiting = await ask(make_console(watched(reading()), runtime=Clock(NOW_MS + HOUR_MS * 2)), f"/group?group={GROUP}")
    assert "The first points come within 20 seconds." in waiting.text


HOUR_MS = 3_600_000


async def test_the_pages_of_topics_and_brokers_have_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic without groups is counted while its page is open; of a broker its counters say what came and went."""
    ends = {queue: TopicOffset(0, 0, 0) for queue in QUEUES}

    async def stats(_admin: AdminClient, _topic: str) -> dict[MessageQueue, TopicOffset]:
        return ends

    monkeypatch.setattr(AdminClient, "topic_stats", stats)
    clock = Clock(NOW_MS)
    console = make_console(watched(), runtime=clock)
    for step in range(8):
        clock.ms = NOW_MS + step * 2000
        ends = dict.fromkeys(QUEUES, TopicOffset(0, step * 5, 0))
        counters = {"msgPutTotalTodayNow": str(step * 30), "msgGetTotalTodayNow": str(step * 10)}
        console.collector.broker_counted("broker-a", counters, clock.ms)
        topic = await ask(console, f"/topic?topic={TOPIC}&minutes=1")
    assert "Throughput: in: 10.00 now" in topic.text
    assert list(paths(topic.text)) == ["in"]
    for path in ("/brokers?minutes=1", "/broker?broker=broker-a&minutes=1"):
        text = (await ask(console, path)).text
        assert "Throughput: in: 15.00 now, 15.00 at most, out: 5.00 now" in text, path
        assert list(paths(text)) == ["in", "out", "lag"], path


async def test_names_in_charts_are_escaped() -> None:
    """A topic may have any name on a broker that does not check it."""
    evil = "<script>alert(1)</script>"
    queues = [MessageQueue(evil, evil, number) for number in range(2)]
    read = reading(offsets=dict.fromkeys(queues, OffsetWrapper(5, 1)), infos={})
    collector = watched(read)
    collector.group(read, NOW_MS + 4000)
    text = (await ask(make_console(collector, runtime=Clock(NOW_MS + 4000)), f"/group?group={GROUP}")).text
    assert evil not in text
    assert f"<b>{escape(evil)} {escape(evil)}:0</b>" in text


def test_times_have_room_before_now() -> None:
    """In the narrowest chart of style.css, 212 px without its axis, whatever the time is: letters of 5.5 px, and 22."""
    for minutes in RANGES:
        windows = [Window(NOW_MS + tick * minutes * 100, minutes) for tick in range(600)]
        ends = [212 * place + len(text) * 5.5 / 2 for window in windows for place, text in window.ticks()]
        assert max(ends) < 212 - 22
