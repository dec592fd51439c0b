"""The last minutes of a queue as SVG: owners have a colour and a letter, events are marks with a shape each."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from markupsafe import Markup

from lockstep.console.formats import clock_ms
from lockstep.console.model import Mark, MarkKind, Span
from lockstep.console.owners import Owner
from lockstep.console.translations.choose import Texts
from lockstep.console.window import Window
from lockstep.order.page.markup import tag
from lockstep.protocol.epochs import epoch_text

__all__ = ["SHAPES", "WIDTH", "axis", "legend_shape", "ribbon"]

WIDTH: Final = 450
_HEIGHT, _TOP, _BAR = 42, 2, 16
_LANES_Y: Final = (24, 36)  # marks that are close to each other stand in two lanes
_LANE_GAP: Final = 11
_LETTER_MIN: Final = 11  # a narrower span has no letter; its title has the owner
# Around (0, 0). A shape each, so that no mark is known by its colour alone.
SHAPES: Final[Mapping[MarkKind, str]] = {
    MarkKind.GRANTED: "M0-5L5 4H-5Z",  # a triangle
    MarkKind.TAKEN_OVER: "M0-6L6 0 0 6-6 0Z",  # a diamond
    MarkKind.RELEASED: "M0 5L5-4H-5Z",  # a triangle that points down
    MarkKind.EXPIRED: "M-5-3.5L-3.5-5 0-1.5 3.5-5 5-3.5 1.5 0 5 3.5 3.5 5 0 1.5-3.5 5-5 3.5-1.5 0Z",  # a cross
    MarkKind.RESET: "M-5 0A5 5 0 1 1 5 0A5 5 0 1 1-5 0M-2.5 0A2.5 2.5 0 1 0 2.5 0A2.5 2.5 0 1 0-2.5 0",  # a ring
    MarkKind.REFUSED: "M-4-4H4V4H-4ZM-2-2V2H2V-2Z",  # a frame
}


def ribbon(
    spans: Iterable[Span],
    marks: Iterable[Mark],
    window: Window,
    owner: Callable[[str], Owner],
    address: Callable[[Mark], str],
    texts: Texts,
) -> Markup:
    """
    Args:
        window: The time that it shows.
        owner: How a client id is shown.
        address: Where the details of a mark are.
    """
    parts = [tag("rect", class_="track", x=0, y=_TOP, width=WIDTH, height=_BAR)]
    parts += [_span(span, window, owner(span.owner), texts) for span in spans]
    ends = [-1.0 * _LANE_GAP] * len(_LANES_Y)  # where the last mark of each lane stands
    for mark in marks:
        if mark.at_ms >= window.begin_ms:
            x = min(max(_x(mark.at_ms, window), 6.0), WIDTH - 6.0)
            lane = next((lane for lane, end in enumerate(ends) if x - end >= _LANE_GAP), ends.index(min(ends)))
            ends[lane] = x
            parts.append(_mark(mark, x, _LANES_Y[lane], address(mark), texts))
    return tag("svg", *parts, class_="ribbon", viewBox=f"0 0 {WIDTH} {_HEIGHT}", role="group",
               aria_label=texts("ribbon.label", minutes=window.minutes))  # fmt: skip


def _x(at_ms: int, window: Window) -> float:
    return round(window.place(at_ms) * WIDTH, 1)


def _span(span: Span, window: Window, owner: Owner, texts: Texts) -> Markup:
    end_ms = window.now_ms if span.to_ms is None else span.to_ms
    left, right = max(_x(span.from_ms, window), 0.0), min(_x(end_ms, window), float(WIDTH))
    if right <= 0:
        return Markup("")
    width = round(max(right - left, 1.0), 1)
    place: dict[str, float] = {"x": left, "y": _TOP, "width": width, "height": _BAR}
    until = clock_ms(span.to_ms) if span.to_ms is not None else texts("ribbon.now")
    epoch = f", {texts('ribbon.epoch')} {epoch_text(span.epoch)}" if span.epoch is not None else ""
    return tag(
        "g",
        tag("title", f"{owner.letter}: {owner.client_id}{epoch}, {clock_ms(span.from_ms)} \N{EN DASH} {until}"),
        tag("rect", **place),
        tag("rect", class_="hatched", **place, fill="url(#hatch)") if owner.is_hatched else None,
        tag("text", owner.letter, x=round(left + width / 2, 1), y=_TOP + 12) if width >= _LETTER_MIN else None,
        class_=f"span o{owner.colour}",
        data_owner=owner.client_id,
        data_from=span.from_ms,
        data_to=span.to_ms or "",
    )


def _mark(mark: Mark, x: float, y: int, address: str, texts: Texts) -> Markup:
    whom = f" {mark.old} → {mark.new}" if mark.old and mark.new else f" {mark.new or mark.old or ''}"
    cause = texts.get(f"cause.{mark.cause}", mark.cause)
    return tag(
        "a",
        tag("title", f"{clock_ms(mark.at_ms)} {texts(f'mark.{mark.kind}')}:{whom} ({cause})"),
        tag("rect", class_="target", x=round(x - 6, 1), y=y - 6, width=12, height=12),
        tag("path", transform=f"translate({x} {y})", d=SHAPES[mark.kind]),
        class_=f"mark {mark.kind}",
        href=address,
        data_details=True,
        tabindex=-1,
        data_at=mark.at_ms,
        data_kind=mark.kind,
    )


def axis(window: Window, texts: Texts) -> Markup:
    """The times above the ribbons."""
    labels = []
    for place, text in [*window.ticks(), (1.0, texts("ribbon.now"))]:
        x = round(place * WIDTH, 1)
        labels.append(tag("text", text, x=x, y=11, text_anchor="middle" if place < 1 else "end"))
        labels.append(tag("rect", x=min(x, WIDTH - 1), y=13, width=1, height=4))
    return tag("svg", *labels, class_="axis", viewBox=f"0 0 {WIDTH} 17", aria_hidden="true")


def legend_shape(kind: MarkKind) -> Markup:
    shape = tag("path", d=SHAPES[kind])
    return tag("svg", shape, class_=f"legend {kind}", viewBox="-7 -7 14 14", width=14, height=14, aria_hidden="true")
