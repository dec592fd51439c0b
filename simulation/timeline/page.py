"""The page of one run or of several over one time axis: lanes, violations with their records, and a list of steps."""

from collections.abc import Sequence
from heapq import merge
from importlib.resources import files
from typing import Final

from markupsafe import Markup

from lockstep.order.page.axis import Axis, length_text
from lockstep.order.page.frame import document, plots_over
from lockstep.order.page.markup import join, tag
from lockstep.order.page.pieces import BAD, GOOD, UNSURE, card, diamond, swatch, table, verdict
from lockstep.simulation.timeline.drawing import colour_of, draw_bands, draw_lanes
from lockstep.simulation.timeline.model import Kind, LaneKind, Moment, Timeline, Wrong, seconds

__all__ = ["BYTES_MAX", "timeline_page"]

BYTES_MAX: Final = 300_000
_WRONGS_MAX: Final = 100
_KEYS: Final = (
    "Keys: + and - zoom, arrows move, 0 shows all, n and p choose the next and the previous step, v the next "
    "violation. Ctrl and the wheel zoom, Shift and the wheel move, dragging across a lane zooms into that time."
)
_LEGEND: Final = (
    ("own c1", "owner of a queue · its epoch"),
    ("renew c1", "renewal"),
    ("expire", "lock expired"),
    ("release", "lock released"),
    ("drain c1", "lock delay"),
    ("refuse", "refused"),
    ("call c1", "listener call"),
    ("failed-call c1", "failed call"),
    ("stop", "stopped"),
    ("sleep", "asleep"),
    ("crash", "✗ killed"),
    ("leave", "○ ended in order"),
    ("log", "log event"),
    ("mark", "violation"),
)


def timeline_page(title: str, timelines: Sequence[Timeline], about: str = "") -> str:
    """The whole document. It loads nothing, and shows the same without script.

    Args:
        about: a sentence under the title.
    """
    length_ms = max((timeline.length_ms for timeline in timelines), default=1.0)
    axis, several = Axis([(0, int(length_ms * 1e6))]), len(timelines) > 1
    lanes: list[Markup] = []
    for number, timeline in enumerate(timelines):
        if several:
            lanes.append(tag("h3", timeline.label, tag("span", _count(timeline), class_="badge"), class_="run-name"))
        lanes += draw_lanes(timeline, axis.length, f"r{number}s")
    label = f"Timeline. {_KEYS} The list of steps has the same."
    plots = plots_over(axis, lanes, id_="timeline", label=label, ground=draw_bands(timelines, axis.length))
    told = tag("p", "Choose a shape or a step.", class_="told note", aria_live="polite")
    chart = tag("section", plots, _legend(timelines), tag("p", _KEYS, class_="note keys"), class_="card chart")
    main = tag(
        "main",
        tag("h1", title),
        tag("p", about, class_="note") if about else None,
        tag("div", *[_verdict(timeline, several) for timeline in timelines], class_="verdicts"),
        tag("div", chart, _steps(timelines, told), class_="beside"),
        _violations(timelines),
        _notes(timelines),
        _settings(timelines),
        tag("footer", "Made by lockstep-sim. Times are virtual, since the start of the run."),
    )
    return document(title, main, style=_part("timeline.css"), script=_part("timeline.js"))


def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _count(timeline: Timeline) -> str:
    count = len(timeline.wrongs)
    return "no violation" if not count else "1 violation" if count == 1 else f"{count:,} violations"


def _verdict(timeline: Timeline, several: bool) -> Markup:
    cut_short = any(moment.kind is Kind.ERROR for moment in timeline.moments)
    kind = BAD if timeline.wrongs else UNSURE if cut_short else GOOD
    kinds = ", ".join(dict.fromkeys(wrong.kind for wrong in timeline.wrongs))
    facts = f"{length_text(timeline.length_ms)} of virtual time"
    if cut_short:
        facts += "; the run ended before its end"
    name = f"{timeline.label}: " if several else ""
    return verdict(kind, f"{name}{_count(timeline)}", f"{kinds}; {facts}" if kinds else facts)


def _legend(timelines: Sequence[Timeline]) -> Markup:
    clients = {
        lane.key: colour_of(timeline, lane.key)
        for timeline in timelines
        for lane in timeline.lanes
        if lane.kind is LaneKind.PROCESS
    }
    kinds = {str(moment.kind).replace(" ", "-") for timeline in timelines for moment in timeline.moments}
    kinds |= {"mark"} if any(timeline.wrongs for timeline in timelines) else set()
    names = [tag("span", _swatch(f"own {colour}"), f" {name}", class_="key") for name, colour in clients.items()]
    keys = [
        tag("span", _swatch(shape), f" {text}", class_="key") for shape, text in _LEGEND if shape.split()[0] in kinds
    ]
    return tag("div", *names, *keys, class_="legend", role="group", aria_label="Legend")


