"""Counts over time as SVG, with both axes: the time on x, messages or messages a second on y.

The browser scales the lines to the width of the page, and no text.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from markupsafe import Markup

from lockstep.console.flows import Flow
from lockstep.console.formats import clock_ms, count
from lockstep.console.history import History, Point
from lockstep.console.translations.choose import Texts
from lockstep.console.window import Window
from lockstep.order.page.markup import tag
from lockstep.order.page.pieces import round_up

__all__ = ["Line", "Trace", "flow_charts", "lines", "queue_charts", "trace"]

_MEAN_MS: Final = 10_000  # a rate is the mean of so long; RocketMQ's own are too
_MEAN_LEAST_MS: Final = 4000  # at the begin: members commit every few seconds
_QUEUES_MAX: Final = 12  # with a chart each
_STEPS: Final = 180  # of a line: more points than a reader can tell apart
_WIDTH, _HEIGHT = 1000, 100


class Trace(NamedTuple):
    """What was known within a window.

    Args:
        stretches: Without a gap in them: time, messages in and out a second, and lag. Rates are None at the first
            point: they need two.
        gaps: From and to, epoch ms.
    """

    stretches: Sequence[Sequence[tuple[int, float | None, float | None, int]]]
    gaps: Sequence[tuple[int, int]]


class Line(NamedTuple):
    """
    Args:
        kind: "in", "out" or "lag": a key of texts, and its colour.
        newest: None: no answer came of late.
    """

    kind: str
    stretches: Sequence[Sequence[tuple[int, float]]]
    newest: float | None

    @property
    def most(self) -> float:
        return max((value for stretch in self.stretches for _, value in stretch), default=0)


def trace(history: History, window: Window) -> Trace:
    """The points of a window, at most some 180, and where no answer came."""
    step_ms = window.length_ms // _STEPS
    stretches, gaps = [], list[tuple[int, int]]()
    last_ms = since_ms = None
    for is_gap, points in groupby(history.points(window.begin_ms - _MEAN_MS - step_ms), lambda one: one.lag is None):
        if is_gap:
            since_ms = next(points).at_ms if last_ms is None else last_ms
            continue
        kept = _thinned(points, step_ms)
        if since_ms is not None:
            gaps.append((since_ms, kept[0].at_ms))
        last_ms, since_ms = kept[-1].at_ms, None
        stretches.append(_with_rates(kept))
    if since_ms is not None:
        gaps.append((since_ms, window.now_ms))
    return Trace(stretches, gaps)


def _thinned(points: Iterable[Point], step_ms: int) -> list[Point]:
    """The first point, and the last one of each step with the highest lag in it."""
    steps = [list(step) for _, step in groupby(points, lambda one: one.at_ms // step_ms)]
    first = steps[0][:1] if len(steps[0]) > 1 else []
    return first + [step[-1]._replace(lag=max(one.lag or 0 for one in step)) for step in steps]


def _with_rates(points: Sequence[Point]) -> list[tuple[int, float | None, float | None, int]]:
    found: list[tuple[int, float | None, float | None, int]] = [(points[0].at_ms, None, None, points[0].lag or 0)]
    first = 0
    for point in points[1:]:
        while points[first + 1].at_ms <= point.at_ms - _MEAN_MS:
            first += 1
        before = points[first]
        passed_ms = point.at_ms - before.at_ms
        if passed_ms < _MEAN_LEAST_MS:
            found.append((point.at_ms, None, None, point.lag or 0))
            continue
        came, gone = (1000 * more / passed_ms for more in (point.came - before.came, point.gone - before.gone))
        found.append((point.at_ms, came, gone, point.lag or 0))
    return found


def lines(of: Trace, *kinds: str) -> list[Line]:
    """Some of "in", "out" and "lag"."""
    found = []
    is_silent = not of.stretches or (of.gaps and of.gaps[-1][1] > of.stretches[-1][-1][0])
    for kind in kinds:
        column = ("", "in", "out", "lag").index(kind)
        all_points = [[(one[0], one[column]) for one in stretch] for stretch in of.stretches]
        stretches = [[(at_ms, value) for at_ms, value in points if value is not None] for points in all_points]
        newest = None if is_silent else all_points[-1][-1][1]
        found.append(Line(kind, [stretch for stretch in stretches if stretch], newest))
    return found


def flow_charts(flow: Flow | None, window: Window, texts: Texts, *, is_read: bool = True) -> list[Markup]:
    """Throughput, and lag if anyone reads the messages; nothing before there is a point."""
    found = trace(flow.history, window) if flow is not None else None
    if found is None or not (found.stretches or found.gaps):
        return []
    rates = lines(found, "in", "out") if is_read else lines(found, "in")
    charts = [_chart(texts("chart.throughput"), rates, found.gaps, window, texts)]
    if is_read:
        charts.append(_chart(texts("word.lag"), lines(found, "lag"), found.gaps, window, texts))
    return charts


def queue_charts(flow: Flow | None, window: Window, texts: Texts) -> tuple[str, list[Markup]]:
    """The lag of each queue of a group on one scale, and what is shown: of many those that were behind most."""
    found = []
    for queue, history in flow.queues.items() if flow is not None else ():
        traced = trace(history, window)
        (line,) = lines(traced, "lag")
        if line.stretches:
            found.append((queue, line, traced.gaps))
    name = texts("chart.queues") if len(found) <= _QUEUES_MAX else texts("chart.queues_most", count=_QUEUES_MAX)
    found.sort(key=lambda one: -one[1].most)
    shown = sorted(found[:_QUEUES_MAX], key=lambda one: one[0])
    top = round_up(max(1, *(line.most for _, line, _ in shown))) if shown else 1
    charts = [
        _chart(f"{of.topic} {of.broker_name}:{of.queue_id}", [line], gaps, window, texts, top=top, class_="plot small")
        for of, line, gaps in shown
    ]
    return name, charts


def _chart(
    title: str, shown: Sequence[Line], gaps: Iterable[tuple[int, int]], window: Window, texts: Texts, *,
    top: float | None = None, class_: str = "plot",
) -> Markup:  # fmt: skip
    """A figure with its legend.

    Args:
        top: Where the axis of values ends; None: above the highest value.
    """
    mean_s = max(_MEAN_MS, window.length_ms // _STEPS) // 1000
    unit = texts("chart.messages") if shown[0].kind == "lag" else texts("chart.rate", seconds=mean_s)
    top = round_up(max(1, *(line.most for line in shown))) if top is None else top
    said = ", ".join(
        texts("chart.line", name=texts(f"chart.{line.kind}"), newest=count(line.newest), most=count(line.most))
        for line in shown
    )
    keys = [_key(line, texts) for line in shown]
    about = tag("span", unit, class_="quiet")
    head = tag("figcaption", tag("b", title), " ", about, tag("span", *keys, class_="legend"))
    field = _field(shown, gaps, window, top, texts)
    drawing = tag("div", _axis(top), field, class_="drawing", role="img", aria_label=f"{title}: {said}")
    return tag("figure", head, drawing, class_=class_)


def _key(line: Line, texts: Texts) -> Markup:
    name = f" {texts(f'chart.{line.kind}')} "
    return tag("span", tag("i", class_=line.kind), name, tag("b", count(line.newest)), class_="item")


def _axis(top: float) -> Markup:
    values = ((top, 10), (top / 2, _HEIGHT // 2 + 4), (0, _HEIGHT + 4))
    return tag("svg", *[tag("text", _short(value), x="100%", y=y) for value, y in values], class_="values")


def _short(value: float) -> str:
    """What has room beside an axis: 500, 20 k, 5 M."""
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= unit:
            return f"{value / (1e3 if name == 'k' else unit):,g} {name}"
    return f"{value:,g}"


def _field(shown: Iterable[Line], gaps: Iterable[tuple[int, int]], window: Window, top: float, texts: Texts) -> Markup:
    """What is right of the axis of values. Its shapes stand at parts of the width."""
    pieces = [tag("line", class_="level", x1=0, x2="100%", y1=y, y2=y) for y in (0, _HEIGHT // 2, _HEIGHT)]
    for place, text in [*window.ticks(), (1.0, texts("ribbon.now"))]:
        x = f"{place * 100:.2f}%"
        pieces.append(tag("line", class_="tick", x1=x, x2=x, y1=_HEIGHT, y2=_HEIGHT + 5))
        pieces.append(tag("text", text, x=x, y=_HEIGHT + 18, text_anchor="middle" if place < 1 else "end"))
    drawn = [_gap(one, window, texts) for one in gaps if one[1] > window.begin_ms]
    drawn += [_path(line, window, top) for line in shown]
    scaled = tag(
        "svg", *drawn, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", preserveAspectRatio="none", width="100%", height=_HEIGHT
    )
    return tag("svg", *pieces, scaled, class_="field")


def _gap(gap: tuple[int, int], window: Window, texts: Texts) -> Markup:
    left, right = (min(max(window.place(at_ms), 0), 1) * _WIDTH for at_ms in gap)
    title = tag("title", f"{texts('chart.gap')}: {clock_ms(gap[0])} \N{EN DASH} {clock_ms(gap[1])}")
    return tag("rect", title, class_="gap", x=round(left, 1), y=0, width=round(max(right - left, 1), 1), height=_HEIGHT)


def _path(line: Line, window: Window, top: float) -> Markup:
    words = []
    for stretch in line.stretches:
        places = [
            f"{window.place(at_ms) * _WIDTH:.1f} {_HEIGHT * (1 - min(value / top, 1)):.1f}" for at_ms, value in stretch
        ]
        words.append(f"M{'L'.join(places)}" + ("h0" if len(places) == 1 else ""))  # one point is a dot
    return tag("path", class_=f"line {line.kind}", d="".join(words))
