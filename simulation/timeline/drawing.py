"""The lanes of a timeline as SVG: shapes at percentages of the width, so that the browser scales nothing."""

from collections.abc import Iterable, Sequence
from typing import Final

from markupsafe import Markup

from lockstep.order.page.markup import join, tag
from lockstep.order.page.pieces import COLOURS, diamond, percent
from lockstep.order.page.pieces import lane as draw_lane
from lockstep.simulation.timeline.model import Kind, Lane, LaneKind, Moment, Timeline, Wrong

__all__ = ["colour_of", "draw_bands", "draw_lanes"]

_ROW: Final = 8  # px of a row of calls
_ROWS_MAX: Final = 4
_BAR: Final = 18  # px of the bar of an owner, and of a fault
_SLIM: Final = 12  # with many queues
_MANY: Final = 24
_LETTER_PX: Final = 6.4
_THINNEST: Final = 0.1  # percent of the width
_WIDTH: Final = 1000  # of a path that page.js zooms
_STROKE: Final = 4
_LABELLED: Final = 0.3  # a narrower bar has no label, also when a reader zooms
_CALLS: Final = (Kind.CALL, Kind.FAILED)
_GLYPHS: Final = {Kind.CRASH: "✗", Kind.LEAVE: "○", Kind.ERROR: "✗"}


def colour_of(timeline: Timeline, who: str) -> str:
    """The class of a process's colour."""
    clients = [lane.key for lane in timeline.lanes if lane.kind is LaneKind.PROCESS]
    return f"c{clients.index(who) % COLOURS + 1}" if who in clients else "c0"


def _rows_of(spans: Iterable[Moment]) -> dict[int, int]:
    """Spans that overlap get different rows. Returns number of the moment -> row."""
    ends: list[float] = []
    rows = {}
    for one in spans:
        row = next((row for row, end_ms in enumerate(ends) if end_ms <= one.at_ms), len(ends))
        ends[row : row + 1] = [one.end_ms if one.end_ms is not None else one.at_ms]
        rows[one.number] = row
    return rows