def _swatch(shape: str) -> Markup | None:
    kind = shape.split()[0]
    if kind in ("crash", "leave"):
        return None
    if kind == "mark":
        inner = diamond(class_="mark", x=7, y=7)
    else:
        width = {"renew": 2, "expire": 3, "release": 2, "refuse": 6, "log": 4}.get(kind, 16)
        height = {"refuse": 6, "log": 4, "call": 7, "failed-call": 7, "renew": 6}.get(kind, 14)
        inner = tag("rect", class_=shape, x=(16 - width) / 2, y=(14 - height) / 2, width=width, height=height)
    return swatch(inner, width=16, height=14)


# The list of steps -------------------------------------------------------------------------------------------


def _steps(timelines: Sequence[Timeline], told: Markup) -> Markup:
    def rows_of(number: int, timeline: Timeline) -> list[tuple[float, int, Moment]]:
        return [(moment.at_ms, number, moment) for moment in timeline.moments]

    several = len(timelines) > 1
    evidence = {(number, step): wrong for number, timeline in enumerate(timelines)
                for wrong in timeline.wrongs if not wrong.around for step in wrong.steps}  # fmt: skip
    rows = []
    for at_ms, number, moment in merge(*[rows_of(*one) for one in enumerate(timelines)], key=lambda one: one[:2]):
        run = tag("em", timelines[number].label) if several else None
        why = tag("i", moment.why) if moment.why else None
        proof = "proof" if (number, moment.number) in evidence else None
        rows.append(tag("tr", tag("td", f"{at_ms / 1000:,.3f}"), tag("td", run, moment.text, why),
                        id=f"r{number}s{moment.number}", class_=proof))  # fmt: skip
    head = tag("thead", tag("tr", tag("th", "seconds", scope="col"), tag("th", "step", scope="col")))
    table = tag("table", head, tag("tbody", *rows))
    box = tag("div", table, class_="steps", tabindex=0, role="region",
              aria_label="Steps. The arrows up and down choose one.")  # fmt: skip
    return tag("section", tag("h2", "Steps"), told, box, class_="card side-list")


# Below the lanes ---------------------------------------------------------------------------------------------


def _violations(timelines: Sequence[Timeline]) -> Markup | None:
    if not any(timeline.wrongs for timeline in timelines):
        return None
    several = len(timelines) > 1
    parts = []
    for number, timeline in enumerate(timelines):
        shown = timeline.wrongs[:_WRONGS_MAX]
        parts += [_violation(wrong, timeline, number, place, several) for place, wrong in enumerate(shown)]
        if len(shown) < len(timeline.wrongs):
            parts.append(
                tag("p", f"The first {len(shown):,} of {len(timeline.wrongs):,} violations are listed.", class_="note")
            )
    return card("Violations", None, *parts)


def _violation(wrong: Wrong, timeline: Timeline, number: int, place: int, several: bool) -> Markup:
    head = tag(
        "h3",
        tag("span", timeline.label, class_="badge") if several else None,
        tag("span", wrong.kind, class_="bad-text"),
        tag("span", seconds(wrong.at_ms), class_="badge at-time"),
    )
    by_number = {moment.number: moment for moment in timeline.moments}
    linked = [by_number[step] for step in wrong.steps]
    records = [
        tag("li", tag("a", seconds(moment.at_ms), href=f"#r{number}s{moment.number}"), f" {moment.text}", _why(moment))
        for moment in linked
    ]
    begin = min([wrong.at_ms, *(moment.at_ms for moment in linked)])
    show = tag("button", "Show in the lanes", type="button", class_="goto", data_of="timeline", data_begin=begin,
               data_end=max([wrong.at_ms, *(moment.end_ms or moment.at_ms for moment in linked)]))  # fmt: skip
    about = "It names no records; on its queue just then:" if wrong.around else "Its records:"
    listed = join(tag("p", about, class_="note"), tag("ul", *records, class_="records")) if records else None
    return tag("article", head, tag("p", wrong.text), listed, tag("p", show, class_="acts"), class_="example",
               id=f"r{number}sv{place}")  # fmt: skip


def _why(moment: Moment) -> Markup | None:
    return tag("span", f" ({moment.why})", class_="muted") if moment.why else None


def _notes(timelines: Sequence[Timeline]) -> Markup | None:
    several = len(timelines) > 1
    lines = [
        f"{timeline.label}: {text}" if several else text
        for timeline in timelines
        for text in (*timeline.notes, *timeline.thinned)
    ]
    if not lines:
        return None
    return card("Notes", None, tag("ul", *[tag("li", line) for line in lines]))


def _settings(timelines: Sequence[Timeline]) -> Markup | None:
    names = list(dict.fromkeys(name for timeline in timelines for name, _ in timeline.settings))
    if not names:
        return None
    settings = [dict(timeline.settings) for timeline in timelines]
    rows = [[tag("span", name, class_="muted"), *[one.get(name, "-") for one in settings]] for name in names]
    heads = ["setting", *[timeline.label for timeline in timelines]]
    return tag("section", tag("details", tag("summary", "Settings of the run"), table(heads, rows)), class_="card")
