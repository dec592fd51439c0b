"""The report page: it tells what `lockstep trace check` tells, and its plots share one axis."""

import re
from html import unescape
from html.parser import HTMLParser

import pytest

from lockstep.order import Kind
from lockstep.order.page import CorruptedTraces, JudgedRun, page
from lockstep.order.page.axis import Axis, length_text, time_text
from tests.order.page_runs import EPOCH_MS, judged, records, shared

MS = 1_000_000
EMPTY = {"meta", "br", "rect", "path", "line", "circle"}


class Elements(HTMLParser):
    """All elements with their attributes; fails on a tag that is not closed in its place."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.all: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.all.append((tag, {name: value or "" for name, value in attrs}))
        if tag != "meta":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def of_class(self, name: str) -> list[dict[str, str]]:
        """Attributes of the elements with a class."""
        return [attributes for _, attributes in self.all if name in attributes.get("class", "").split()]


def corrupted() -> JudgedRun:
    """Six queues; the old owner of queue 0 works on 1 ms too long, queue 3 has a swap, and one call ends too early."""
    traces = shared(3, 6, 60_000)
    first, second = (next(iter(traces.values())), list(traces.values())[1])
    begin_ns = next(one["begin_mono_ns"] for one in second if one["queue_id"] == 0 and one["event"] == "handled")
    last = max((one for one in first if one["queue_id"] == 0), key=lambda one: one["mono_ns"])
    last |= {"mono_ns": begin_ns + MS, "wall_ms": EPOCH_MS + begin_ns // MS + 1}
    calls = [one for one in first if one["queue_id"] == 3 and one["event"] == "handled"]
    calls[4]["offset"], calls[7]["offset"] = calls[7]["offset"], calls[4]["offset"]
    calls[10]["mono_ns"], calls[10]["begin_mono_ns"] = calls[10]["begin_mono_ns"], calls[10]["mono_ns"]
    for trace in traces.values():
        trace.sort(key=lambda record: record["mono_ns"])
    return judged(traces, ("a b.jsonl", "c.jsonl"))


def words(text: str) -> str:
    """The text of a page in one line, without markup."""
    return " ".join(unescape(" ".join(Elements(text).texts)).split())


@pytest.mark.parametrize("name", ["in order", "not in order", "undecided", "empty"])
def test_the_page_tells_what_the_command_tells(name: str) -> None:
    """Verdict, reason, counts, evidence with confidence and command, clocks and limits: every line of the report."""
    traces = shared(3, 6, 6_000)
    if name == "undecided":
        for one in list(traces.values())[1]:
            one |= {"host": "n", "wall_ms": one["wall_ms"] + 300}
    run = judged({} if name == "empty" else traces)
    if name == "not in order":
        run = corrupted()
    said = words(page("An audit", [run]))
    assert run.report.verdict == ("undecided" if name == "empty" else name)
    for line in run.report.lines(run.files):
        for part in re.split(
            r"^verdict +|^because +|^  (?:not seen|clocks|[a-z-]+): | \((?:first|worst|last|the only one)[^()]*\)$|  +",
            line,
        ):
            assert part.strip() in said, line
    for word, found in run.report.examples():
        assert f"{found.kind} {word} {found.confidence}" in said


def test_the_page_loads_nothing() -> None:
    """No address, no import, no picture; style and script are inside."""
    text = page("An audit", [corrupted(), judged(shared(2, 3, 900))])
    assert not re.search(r"(?:src|href)=|@import|url\((?!#)|https?:(?!//www\.w3\.org/2000/svg)", text)
    assert len(Elements(text).of_class("plots")) == 2


def test_values_are_no_markup() -> None:
    """A client id, a key and a title with markup are shown as they are."""
    evil = '<img src=x onerror="alert(1)">&'
    run = judged({"a": records(evil, 0, 0, 100, 0, 3), "b": records(evil, 0, 0, 100, 1, 2)})
    text = page(evil, [run])
    assert "<img" not in text
    assert evil in words(text)


def test_all_plots_share_one_axis() -> None:
    """Each element's percentage is its place, by the length of the one axis."""
    elements = Elements(page("An audit", [corrupted()]))
    (plots,) = elements.of_class("plots")
    length = float(plots["data-length"])
    placed = [attributes for _, attributes in elements.all if "data-a" in attributes]
    kinds = {name for attributes in placed for name in attributes["class"].split()}
    assert kinds >= {"bar", "mark", "at-once", "stem", "head", "who"}
    for attributes in placed:
        style = attributes.get("style", "")
        x = attributes.get("x") or style.partition("--x:")[2].partition(";")[0]
        assert float(x.rstrip("%")) == pytest.approx(100 * float(attributes["data-a"]) / length, abs=1e-3)


