"""What all pages share: cards, tables, verdicts, and lanes with shapes at percentages of the width.

The browser scales nothing, so text keeps its shape. page.js sets the percentages anew when the reader zooms.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from markupsafe import Markup

from lockstep.order.page.markup import join, tag

__all__ = [
    "BAD",
    "COLOURS",
    "GOOD",
    "UNSURE",
    "Tone",
    "card",
    "diamond",
    "lane",
    "percent",
    "round_up",
    "swatch",
    "table",
    "verdict",
]

COLOURS: Final = 8  # --series-1 to --series-8 in page.css


class Tone(NamedTuple):
    """The colour and the sign of a verdict."""

    class_: str
    sign: str


GOOD: Final = Tone("good", "✓")
BAD: Final = Tone("bad", "✗")
UNSURE: Final = Tone("unsure", "?")


def verdict(kind: Tone, title: str, text: str) -> Markup:
    words = tag("div", tag("b", title), tag("span", text))
    return tag("div", tag("i", kind.sign, aria_hidden="true"), words, class_=f"verdict {kind.class_}")


def card(heading: str, note: str | None, *content: Markup | None, id_: str | None = None) -> Markup:
    return tag("section", tag("h2", heading), tag("p", note, class_="note") if note else None, *content,
               class_="card", id=id_)  # fmt: skip


# Tables ------------------------------------------------------------------------------------------------------


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> Markup:
    """A table. The heading of a column of numbers begins with #."""
    numbers = [head.startswith("#") for head in heads]

    def row(name: str, cells: Sequence[object], scope: str | None = None) -> Markup:
        return tag("tr", *[tag(name, _cell(value), class_="n" if is_number else None, scope=scope)
                           for value, is_number in zip(cells, numbers, strict=True)])  # fmt: skip

    first = row("th", [head.removeprefix("#") for head in heads], "col")
    body = tag("tbody", *[row("td", cells) for cells in rows])
    return tag("div", tag("table", tag("thead", first), body),
               class_="scroll", tabindex=0, role="region", aria_label="table")  # fmt: skip


def _cell(value: object) -> str:
    if isinstance(value, str):  # Markup too
        return value
    return f"{value:,}" if isinstance(value, int) else str(value)


# Lanes -------------------------------------------------------------------------------------------------------


def percent(place: float, length: float) -> str:
    """A place on an axis of that length, or a part of it, as an attribute."""
    return f"{100 * place / length:.4f}%"


def round_up(value: float) -> float:
    """The next number of 1, 2 or 5 and zeros: where an axis of values ends."""
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while power > value > 0:
        power /= 10
    return next((digit * power for digit in (1, 2, 5) if value <= digit * power), 10 * power) if value > 0 else 1.0


def lane(
    name: str, note: str | None, shapes: Iterable[Markup], height: float, class_: str, *, hint: str | None = None
) -> Markup:
    """One row of a plot: its name at the left, its field at the right.

    Args:
        height: Of the field, in px.
        hint: What the reader sees who points at the name.
    """
    side = tag("div", tag("b", name, title=hint), tag("span", note) if note else None, class_="side")
    field = tag("svg", *shapes, class_="field", height=height, width="100%", aria_hidden="true")
    return tag("div", side, field, class_=f"lane {class_}")


def diamond(title: str | None = None, **attributes: str | float | None) -> Markup:
    """The sign of a finding, of fixed size, at the attributes x and y."""
    head = tag("title", title) if title is not None else None
    return tag("svg", head, tag("path", d="M0-6L5.5 0L0 6L-5.5 0Z"), **attributes, overflow="visible")


def swatch(*shapes: Markup, width: int, height: int) -> Markup:
    """A small picture in a legend."""
    return tag("svg", join(*shapes), width=width, height=height, aria_hidden="true")