class _Drawing:
    """Draws one timeline on an axis of `length_ms`. Each shape has the id of its step, `prefix` and number."""

    def __init__(self, timeline: Timeline, length_ms: float, prefix: str) -> None:
        self._timeline, self._length_ms, self._prefix = timeline, length_ms, prefix
        self._evidence = {step for wrong in timeline.wrongs for step in wrong.steps if not wrong.around}
        queues = sum(lane.kind is LaneKind.QUEUE for lane in timeline.lanes)
        self._bar = _SLIM if queues > _MANY else _BAR
        self._by_lane: dict[str, list[Moment]] = {}
        for moment in timeline.moments:
            for lane in moment.lanes:
                self._by_lane.setdefault(lane, []).append(moment)
        self._colours = {who: colour_of(timeline, who) for who in {moment.who for moment in timeline.moments}}

    def _shape(self, moment: Moment, y: float, height: float, class_: str = "") -> Markup:
        words = ["at", _class(moment.kind), self._colours[moment.who], class_]
        if moment.number in self._evidence:
            words.append("proof")
        width = None
        if moment.end_ms is not None:
            width = percent(max(moment.end_ms - moment.at_ms, _THINNEST / 100 * self._length_ms), self._length_ms)
        return tag("rect", class_=" ".join(filter(None, words)), x=self._x(moment.at_ms), width=width, y=y,
                   height=height, data_s=f"{self._prefix}{moment.number}")  # fmt: skip

    def _x(self, at_ms: float) -> str:
        return percent(at_ms, self._length_ms)

    def _label(self, moment: Moment, text: str, y: float, class_: str, end_ms: float | None = None) -> Markup:
        """A text that is shown if there is room for it until `end_ms`, or until the moment's end."""
        if end_ms is None:
            end_ms = moment.end_ms if moment.end_ms is not None else moment.at_ms
        share = 100 * (end_ms - moment.at_ms) / self._length_ms
        px = round(len(text) * _LETTER_PX + 8)
        narrow = " narrow" if share * 7 < px else ""  # of a plot of 700 px; the script measures
        if share < _LABELLED:
            return Markup("")
        return tag("text", text, class_=f"at who {class_}{narrow}", x=self._x(moment.at_ms), y=y, data_w=f"{share:.4f}",
                   data_px=px)  # fmt: skip

    def _glyph(self, moment: Moment, y: float) -> Markup:
        class_ = f"at glyph {_class(moment.kind)}"
        return tag("text", _GLYPHS[moment.kind], class_=class_, x=self._x(moment.at_ms), y=y,
                   data_s=f"{self._prefix}{moment.number}")  # fmt: skip

    # Lanes ---------------------------------------------------------------------------------------------------

    def lane(self, lane: Lane) -> Markup:
        """One row: its name at the left, its field at the right."""
        moments = self._by_lane.get(lane.key, [])
        draw = {LaneKind.FAULTS: self._faults, LaneKind.QUEUE: self._queue}.get(lane.kind, self._process)
        shapes, height = draw(moments)
        if lane.kind is LaneKind.QUEUE:
            shapes += self._without_step(lane.key, height)
        marks = [self.mark(wrong, height / 2) for wrong in self._timeline.wrongs if wrong.lane == lane.key]
        found = " found" if marks else ""
        colour = f" of {colour_of(self._timeline, lane.key)}" if lane.kind is LaneKind.PROCESS else ""
        class_ = f"row {lane.kind}{colour}{found}"
        return draw_lane(lane.name, lane.note, [*shapes, *marks], height, class_, hint=lane.key or None)

    def _without_step(self, lane: str, height: float) -> list[Markup]:
        """Calls of a queue that have no step: one path for each process."""
        spans: dict[str, list[tuple[float, float]]] = {}
        scale = _WIDTH / self._length_ms
        for call in self._timeline.drawn:
            if lane in call.lanes:
                begin, end = call.at_ms * scale, (call.end_ms or call.at_ms) * scale
                spans.setdefault(call.who, []).append((begin, max(end, begin + _WIDTH * _THINNEST / 100)))
        paths = [tag("path", class_=f"zoomed strokes {colour_of(self._timeline, who)}", d=_path(found))
                 for who, found in spans.items()]  # fmt: skip
        if not paths:
            return []
        return [tag("svg", *paths, viewBox=f"0 0 {_WIDTH} 1", preserveAspectRatio="none", width="100%",
                    y=height - _STROKE, height=_STROKE)]  # fmt: skip

    def mark(self, wrong: Wrong, y: float) -> Markup:
        """A diamond at a violation."""
        number = self._timeline.wrongs.index(wrong)
        return diamond(class_="at mark", x=self._x(wrong.at_ms), y=y, data_v=f"{self._prefix}v{number}")

    def wrong_lane(self) -> Markup | None:
        """All violations."""
        if not self._timeline.wrongs:
            return None
        marks = [self.mark(wrong, 11) for wrong in self._timeline.wrongs]
        return draw_lane("violations", None, marks, 22, "row found")

    def _faults(self, moments: Sequence[Moment]) -> tuple[list[Markup], int]:
        rows, shapes = _rows_of(moments), list[Markup]()
        for moment in moments:
            y = 3 + rows[moment.number] * (_BAR + 2)
            if moment.kind is Kind.ERROR:
                shapes.append(self._glyph(moment, y + 13))
                continue
            row = rows[moment.number]
            next_ms = next((one.at_ms for one in moments if rows[one.number] == row and one.number > moment.number),
                           self._length_ms)  # fmt: skip
            shapes.append(self._shape(moment, y, _BAR))
            shapes.append(self._label(moment, moment.text.removeprefix("fault: "), y + 13, "plain", next_ms))
        return shapes, 6 + (max(rows.values(), default=0) + 1) * (_BAR + 2)

    def _process(self, moments: Sequence[Moment]) -> tuple[list[Markup], int]:
        calls = [moment for moment in moments if moment.kind in _CALLS]
        rows = _rows_of(calls)
        height = 16 + min(max(rows.values(), default=0) + 1, _ROWS_MAX) * _ROW
        over, shapes = list[Markup](), list[Markup]()
        for moment in moments:
            match moment.kind:
                case Kind.LIFE:
                    shapes.insert(0, self._shape(moment, 3, 6))
                case Kind.CALL | Kind.FAILED:
                    shapes.append(self._shape(moment, 12 + rows[moment.number] % _ROWS_MAX * _ROW, _ROW - 1))
                case Kind.STOP | Kind.SLEEP:
                    shapes.append(self._shape(moment, 1, height - 2))
                case Kind.FAULT:
                    shapes.insert(0, self._shape(moment, 0, height, "behind"))
                case Kind.CRASH | Kind.LEAVE:
                    over.append(self._glyph(moment, 11))
                case Kind.SEND:
                    over.append(self._shape(moment, 11, 6))
                case Kind.LOG | Kind.RECORD:
                    over.append(self._shape(moment, height - 5, 4))
                case _:
                    pass
        return shapes + over, height

    def _queue(self, moments: Sequence[Moment]) -> tuple[list[Markup], int]:
        bar = self._bar
        rows = _rows_of(moment for moment in moments if moment.kind in _CALLS)
        row_height = _ROW if bar == _BAR else 4
        height = bar + 5 + min(max(rows.values(), default=0) + 1, _ROWS_MAX) * row_height
        shapes, over = list[Markup](), list[Markup]()
        for moment in moments:
            match moment.kind:
                case Kind.OWN:
                    shapes.insert(0, self._shape(moment, 2, bar))
                    _, _, epoch = moment.text.partition("under epoch ")
                    has_room = epoch and bar == _BAR and moment.count == 1
                    label = f"{moment.who} · {epoch}" if has_room else moment.who
                    over.insert(
                        0, self._label(moment, label, bar - 3 if bar == _BAR else bar, self._colours[moment.who])
                    )
                case Kind.DRAIN:
                    shapes.append(self._shape(moment, 2, bar))
                case Kind.CALL | Kind.FAILED:
                    y = bar + 3 + rows[moment.number] % _ROWS_MAX * row_height
                    shapes.append(self._shape(moment, y, row_height - 1))
                case Kind.RENEW:
                    shapes.append(self._shape(moment, bar - 3, 5))
                case Kind.EXPIRE | Kind.RELEASE:
                    over.append(self._shape(moment, 0, bar + 4))
                case Kind.REFUSE:
                    over.append(self._shape(moment, 0, 6))
                case Kind.RECORD:
                    over.append(self._shape(moment, bar - 4, 6))
                case _:
                    pass
        return shapes + over, height