def test_an_overlap_of_a_millisecond_is_drawn_in_its_length() -> None:
    """1 ms of 60 s, with the length in its text; the mark beside it has a fixed size."""
    run = corrupted()
    assert run.report.violation_counts[Kind.OVERLAP] == 1
    text = page("An audit", [run])
    (bar,) = [one for one in Elements(text).of_class("at-once") if "data-a" in one]
    assert float(bar["data-b"]) - float(bar["data-a"]) == pytest.approx(1.0)
    assert re.search(r"overlap \(certain\) at [\d.]+ s for 1 ms:", text)


def test_twenty_owners_differ() -> None:
    """No two have the same colour and pattern; each has a number, and a button that shows it alone."""
    elements = Elements(page("An audit", [judged(shared(20, 20, 60_000))]))
    fills = {one["fill"] for one in elements.of_class("bar")}
    assert len(fills) == 20
    assert sum(1 for tag, one in elements.all if tag == "button" and "data-o" in one) == 20
    patterns = {one["id"] for tag, one in elements.all if tag == "pattern"}
    assert {fill[5:-1] for fill in fills if fill.startswith("url")} <= patterns


@pytest.mark.parametrize(("queues", "rows"), [(60, 60), (310, 300)])
def test_many_queues_have_a_row_each(queues: int, rows: int) -> None:
    """In a box that scrolls; what is not drawn is said."""
    text = page("An audit", [judged(shared(3, queues, 60_000))])
    elements = Elements(text)
    assert (len(elements.of_class("row")), len(elements.of_class("many"))) == (rows, 1)
    assert ("10 queues more are not drawn" in text) == (queues > rows)


def test_what_is_not_drawn_of_many_findings_is_said() -> None:
    """Of 299 findings of one kind 100 have their evidence; the page counts all."""
    trace = records("c", 0, 0, 60_000, 0, 300)
    calls = [one for one in trace if one["event"] == "handled"]
    for one, offset in zip(calls, reversed(range(300)), strict=True):
        one["offset"] = offset
    text = page("An audit", [judged({"c": trace})])
    assert "100 of 299 findings are drawn" in text
    assert len([one for one in Elements(text).of_class("mark") if "data-a" in one]) == 200  # in the queue's row too


def test_nothing_is_no_pass() -> None:
    """Without a record there are no plots; the verdict is undecided."""
    text = page("An audit", [judged({})])
    assert "this is no pass" in text
    assert not Elements(text).of_class("plots")


def test_one_wrong_clock_squeezes_nothing() -> None:
    """A machine five hours ahead, whose queue nobody else had: the hours are cut out of the axis, and that is said."""
    traces = shared(2, 4, 40_000)
    ahead = records("c", 9, 0, 40_000, 0, 50)
    for one in ahead:
        one |= {"host": "n", "wall_ms": one["wall_ms"] + 5 * 3_600_000}
    text = page("An audit", [judged({**traces, "c": ahead})])
    (plots,) = Elements(text).of_class("plots")
    assert float(plots["data-length"]) < 90_000
    assert "5.0 h without any record" in text
    assert len([one for one in Elements(text).of_class("cut") if "data-a" in one]) == 1


