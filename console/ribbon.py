"""The last 15 minutes of a queue as SVG: owners have a colour and a letter, events are marks with a shape each."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from markupsafe import Markup

from lockstep.console.formats import clock
from lockstep.console.model import RIBBON_MS, Mark, MarkKind, Span
from lockstep.console.translations.choose import Texts
from lockstep.order.page.markup import tag
from lockstep.order.page.pieces import COLOURS
from lockstep.protocol.epochs import epoch_text

__all__ = ["SHAPES", "WIDTH", "Owner", "axis", "legend_shape", "owner_of", "ribbon"]

WIDTH: Final = 450  # two seconds a pixel
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


class Owner(NamedTuple):
    """How an owner is shown: a letter, a colour, and hatched when the colours are used up."""

    client_id: str
    letter: str
    colour: int
    is_hatched: bool


def owner_of(client_id: str, number: int) -> Owner:
    """`number`: from Collector.owner_number. 0 is A, 26 is A2."""
    again = number // 26
    letter = chr(ord("A") + number % 26) + (str(again + 1) if again else "")
    return Owner(client_id, letter, number % COLOURS, number >= COLOURS)


def _x(at_ms: int, now_ms: int) -> float:
    return round((at_ms - (now_ms - RIBBON_MS)) * WIDTH / RIBBON_MS, 1)


def ribbon(
    spans: Iterable[Span],
    marks: Iterable[Mark],
    now_ms: int,
    owner: Callable[[str], Owner],
    address: Callable[[Mark], str],
    texts: Texts,
) -> Markup:
    """
    Args:
        owner: How a client id is shown.
        address: Where the details of a mark are.
    """
    parts = [tag("rect", class_="track", x=0, y=_TOP, width=WIDTH, height=_BAR)]
    parts += [_span(span, now_ms, owner(span.owner), texts) for span in spans]
    ends = [-1.0 * _LANE_GAP] * len(_LANES_Y)  # where the last mark of each lane stands
    for mark in marks:
        if mark.at_ms >= now_ms - RIBBON_MS:
            x = min(max(_x(mark.at_ms, now_ms), 6.0), WIDTH - 6.0)
            lane = next((lane for lane, end in enumerate(ends) if x - end >= _LANE_GAP), ends.index(min(ends)))
            ends[lane] = x
            parts.append(_mark(mark, x, _LANES_Y[lane], address(mark), texts))
    return tag("svg", *parts, class_="ribbon", viewBox=f"0 0 {WIDTH} {_HEIGHT}", role="group",
               aria_label=texts("ribbon.label"))  # fmt: skip


def _span(span: Span, now_ms: int, owner: Owner, texts: Texts) -> Markup:
    end_ms = now_ms if span.to_ms is None else span.to_ms
    left, right = max(_x(span.from_ms, now_ms), 0.0), min(_x(end_ms, now_ms), float(WIDTH))
    if right <= 0:
        return Markup("")
    width = round(max(right - left, 1.0), 1)
    place: dict[str, float] = {"x": left, "y": _TOP, "width": width, "height": _BAR}
    until = clock(span.to_ms) if span.to_ms is not None else texts("ribbon.now")
    epoch = f", {texts('ribbon.epoch')} {epoch_text(span.epoch)}" if span.epoch is not None else ""
    return tag(
        "g",
        tag("title", f"{owner.letter}: {owner.client_id}{epoch}, {clock(span.from_ms)} to {until}"),
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
    return tag(
        "a",
        tag("title", f"{clock(mark.at_ms)} {texts(f'mark.{mark.kind}')}:{whom} ({texts.cause(mark.cause)})"),
        tag("rect", class_="target", x=round(x - 6, 1), y=y - 6, width=12, height=12),
        tag("path", transform=f"translate({x} {y})", d=SHAPES[mark.kind]),
        class_=f"mark {mark.kind}",
        href=address,
        data_details=True,
        tabindex=-1,
        data_at=mark.at_ms,
        data_kind=mark.kind,
    )


def axis(texts: Texts) -> Markup:
    """The minutes above the ribbons."""
    labels = []
    for minutes, anchor in ((15, "start"), (10, "middle"), (5, "middle"), (0, "end")):
        x = WIDTH - minutes * 60_000 * WIDTH // RIBBON_MS
        text = f"-{minutes} min" if minutes else texts("ribbon.now")
        labels.append(tag("text", text, x=x, y=11, text_anchor=anchor))
        labels.append(tag("rect", x=min(x, WIDTH - 1), y=13, width=1, height=4))
    return tag("svg", *labels, class_="axis", viewBox=f"0 0 {WIDTH} 17", aria_hidden="true")


def legend_shape(kind: MarkKind) -> Markup:
    shape = tag("path", d=SHAPES[kind])
    return tag("svg", shape, class_=f"legend {kind}", viewBox="-7 -7 14 14", width=14, height=14, aria_hidden="true")