def _path(spans: Iterable[tuple[float, float]]) -> str:
    """Spans as strokes; what touches is one stroke."""
    strokes: list[list[float]] = []
    for begin, end in sorted(spans):
        if strokes and begin <= strokes[-1][1]:
            strokes[-1][1] = max(strokes[-1][1], end)
        else:
            strokes.append([begin, end])
    return "".join(f"M{begin:.4g} .5h{end - begin:.3g}" for begin, end in strokes)


def _class(kind: Kind) -> str:
    return str(kind).replace(" ", "-")


def draw_lanes(timeline: Timeline, length_ms: float, prefix: str) -> list[Markup]:
    """All lanes of a run, and before them that of its violations."""
    drawing = _Drawing(timeline, length_ms, prefix)
    first = drawing.wrong_lane()
    return [*([first] if first is not None else []), *map(drawing.lane, timeline.lanes)]


def draw_bands(timelines: Sequence[Timeline], length_ms: float) -> Markup:
    """Faults that last, behind all lanes; those of several runs of one plan are the same."""
    spans = {
        (moment.at_ms, moment.end_ms): None
        for timeline in timelines
        for moment in timeline.moments
        if moment.kind is Kind.FAULT and moment.end_ms is not None
    }
    return join(*[_band(begin, end, length_ms) for begin, end in spans])


def _band(begin_ms: float, end_ms: float, length_ms: float) -> Markup:
    width = percent(end_ms - begin_ms, length_ms)
    return tag("rect", class_="at band", x=percent(begin_ms, length_ms), width=width, height="100%")