def test_a_cut_axis_keeps_order_and_lengths() -> None:
    """Places grow with time; outside the cut a millisecond is a millisecond; ticks name the real times."""
    axis = Axis([(0, 10_000 * MS), (3_600_000 * MS, 3_610_000 * MS), (1_000 * MS, 2_000 * MS)])
    (cut,) = axis.cuts
    times = [0, 5_000, 10_000, 1_800_000, 3_600_000, 3_605_000, 3_610_000]
    places = [axis.place(time_ms * MS) for time_ms in times]
    assert places == sorted(places)
    assert places[1] == 5_000
    assert places[5] - places[4] == pytest.approx(5_000)
    assert (cut.begin, cut.left_out_ms) == (10_000, 3_590_000)
    assert {"0 s", "5 s", "1:00:00", "1:00:05"} <= {tick.text for tick in axis.ticks()}
    assert not Axis([(0, 10_000 * MS), (20_000 * MS, 30_000 * MS)]).cuts


@pytest.mark.parametrize(
    ("length_ms", "texts"),
    [
        (0.004, ["0.000 ms", "0.001 ms", "0.002 ms", "0.003 ms", "0.004 ms"]),
        (6, ["0 ms", "1 ms", "2 ms", "3 ms", "4 ms", "5 ms", "6 ms"]),
        (320, ["0 ms", "50 ms", "100 ms", "150 ms", "200 ms", "250 ms", "300 ms"]),
        (2_500, ["0 ms", "500 ms", "1.0 s", "1.5 s", "2.0 s", "2.5 s"]),
        (40_000, ["0 s", "10 s", "20 s", "30 s", "40 s"]),
        (600_000, ["0 s", "2:00", "4:00", "6:00", "8:00", "10:00"]),
        (8 * 3_600_000, ["0 s", "2:00:00", "4:00:00", "6:00:00", "8:00:00"]),
    ],
)
def test_the_axis_is_readable_from_microseconds_to_hours(length_ms: float, texts: list[str]) -> None:
    """Ticks stand at round times in a fitting unit."""
    assert [tick.text for tick in Axis([(0, int(length_ms * MS))]).ticks()] == texts


def test_lengths_have_the_unit_that_fits() -> None:
    """From a nanosecond to hours, without zeros that mean nothing."""
    lengths = (0.000001, 0.5, 1, 12, 999, 1000, 90_000, 600_000, 3 * 3_600_000)
    found = ["0.000001 ms", "0.5 ms", "1 ms", "12 ms", "999 ms", "1.0 s", "90.0 s", "10.0 min", "3.0 h"]
    assert [length_text(one) for one in lengths] == found
    assert time_text(31_234.5, 0.1) == "31.2345 s"


def test_what_was_corrupted_and_missed_is_said() -> None:
    """Found means all that was expected and nothing else."""
    rows = [
        CorruptedTraces("a swap", ("x",), ("x",)),
        CorruptedTraces("a drop", ("y",), ("x", "y")),
        CorruptedTraces("nothing", (), ()),
    ]
    assert [row.is_found for row in rows] == [True, False, True]
    text = page("An audit", [judged({})], rows)
    assert (text.count(">found<"), text.count(">missed<")) == (2, 1)


def test_waiting_is_what_was_sent_and_not_yet_handled() -> None:
    """A producer sends ten messages at once; they wait until their calls end."""
    trace = records("c", 0, 10, 110, 0, 10)
    sent = [
        {"event": "sent", "wall_ms": trace[0]["wall_ms"] - 5, "mono_ns": 5 * MS, "host": "m", "client_id": "p",
         "group": "p", "topic": "t", "broker": "b", "queue_id": 0, "offset": offset, "msg_id": f"0-{offset}"}
        for offset in range(10)
    ]  # fmt: skip
    run = judged({"p": sent, "c": trace})
    values = [value for _, value in run.waiting["g, t"]]
    assert (max(values), values[-1]) == (10, 0)
    assert sum(calls for calls, _ in run.rates.calls.values()) == 10
