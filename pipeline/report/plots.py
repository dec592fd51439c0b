"""The plots of a report as SVG texts: rate, lag, handovers, and who owned each queue from when to when."""

import io
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from lockstep.pipeline.report.colours import BAD, GRID, INK, MUTED, SERIES, WARN, themed
from lockstep.pipeline.report.findings import Findings, Row

__all__ = ["handover_plot", "lag_plot", "owner_colours", "owners_plot", "rate_plot", "red_spans"]

_WIDTH: Final = 10.0
_HEIGHT: Final = 2.6
_QUEUES_DRAWN: Final = 48
_ROW_HEIGHT: Final = 0.27
_STYLE: Final = {
    "svg.fonttype": "none",  # text stays text, in the page's font
    "font.family": "sans-serif",
    "font.size": 9.5,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": GRID,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}


def rate_plot(findings: Findings) -> str:
    """Listener calls a second, and those of them that were repeats. "" without any."""
    if not findings.rates:
        return ""
    step_ms = findings.rate_bin_s * 1000
    begin = findings.rates[0]["second_ms"]
    by_time = {row["second_ms"]: row for row in findings.rates}
    times = range(begin, findings.rates[-1]["second_ms"] + step_ms, step_ms)
    seconds = [(time - begin) / 1000 for time in times]
    attempts, repeats = (
        [by_time.get(time, {}).get(name, 0) / findings.rate_bin_s for time in times] for name in ("attempts", "repeats")
    )

    def draw(axes: Axes) -> None:
        axes.fill_between(seconds, attempts, step="post", color=SERIES[0], alpha=0.18, linewidth=0)
        axes.step(seconds, attempts, where="post", color=SERIES[0], linewidth=1.6, label="handled")
        if any(repeats):
            axes.fill_between(seconds, repeats, step="post", color=WARN, alpha=0.8, linewidth=0, label="of them again")
        axes.set_ylabel("messages a second")
        _time_axis(axes)
        _legend(axes)

    return _svg(draw, _HEIGHT, "rate")


def lag_plot(findings: Findings) -> str:
    """Messages that wait, all together and by queue. "" without a lag table."""
    if not findings.lag:
        return ""
    begin = min(row["at_ms"] for row in findings.lag)
    queues: dict[str, list[tuple[float, int]]] = defaultdict(list)
    whole: dict[float, int] = defaultdict(int)
    for row in findings.lag:
        second = (row["at_ms"] - begin) / 1000
        queues[_queue_name(row)].append((second, row["lag"]))
        whole[second] += row["lag"]

    def draw(axes: Axes) -> None:
        for number, points in enumerate(queues.values()):
            label = "a queue" if number == 0 else None
            axes.plot(*zip(*points, strict=True), color=SERIES[1], alpha=0.55, linewidth=0.9, label=label)
        axes.plot(list(whole), list(whole.values()), color=SERIES[0], linewidth=1.8, label="all queues")
        axes.set_ylabel("messages waiting")
        _time_axis(axes)
        _legend(axes)

    return _svg(draw, _HEIGHT, "lag")


def handover_plot(findings: Findings) -> str:
    """When queues changed hands, and how long nobody had them. "" without any."""
    if not findings.handovers:
        return ""
    begin = _begin_ms(findings)
    seconds = [(row["at_ms"] - begin) / 1000 for row in findings.handovers]
    took = [max(row["duration_ms"] / 1000, 0.0) for row in findings.handovers]

    def draw(axes: Axes) -> None:
        axes.vlines(seconds, 0, took, color=SERIES[2], alpha=0.6, linewidth=1.4)
        axes.scatter(seconds, took, color=SERIES[2], s=22, zorder=3, clip_on=False)
        axes.set_ylabel("seconds without an owner")
        _time_axis(axes)
        axes.set_xlim(0, 1.01 * max([*seconds, *((bar["to_ms"] - begin) / 1000 for bar in findings.owners)]))

    return _svg(draw, _HEIGHT, "handovers")


def owners_plot(findings: Findings) -> str:
    """A bar for every period of ownership, a row a queue; overlaps and other violations in red. "" without any."""
    if not findings.owners:
        return ""
    begin = _begin_ms(findings)
    colours = owner_colours(findings)
    rows: dict[str, list[Row]] = defaultdict(list)
    for bar in findings.owners:
        rows[_queue_name(bar)].append(bar)
    first = list(rows)[:_QUEUES_DRAWN]  # those with overlaps come first in the table
    names = sorted(first, key=_natural)
    places = {name: place for place, name in enumerate(names)}

    def draw(axes: Axes) -> None:
        for name in names:
            for bar in rows[name]:
                _bar(axes, places[name], (bar["from_ms"] - begin, bar["to_ms"] - begin), colours[bar["client_id"]])
            for red_begin, red_end in red_spans(rows[name]):
                _bar(axes, places[name], (red_begin - begin, red_end - begin), BAD, red=True)
        marks = [(time, places[name]) for name, time in _violation_marks(findings) if name in places]
        if marks:
            seconds = [(time - begin) / 1000 for time, _ in marks]
            axes.scatter(seconds, [place for _, place in marks], marker="x", color=BAD, s=30, linewidths=1.6, zorder=4)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.grid(axis="y", visible=False)
        _time_axis(axes)

    return _svg(draw, 0.75 + _ROW_HEIGHT * max(len(names), 2), "owners")


def _bar(axes: Axes, place: int, span_ms: tuple[int, int], colour: str, *, red: bool = False) -> None:
    """One that is too short to be seen is drawn a little longer."""
    half, least, alpha = (0.42, 0.15, 1.0) if red else (0.34, 0.05, 0.75)
    width = max((span_ms[1] - span_ms[0]) / 1000, least)
    shape = [(span_ms[0] / 1000, width)], (place - half, 2 * half)
    axes.broken_barh(*shape, color=colour, alpha=alpha, linewidth=0, zorder=3 if red else 2)


def owner_colours(findings: Findings) -> dict[str, str]:
    """A colour for each client, in the order of their names; more clients than colours begin again."""
    clients = sorted({bar["client_id"] for bar in findings.owners})
    return {client: SERIES[place % len(SERIES)] for place, client in enumerate(clients)}


def red_spans(bars: Sequence[Row]) -> list[tuple[int, int]]:
    """(begin, end) in milliseconds where two periods of one queue, both part of an overlap, were at the same time."""
    guilty = sorted((bar for bar in bars if bar["overlaps"]), key=lambda bar: (bar["from_ms"], bar["to_ms"]))
    spans = []
    for place, bar in enumerate(guilty):
        for other in guilty[place + 1 :]:
            begin, end = max(bar["from_ms"], other["from_ms"]), min(bar["to_ms"], other["to_ms"])
            if begin <= end:
                spans.append((begin, end))
    return spans


def _violation_marks(findings: Findings) -> Iterator[tuple[str, int]]:
    for row in findings.violations:
        times = [time for time in row["times_ms"] or () if time is not None]
        if times and row["kind"] != "overlap":
            yield _queue_name(row), times[0]


def _queue_name(row: Row) -> str:
    return f"{row['topic']}:{row['queue_id']}"


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name))


def _begin_ms(findings: Findings) -> int:
    begins = [bar["from_ms"] for bar in findings.owners] or [row["at_ms"] for row in findings.handovers]
    return int(min(begins))


def _time_axis(axes: Axes) -> None:
    axes.set_xlabel("time since the first record")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=9, steps=[1, 2, 3, 5, 6, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: _clock(seconds)))
    axes.margins(x=0.01)


def _legend(axes: Axes) -> None:
    """Above the plot, where nothing is hidden behind it."""
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, borderaxespad=0.2)


def _clock(seconds: float) -> str:
    """ "12 s", "3:20", "2:05:00" """
    whole = round(seconds)
    if abs(whole) < 120:
        return f"{seconds:g} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes}:{rest:02}" if minutes < 120 else f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _svg(draw: Any, height: float, name: str) -> str:
    """An svg element in the page's colours; `name` keeps its ids apart from those of other drawings."""
    style: Any = {**_STYLE, "svg.hashsalt": name}
    with mpl.rc_context(style):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        axes = figure.add_subplot()
        axes.grid(color=GRID, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        draw(axes)
        if name != "owners":
            axes.set_ylim(bottom=0)
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    text = out.getvalue()
    svg = text[text.index("<svg") :]
    return themed(re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL))
