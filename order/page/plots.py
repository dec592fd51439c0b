"""The plots of a run as SVG: rate, waiting messages, handovers, and a row of owners for each queue, over one time axis.

Elements carry their place as `data-a` and `data-b`, for page.js.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import ceil
from typing import Final

from markupsafe import Markup

from lockstep.order.kinds import Confidence
from lockstep.order.page.axis import Axis, length_text, time_text
from lockstep.order.page.markup import join, tag
from lockstep.order.page.owners import Owners, rows_of
from lockstep.order.page.pieces import diamond, lane, percent, round_up
from lockstep.order.page.run import Found, JudgedRun, OwnerBar
from lockstep.order.report import Handover

__all__ = ["axis_of", "handover_lane", "mark_lane", "owner_rows", "rate_lane", "waiting_lane"]

BARS_MAX: Final = 4000
HANDOVERS_MAX: Final = 1000
_CURVE_HEIGHT: Final = 110
_STEPS: Final = 240  # of a rate curve


def axis_of(run: JudgedRun) -> Axis:
    """The axis over everything that is drawn."""
    spans = [(bar.from_ns, bar.to_ns) for bar in run.owners]
    spans += [(begin, begin + run.rates.bin_ns) for begin in run.rates.calls] if not spans else []
    spans += [(time_ns, time_ns) for points in run.waiting.values() for time_ns, _ in points]
    spans += [found.span_ns for found in run.found if found.span_ns is not None]
    spans += [(one.at_ns, one.at_ns) for one in run.report.handovers if one.at_ns]
    return Axis(spans)


def _at(axis: Axis, begin: float, end: float | None = None, *, is_styled: bool = True) -> dict[str, str | float]:
    """The attributes of an element at a place, or from one place to another. Only shapes can have them as style."""
    x = percent(begin, axis.length)
    places: dict[str, str | float] = {"data_a": begin} if end is None else {"data_a": begin, "data_b": end}
    if not is_styled:
        return {**places, "x": x}
    width = "" if end is None else f";--w:{percent(end - begin, axis.length)}"
    return {**places, "style": f"--x:{x}{width}"}


def rate_lane(run: JudgedRun, axis: Axis) -> Markup | None:
    """Listener calls a second, and those of them that were repeats."""
    if not run.rates.calls:
        return None
    bin_ns = run.rates.bin_ns * max(1, ceil(axis.length * 1e6 / _STEPS / run.rates.bin_ns))
    sums: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])
    first_ns = min(run.rates.calls)
    for begin, (calls, repeats) in run.rates.calls.items():
        place = (begin - first_ns) // bin_ns
        sums[place][0] += calls
        sums[place][1] += repeats
    top = round_up(max(calls for calls, _ in sums.values()) / bin_ns * 1e9)
    curves = []
    for number, name in enumerate(("calls", "again")):
        points: list[tuple[float, float]] = []
        for place in sorted({one + more for one in sums for more in (0, 1)}):
            begin_ns = first_ns + place * bin_ns
            points.append((axis.place(begin_ns), sums[place][number] / bin_ns * 1e9 if place in sums else 0.0))
        if any(value for _, value in points):
            curves.append(_curve(points, axis, top, name, is_step=True))
    unit = f"listener calls a second, in steps of {length_text(bin_ns / 1e6)}"
    if len(curves) > 1:
        unit += "; filled: calls for messages that were handled before"
    return _curve_lane("Rate", unit, curves, top)


def waiting_lane(run: JudgedRun, axis: Axis) -> Markup | None:
    """Messages that were sent and not yet handled: all together, and each curve."""
    if not run.waiting:
        return None
    whole = _highest(_sum(run.waiting.values()), axis)
    top = round_up(max((value for _, value in whole), default=0))
    curves = []
    for name, points in [*run.waiting.items(), ("all", whole)] if len(run.waiting) > 1 else [("all", whole)]:
        placed = [(axis.place(time_ns), float(value)) for time_ns, value in _highest(points, axis)]
        curves.append(_curve(placed, axis, top, "whole" if name == "all" else "one", is_step=False))
    unit = "messages sent and not yet handled" + ("; thin: each queue" if len(run.waiting) > 1 else "")
    return _curve_lane("Waiting", unit, curves, top)


def _sum(curves: Iterable[Sequence[tuple[int, int]]]) -> list[tuple[int, int]]:
    """The sum of curves; each has its last value until its next point."""
    changes: defaultdict[int, int] = defaultdict(int)
    for points in curves:
        last = 0
        for time_ns, value in points:
            changes[time_ns] += value - last
            last = value
    found, now = [], 0
    for time_ns in sorted(changes):
        now += changes[time_ns]
        found.append((time_ns, now))
    return found


def _highest(points: Sequence[tuple[int, int]], axis: Axis) -> list[tuple[int, int]]:
    """Of a curve the highest point in each of so many steps of the axis."""
    found: dict[int, tuple[int, int]] = {}
    for point in points:
        step = int(axis.place(point[0]) * _STEPS // axis.length)
        found[step] = max(found.get(step, point), point, key=lambda one: one[1])
    return list(found.values())


def _curve_lane(title: str, unit: str, curves: Sequence[Markup], top: float) -> Markup:
    """A plot of curves with the values of its axis."""
    texts = [
        tag("text", f"{value:,g}", class_="value", x=4, y=max(_CURVE_HEIGHT * (1 - value / top) - 4, 11))
        for value in (top, top / 2)
    ]
    lines = [tag("line", class_="level", x1=0, x2="100%", y1=y, y2=y) for y in (1, _CURVE_HEIGHT / 2)]
    drawing = tag("svg", *curves, viewBox="0 0 1000 100", preserveAspectRatio="none", width="100%",
                  height=_CURVE_HEIGHT)  # fmt: skip
    return lane(title, unit, [*lines, drawing, *texts], _CURVE_HEIGHT, "tall")


def _curve(points: Sequence[tuple[float, float]], axis: Axis, top: float, kind: str, *, is_step: bool) -> Markup:
    """A path in 1000 by 100 units. page.js moves and stretches the group along the axis."""
    words: list[str] = []
    last = 0.0
    for place, value in points:
        x, y = 1000 * place / axis.length, 100 - 98 * value / top
        words.append(f"H{x:.3f}V{y:.2f}" if is_step or not words else f"L{x:.3f} {y:.2f}")
        last = x
    begin = 1000 * points[0][0] / axis.length if points else 0
    line = f"M{begin:.3f} 100{''.join(words)}"
    area = tag("path", class_="area", d=f"{line}H{last:.3f}V100Z")
    return tag("g", area, tag("path", class_="line", d=line), class_=f"zoomed {kind}")


def handover_lane(run: JudgedRun, axis: Axis) -> Markup | None:
    """When queues changed their owner: a stem as high as the time without an owner."""
    timed = [one for one in run.report.handovers if one.at_ns]
    if not timed:
        return None
    timed = sorted(timed, key=lambda one: -one.duration_ms)[:HANDOVERS_MAX]
    top = round_up(max(timed[0].duration_ms, 0.001))
    stems = []
    for one in timed:
        height = (_CURVE_HEIGHT - 12) * one.duration_ms / top
        where, y = axis.place(one.at_ns), _CURVE_HEIGHT - height - 4
        text = tag("title", _handover_text(one))
        stems.append(tag("rect", text, class_="stem", y=y, height=height + 4, **_at(axis, where)))
        stems.append(tag("circle", text, class_="head", cy=y, r=3.5, **_at(axis, where)))
    level = tag("line", class_="level", x1=0, x2="100%", y1=1, y2=1)
    text = tag("text", length_text(top), class_="value", x=4, y=11)
    return lane("Handovers", "changes of owner, as high as they took", [level, *stems, text], _CURVE_HEIGHT, "tall")


def _handover_text(one: Handover) -> str:
    return f"{one.queue}: from {one.from_client_id} to {one.to_client_id}, {length_text(one.duration_ms)}"


def mark_lane(run: JudgedRun, axis: Axis) -> Markup | None:
    """All findings that have a time."""
    marks = [_mark(found, axis, 11) for found in run.found if found.span_ns is not None]
    return lane("Findings", None, marks, 22, "marks") if marks else None


def _mark(found: Found, axis: Axis, y: float) -> Markup:
    """A diamond of fixed size at a finding, hollow for an undecided one."""
    assert found.span_ns is not None
    begin = axis.place(found.span_ns[0])
    undecided = found.violation.confidence is Confidence.UNDECIDED
    class_ = "mark unsure" if undecided else "mark"
    return diamond(_found_text(found, axis), class_=class_, y=y, **_at(axis, begin, is_styled=False))


def _found_text(found: Found, axis: Axis) -> str:
    begin, end = found.span_ns or (0, 0)
    length = f" for {length_text((end - begin) / 1e6)}" if end > begin else ""
    when = time_text((begin - axis.begin_ns) / 1e6, 0.001 if end - begin < 1e6 else 0.1)
    return f"{found.violation.kind} ({found.violation.confidence}) at {when}{length}: {found.violation.sentence}"


def owner_rows(run: JudgedRun, axis: Axis, owners: Owners) -> Markup | None:
    """A row for each queue: its owners as bars, the findings as marks, calls at the same time in their true length."""
    if not run.owners:
        return None
    rows = rows_of(run)
    height = 24 if len(rows.names) <= 24 else 17
    drawn, lanes = 0, []
    for queue, name in rows.names.items():
        bars = rows.bars.get(queue, [])[: max(BARS_MAX - drawn, 0)]
        drawn += len(bars)
        found = rows.found.get(queue, [])
        pieces = [piece for bar in bars for piece in _bar(bar, axis, owners, height)]
        pieces += [_overlap(one, axis, height) for one in found if one.span_ns and one.span_ns[1] > one.span_ns[0]]
        pieces += [_mark(one, axis, height / 2) for one in found if one.span_ns is not None]
        lanes.append(lane(name, None, pieces, height, _row_class(found)))
    notes = [rows.note]
    if rows.left_out:
        notes.append(f"{rows.left_out:,} queues more are not drawn; those with findings come first.")
    if drawn < len(run.owners) - rows.bars_left_out:
        notes.append(f"The first {drawn:,} of {len(run.owners):,} periods are drawn.")
    head = tag("div", tag("b", "Owners of each queue"), tag("span", " ".join(notes)), class_="rows-head")
    return join(head, tag("div", *lanes, class_="rows many" if len(lanes) > 40 else "rows"))


def _row_class(found: Sequence[Found]) -> str:
    if not found:
        return "row"
    return "row doubt" if all(one.violation.confidence is Confidence.UNDECIDED for one in found) else "row found"


def _bar(bar: OwnerBar, axis: Axis, owners: Owners, height: int) -> list[Markup]:
    begin, end = axis.place(bar.from_ns), axis.place(bar.to_ns)
    owner = owners.by_client[bar.client_id]
    offsets = f", offsets {bar.first_offset:,} to {bar.last_offset:,}" if bar.first_offset is not None else ""
    if bar.last_offset is None:
        offsets = ""
    text = (
        f"{bar.queue}: {bar.client_id}, period {bar.period}, {length_text((bar.to_ns - bar.from_ns) / 1e6)} "
        f"from {time_text((bar.from_ns - axis.begin_ns) / 1e6, 1)}, {bar.attempts:,} calls{offsets}"
    )
    shape = tag("rect", tag("title", text), class_="bar", data_o=owner.number, fill=owner.fill,
                y=3, height=height - 6, **_at(axis, begin, end))  # fmt: skip
    is_wide = end - begin > 0.03 * axis.length
    label = tag("text", str(owner.number), class_="who" if is_wide else "who narrow", data_o=owner.number,
                stroke=f"var(--series-{owner.colour})", y=height / 2 + 4,
                **_at(axis, begin, end, is_styled=False))  # fmt: skip
    return [shape, label]


def _overlap(found: Found, axis: Axis, height: int) -> Markup:
    assert found.span_ns is not None
    places = _at(axis, axis.place(found.span_ns[0]), axis.place(found.span_ns[1]))
    unsure = found.violation.confidence is Confidence.UNDECIDED
    return tag("rect", tag("title", _found_text(found, axis)), class_="at-once unsure" if unsure else "at-once",
               y=0, height=height, **places)  # fmt: skip
